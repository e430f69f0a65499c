"""The fields of every record that a run, a sweep or an archive keeps: one table, one check.

Whoever changes a file can change its checksum too, and another version may write other fields. So
whatever is read is checked here first, and the first field that is wrong is named.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import validate
from mecheval.core.spec import Spec, canonical_json
from mecheval.runs.experiment import SECTIONS, fields_of, key_of
from mecheval.runs.files import Damaged

Types = frozenset[type]
Record = Mapping[str, Any]
TEXT: Types = frozenset([str])
WHOLE: Types = frozenset([int])
REAL: Types = frozenset([int, float])
RECORD: Types = frozenset([dict])
LIST: Types = frozenset([list])
MISSING: Types = frozenset([type(None)])
WORDS = {TEXT: "text", WHOLE: "an integer", REAL: "a number", RECORD: "a record", LIST: "a list"}
LARGEST = 2**63  # no table has a column for more

# fields that must be in a record, with their types; MISSING allows null
NEEDED: dict[str, dict[str, Types]] = {
    "experiment": {"key": TEXT, "task": TEXT, "model.architecture": TEXT, "seed": WHOLE},
    "status": {"key": TEXT, "status": TEXT, "steps": WHOLE},
    "provenance": {"made_by": RECORD},
    "verdict": {"mechanism": TEXT, "confidence": REAL | MISSING},
    "curve": {"step": WHOLE},
    "rows": {
        **dict.fromkeys(("metric", "condition", "split"), TEXT),
        **dict.fromkeys(("value", "low", "high"), REAL),
        **dict.fromkeys(("n", "step"), WHOLE),
        **dict.fromkeys(("corrupted", "site", "role"), TEXT | MISSING),
        "layer": WHOLE | MISSING,
    },
    "error": {"reason": TEXT},
    "plan": {"recipe": TEXT, "scale": TEXT, "experiments": LIST, "folders": LIST},
    "study": {"recipe": TEXT | MISSING, "scale": TEXT | MISSING, "sha256": RECORD},
    "line": {"key": TEXT | MISSING, "status": TEXT, "folder": TEXT, "steps": WHOLE | MISSING},
}
NEEDED["experiment"] |= dict.fromkeys(("model.d_model", "model.layers"), WHOLE)
NEEDED["experiment"] |= dict.fromkeys(("train.batch", "train.documents", "eval.documents"), WHOLE)
NEEDED["experiment"]["train.lr"] = REAL
NEEDED["line"] |= dict.fromkeys(("reason", "verdict", "provenance"), TEXT | MISSING)

# fields that may be missing or null
OPTIONAL: dict[str, dict[str, Types]] = {
    "status": {"reason": TEXT},
    "provenance": {
        **dict.fromkeys(("started", "finished", "python", "system", "processor", "commit"), TEXT),
        **dict.fromkeys(("wall_seconds", "cpu_seconds"), REAL),
        **dict.fromkeys(("sessions", "peak_memory_bytes", "cores"), WHOLE),
        **dict.fromkeys(("classes", "plugin_files"), RECORD),
    },
    "made_by": {"plugins": RECORD},
    "verdict": {
        **dict.fromkeys(("role", "convolution"), TEXT),
        **dict.fromkeys(("evidence", "thresholds", "lost", "by_layer", "by_mechanism"), RECORD),
        **dict.fromkeys(("layer", "documents", "seeds"), WHOLE),
        "layer_confidence": REAL,
        "kinds": LIST,
    },
    "curve": dict.fromkeys(
        ("loss", "train_loss", "gradient_norm", "learning_rate", "accuracy", "likelihood"), REAL
    ),
    "error": {"status": TEXT},
}

# fields that tell the records of one file apart; in tables of several runs `key` is one of them
IDENTITY: dict[str, tuple[str, ...]] = {
    "rows": ("metric", "condition", "corrupted", "site", "role", "split", "step"),
    "curve": ("step",),
    "line": ("key", "folder"),
}


def check_records(kind: str, records: Sequence[Record], name: str) -> None:
    """Raise Damaged, which names the file and the field, unless all records fit the table."""
    for field, types in NEEDED.get(kind, {}).items():
        try:
            _check_column(name, field, [record[field] for record in records], types)
        except KeyError:
            raise Damaged(f"{name} has no field {field!r}") from None
    for field, types in OPTIONAL.get(kind, {}).items():
        values = [record.get(field) for record in records]
        _check_column(name, field, values, types | MISSING)
    for record in records:
        if kind == "experiment":
            _check_experiment(record, name)
        elif kind == "provenance":
            check_records("made_by", [record["made_by"]], f"{name}: made_by")


def check_identity(kind: str, records: Sequence[Record], name: str) -> None:
    """Raise Damaged if a record is there twice: everything that counts records would be wrong."""
    fields = IDENTITY.get(kind, ())
    if fields and records and "key" in records[0]:
        fields = tuple(dict.fromkeys(("key", *fields)))
    if not fields or len(set(map(itemgetter(*fields), records))) == len(records):
        return
    identities = Counter(tuple(record[field] for field in fields) for record in records)
    ((twice, _),) = identities.most_common(1)
    pairs = zip(fields, twice, strict=True)
    texts = [f"{field}={value}" for field, value in pairs if value is not None]
    raise Damaged(f"{name} has two records with {', '.join(texts)}")


def check_plan(plan: Record, name: str) -> None:
    """Raise Damaged unless a plan has a record and the name of a folder for each experiment."""
    check_records("plan", [plan], name)
    experiments, folders = plan["experiments"], plan["folders"]
    if not all(isinstance(experiment, dict) for experiment in experiments):
        raise Damaged(f"{name} has experiments that are not records")
    check_records("experiment", experiments, f"{name}: experiments")
    _check_column(name, "folders", folders, TEXT)
    if len(folders) != len(experiments):
        raise Damaged(f"{name} has {len(experiments)} experiments and {len(folders)} folders")


def _check_column(name: str, field: str, values: Sequence[Any], types: Types) -> None:
    """Check a field of all records at once, for speed."""
    present = set(map(type, values))
    for value in values if not present <= types else ():
        if type(value) not in types:
            expected = " or ".join(WORDS[part] for part in WORDS if part <= types)
            raise Damaged(f"{name} has {field}={_short(value)}; it must be {expected}")
    if int in present:
        for value in values:
            if type(value) is int and not -LARGEST <= value < LARGEST:
                raise Damaged(f"{name} has {field}={_short(value)}; it is too large")


def _check_experiment(record: Record, name: str) -> None:
    """Validate every field as a new experiment's, except names that need not be registered here."""
    known, sections = fields_of(), {section: dict[str, Any]() for section in SECTIONS}
    try:
        for field in ("task", "model.architecture"):
            _check_spec(record[field])
        for field, value in record.items():
            section = field.partition(".")[0]
            if field in known and section in sections:
                sections[section][known[field].name] = value
            elif field not in (*known, "key") and (section not in sections or section == field):
                raise Damaged(f"{name} has the unknown field {field!r}")
        for section, values in sections.items():
            _validate_section(section, canonical_json(values))
        if not 0 <= record["seed"] < 2**32:
            raise Damaged(f"{name} has seed={record['seed']}; it must be from 0 and below 2**32")
        if record["key"] != key_of({field: record[field] for field in record.keys() & known}):
            raise Damaged(f"{name} has a key that is not that of its fields")
    except InvalidInput as error:
        raise Damaged(f"{name}: {'; '.join(error.problems)}") from error


@lru_cache(maxsize=1024)  # most runs of a sweep share a section; text, since 1 == True
def _validate_section(section: str, values: str) -> None:
    try:
        validate(SECTIONS[section], json.loads(values))
    except InvalidInput as error:
        raise InvalidInput(f"{section}.{problem}" for problem in error.problems) from error


@lru_cache(maxsize=1024)
def _check_spec(text: str) -> None:
    Spec.parse(text)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
