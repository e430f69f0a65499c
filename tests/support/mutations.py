"""Ways to damage a run folder, a sweep's plan or a kept study, with or without mended checksums."""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mecheval.runs.checked import CHECKSUMS
from mecheval.runs.files import read_json, sha256, write_json

ODD: tuple[Any, ...] = (None, "x", "", -1, 0, 1e308, -0.5, 2**70, True, [], [1], {}, {"a": 1})
ODD += ("recall:pairs=-1", "../..", "<script>", "x" * 5000, [[[]]], "nan", {"": None})
TABLES = ("runs", "rows", "curves")
TYPES = ("varchar", "double", "boolean", "bigint", "date", "integer[]", "blob")


@dataclass(frozen=True)
class Damage:
    """What was done: `certain` if a checksum no longer agrees, `file` to which file."""

    what: str
    file: str
    certain: bool


def damage_file(rng: random.Random, path: Path) -> Damage:
    """Damage a file and leave its checksum as it was."""
    before = path.read_bytes()
    how = rng.choice([*WAYS])
    WAYS[how](rng, path)
    same = path.is_file() and not path.is_symlink() and path.read_bytes() == before
    return Damage(how, path.name, certain=not same)


def _truncate(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(max(len(content), 1))])


def _flip(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def _link(rng: random.Random, path: Path) -> None:
    away = path.with_name(f"away-{path.name}")
    path.rename(away)
    path.symlink_to(rng.choice((away.name, path.name, "nowhere", "/dev/zero", "/etc/passwd")))


def _folder(rng: random.Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(rng: random.Random, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


WAYS: dict[str, Callable[[random.Random, Path], object]] = {
    "truncated": _truncate,
    "emptied": lambda rng, path: path.write_bytes(b""),
    "deleted": lambda rng, path: path.unlink(),
    "a link": _link,
    "a folder": _folder,
    "a FIFO": _fifo,
    "noise": lambda rng, path: path.write_bytes(rng.randbytes(rng.choice((1, 100, 5000)))),
    "a flipped bit": _flip,
    "doubled": lambda rng, path: path.write_bytes(path.read_bytes() * 2),
}


def change_record(rng: random.Random, record: dict[str, Any]) -> str:
    """Remove, retype or add a field, at any depth."""
    inner = [value for value in record.values() if isinstance(value, dict)]
    if inner and rng.random() < 0.3:
        return change_record(rng, rng.choice(inner))
    if not record:
        record["odd"] = 1
        return "odd=1 added"
    name = rng.choice(sorted(record))
    how = rng.choice(("removed", "retyped", "retyped", "retyped", "renamed"))
    if how == "retyped":
        record[name] = rng.choice(ODD)
        return f"{name}={str(record[name])[:20]!r}"
    value = record.pop(name)
    if how == "renamed":
        record[name + "x"] = value
    return f"{name} {how}"


def mend_json(rng: random.Random, path: Path) -> str:
    record = read_json(path)
    what = change_record(rng, record)
    write_json(path, record)
    return what


def mend_lines(rng: random.Random, path: Path) -> str:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    if not records or rng.random() < 0.1:
        path.write_text(rng.choice(('{"a": 1}\n', "[]\n", "null\n", '"x"\n', '{"value": NaN}\n')))
        return "other lines"
    state = rng.randrange(2**32)
    some = records if rng.random() < 0.5 else [rng.choice(records)]
    for record in some:
        what = change_record(random.Random(state), record)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return f"{what} in {len(some)} lines"


def mend_tensors(rng: random.Random, path: Path) -> str:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    begin, end = header[name]["data_offsets"]
    how = rng.choice(
        ("NaN", "infinite", "dtype", "missing", "extra", "negative", "shape", "offset")
    )
    if how in ("NaN", "infinite") and end > begin:
        data[begin : begin + 4] = struct.pack("<f", float(how[:3].lower()))
    elif how == "dtype":
        header[name]["dtype"] = rng.choice(("I32", "F64", "BF16", "X9", "", 7, "U8"))
    elif how == "missing":
        header.pop(name)
    elif how == "extra":
        header["extra"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        data += b"\0\0\0\0"
    elif how == "negative":
        header[name]["shape"] = [-1, -1]
    elif how == "shape":
        header[name]["shape"] = rng.choice(([], [2**62, 4], [0], "x", [1.5], list(range(40))))
    else:
        header[name]["data_offsets"] = rng.choice(([end, begin], [0, 2**63], [-4, 0], [], None))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return f"{name} {how}"


def mend(folder: Path, path: Path) -> None:
    """Let the run's checksums agree with a changed file."""
    checksums = read_json(folder / CHECKSUMS)
    checksums[path.name] = sha256(path.read_bytes())
    write_json(folder / CHECKSUMS, checksums)


def damage_run(rng: random.Random, folder: Path) -> Damage:
    """Damage one file of a run; in half of the cases somebody mends the checksums."""
    path = rng.choice(sorted(folder.iterdir()))
    if rng.random() < 0.45:
        return damage_file(rng, path)
    if path.name == CHECKSUMS:
        return Damage(mend_json(rng, path), path.name, certain=False)
    change = {".json": mend_json, ".jsonl": mend_lines}.get(path.suffix, mend_tensors)
    what = change(rng, path)
    mend(folder, path)
    return Damage(what, path.name, certain=False)


def damage_plan(rng: random.Random, folder: Path) -> Damage:
    """Damage the plan, or let it have fewer runs: no run is damaged by that."""
    path = folder / "sweep.json"
    if rng.random() < 0.5:
        return damage_file(rng, path)
    if rng.random() < 0.5:
        return Damage(mend_json(rng, path), path.name, certain=False)
    plan = read_json(path)
    keep = rng.sample(range(len(plan["folders"])), rng.randrange(len(plan["folders"])))
    for name in ("experiments", "folders"):
        plan[name] = [plan[name][place] for place in keep]
    write_json(path, plan)
    return Damage(f"{len(keep)} runs left in it", path.name, certain=False)


def damage_archive(rng: random.Random, folder: Path) -> Damage:
    """Damage a kept study, or change a table of it and mend `study.json`."""
    path = rng.choice(sorted(folder.iterdir()))
    if rng.random() < 0.35:
        return damage_file(rng, path)
    if path.name == "study.json":
        return Damage(mend_json(rng, path), path.name, certain=False)
    what = _change_table(rng, path)
    about = read_json(folder / "study.json")
    about["sha256"][path.stem] = sha256(path.read_bytes())
    write_json(folder / "study.json", about)
    return Damage(what, path.name, certain=False)


def _change_table(rng: random.Random, path: Path) -> str:
    import duckdb

    table = duckdb.from_parquet(str(path))
    columns = list(table.columns)
    name, kind = rng.choice(columns), rng.choice(TYPES)
    without = f'select * exclude("{name}") from t'
    query = rng.choice(
        (
            without if len(columns) > 1 else "from t limit 0",
            f'select * replace(try_cast("{name}" as {kind}) as "{name}") from t',
            f'select * replace(null as "{name}") from t',
            f"select * replace('x{{' as \"{name}\") from t",
            f"select * replace('[1]' as \"{name}\") from t",
            f'select * replace(-1 as "{name}") from t',
            f'select *, 1 as "{name}x" from t',
            f'select * rename("{name}" as "{name}x") from t',
            "from t limit 0",
            "select 1 as a",
            "from t union all from t",
        )
    )
    other = path.with_name("other.parquet")
    duckdb.sql(query.replace("from t", f"from '{path}'")).write_parquet(str(other))
    shutil.move(other, path)
    return query
