"""Values for fuzzed command lines: by a parameter's name, metavar and help, or hostile ones.

A parameter that is not named here gets values by its type, its metavar and the words of its help.
"""

import os
import random
import re
from collections.abc import Sequence
from typing import Any


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# commands that take long are drawn less often; one that is not named here is drawn as often as most
WEIGHTS = {"demo": 0.03, "card": 0.05, "sweep run": 0.05, "sweep retry": 0.05, "run": 0.2}
WEIGHTS |= {"check": 0.25, "report": 0.12, "figure": 0.2, "claims": 0.25, "intervene": 0.4}
WEIGHTS |= {"show task": 0.6, "describe": 0.3, "compare": 0.35, "show model": 0.35, "results": 0.7}

TASKS = ("recall:pairs=2,vocab=8", "recall:pairs=4,vocab=32", "treecall:max_len=32", "ar_16pairs")
TASKS += ("recall:pairs=3,vocab=16,queries=2", "atr_split", "treecall:terminals=6,nonterminals=6")
MODELS = ("attention", "mamba", "mamba:d_conv=2", "base_conv", "based", "delta_net", "h3", "hyena")
MODELS += ("linear_attention", "good.py:MyMixer")
NEWER = _split("""
    mamba2:d_state=8 mamba3:d_state=8,rotary=0.25 mamba3:d_state=4,d_conv=4,bias=false
    gla:decay=head,gate=false retnet:rotary=false hgrn2:lower_bound=0.5,heads=2
    gated_delta_net:householders=2,neg_eigval=true gated_delta_net:decay=constant kda
    mlstm:input_gate=sigmoid,soft_cap=5 rg_lru:expand=1.5 rwkv7:shift=false,heads=2
    transformer:heads=4,kv_heads=2,window=4 attention:rotary=true,rotary_base=100
""")
HYBRIDS = _split("""
    hybrid:mamba+attention[heads=2] hybrid:rg_lru|attention*2,norm=rms hybrid:mamba2
    hybrid:gla[decay=none]+hgrn2|retnet,positions=true,mlp=false hybrid:my_mixer+attention
    parallel:attention|mamba parallel:kda|rwkv7[shift=false]|h3[d_state=4],norm=rms
""")
SCONV = _split("""
    attention:sconv=Akv,sconv_taps=3 mamba:sconv=O mamba:canon=A hyena:canon=ABCD
    hybrid:gla+attention,sconv=qkvODM parallel:mlstm|rg_lru,sconv=CO,sconv_taps=2
""")
MODELS += (*NEWER, *HYBRIDS, *SCONV)
WRONG_MODELS = _split("""
    hybrid: hybrid:+ hybrid:mamba*0 hybrid:mamba*999 hybrid:mamba*3+ gla:
    hybrid:hybrid[pattern=mamba] hybrid:mamba[d_conv=4 hybrid:mamba] hybrid:[] parallel:attention
    parallel: parallel:a|b parallel:attention| hybrid:a| hybrid:mamba*2,pattern=h3 hybrid:recall
    hybrid:mamba[heads=2] hybrid:é*2 mamba:sconv=q mamba:sconv=C attention:sconv=Z
    attention:sconv=AA kda:x=1 attention:sconv=A,canon=A attention:canon=q attention:sconv_taps=3
    rwkv7:heads=3 attention:sconv= attention:sconv=1 attention:sconv=true mamba2:head_dim=5
    mamba2:groups=7 mamba3:rotary=nan mamba3:rotary=1e-9 gla:tau=0 gla:tau=1e-40
    gla:expand_k=0.001 retnet:heads=8 rg_lru:expand=0.01 mlstm:soft_cap=1e99
    gated_delta_net:householders=99 transformer:heads=4,kv_heads=3 attention:window=-1
""")
SMALL = "model.d_model=8 model.max_len=32 train.documents=64 train.batch=4 train.steps=2"
SMALL += " eval.documents=16 eval.grid_documents=8"
FIELDS = ("train.lr=1e-2", "seed=3", "model.layers=1", "train.schedule=linear", "eval.every=1")
QUERIES = (
    "from rows",
    "select count(*) from runs",
    "from curves limit 3",
    "select 1/0",
    "select 1",
)
QUERIES += ("select metric, avg(value) from rows group by metric", "describe rows", "from runs")
QUERIES += ("select '2026-01-01'::date, [1, 2], {'a': 1}, interval 3 days, null", "show tables")
INTEGERS = ("0", "1", "2", "3", "7", "16")
BAD_SQL = (
    "from read_csv('/etc/passwd')",
    "copy rows to 'x.csv'",
    "attach 'x.db'",
    "drop table rows",
)
BAD_SQL += ("install httpfs", "select", "; ;", "select * from rows, rows, rows, rows where 1=2")
BAD_SQL += ("set enable_external_access=true", "pragma database_list", "select $1", "vacuum")

QUEUES = ("queue/two.toml", "queue/seeds.toml", "queue/fields.toml")
WRONG_QUEUES = _split("""
    queue/unknown.toml queue/fields_unnamed.toml queue/twice.toml queue/wrong.toml
    queue/empty.toml queue queue/nowhere.toml queue/only.toml queue/typed.toml
    queue/damaged/two.toml queue/mixed/two.toml queue/name.toml
""")

# values of each metavar; a folder in them is copied into the scratch folder of the line
METAVARS: dict[str, Sequence[str]] = {
    "DIR": ("runs", "kept", "sweep", "kept_sweep", "linked"),
    "RUN": ("RUN", "HYBRID"),
    "FILE.py": ("good.py", "recipe.py", "empty.py"),
    "FILE.toml": ("run0.toml", "run1.toml"),
    "FILE.html": ("page.html", "new.html"),
    "INTEGER": INTEGERS,
    "MB": ("16", "256"),
    "SECONDS": ("0.5", "30", "1e3"),
    "SEED": INTEGERS,
    "TASK": TASKS,
    "MODEL": MODELS,
    "RECIPE": ("mine",),
    "SITE": ("blocks.0.block_in", "blocks.1.block_in", "blocks.0.mixer_out"),
    "ROLE": ("key", "value", "query", "value+1", "@5"),
    "FIELD": ("architecture", "model.d_model", "train.lr", "task"),
    "KIND": ("tasks", "architectures", "mixers", "models", "recipes", "metrics", "figures"),
    "ADDRESS": ("local",),
}
# values of a parameter by its command; these are always given
ALWAYS: dict[str, dict[str, Sequence[str]]] = {
    "run": {"words": tuple(f"{t} {m} {SMALL}" for t in TASKS[:2] for m in MODELS)},
    "sample": {"n": ("1", "2", "3")},
    "show task": {"train": ("32", "64"), "evaluation": ("16", "32"), "spec": TASKS},
    "show model": {"spec": MODELS},
    "describe": {"train": ("32", "64"), "evaluation": ("16", "32"), "name": (*TASKS, *MODELS)},
    "check": {"name": (*TASKS[:3], *MODELS)},
    "card": {"subject": MODELS, "dry_run": ("",), "scale": ("quick",), "out": ("new",)},
    "compare": {"by": ("architecture", "model.architecture"), "folders": ("runs", "sweep", "kept")},
    "sweep run": {"recipe": ("mine",), "plugin": ("recipe.py",), "workers": ("1",)},
    "sweep retry": {"folder": ("sweep",), "workers": ("1",)},
    "sweep status": {"folder": ("sweep", "kept_sweep")},
    "figure": {"name": ("5", "figure5"), "runs": ("sweep", "kept_sweep")},
    "claims": {"folders": ("sweep", "kept_sweep")},
    "keep": {"out": ("new", "new/deeper"), "folders": ("runs", "kept", "sweep")},
    "intervene": {"run": ("RUN", "HYBRID"), "documents": ("4", "8")},
    "list": {},
}
NAMES: dict[str, Sequence[str]] = {
    "sql": QUERIES,
    "parquet": ("table.parquet",),
    "device": ("cpu",),
    "threads": ("1", "2"),
    "split": ("train", "dev", "test"),
    "corrupt": ("key", "value", "query"),
    "kind": ("resample", "swap"),
    "condition": ("restored", "ablated", "control"),
    "scale": ("quick", "small"),
    "correction": ("holm", "fdr", "none"),
    "reuse": ("sweep", "runs"),
    "seed": INTEGERS,
    "queue": QUEUES,
}
OUTS = {
    "figure": ("f.png", "f.csv", "f.json"),
    "compare": ("f.svg", "f.json"),
    "report": ("p.html",),
}

HOSTILE = (
    *("", " ", "-", "--", "---", "-1", "-0", "0", "1e400", "nan", "NaN", "inf", "-inf", "1_000"),
    *("9" * 40, "-" + "9" * 40, "0x10", "٣", "²", "1.5", "true", "None", "null", "[]", "{}", "()"),
    *("é", "日本語", "😀", "\u202e", "\ufeff", "a\u0301", "\u2028", "\x1b[31m", "\r", "\t", "a\nb"),
    *(os.fsdecode(b"\xff\xfe"), os.fsdecode(b"bad\xff"), "\0", "a\0b", "x" * 300, "x" * 100_000),
    *(
        ".",
        "..",
        "/",
        "//",
        "~",
        "../..",
        "./.",
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "/sys",
        "/proc",
    ),
    *(
        "/proc/self/mem",
        "/sys/new",
        "/sys/x.png",
        "/sys/x.html",
        "/sys/x.parquet",
        "/dev/full/x.png",
    ),
    *("empty", "locked", "locked/new", "loop", "loop/new", "dangling", "fifo", "file.bin"),
    *(
        "file.txt",
        "file.txt/new",
        "file.txt/x.html",
        "loop/x.png",
        "runs",
        "sweep",
        "kept",
        "damaged",
    ),
    *("kept_damaged", "kept_sweep", "linked", os.fsdecode(b"not-utf8-\xff"), "x" * 300 + ".png"),
    *("fifo/x.csv", "dangling/x.json", "empty/x.svg", "empty/x.pdf", "empty.parquet", "x.exe"),
    *("bad.toml", "deep.toml", "binary.toml", "run0.toml", "nul.py", "latin.py", "nowhere.py"),
    *(
        "forward_raises.py",
        "forward_shape.py",
        "forward_nan.py",
        "syntax.py",
        "value.py",
        "exits.py",
    ),
    *(
        "stops.py",
        "generator.py",
        "base.py",
        "recursion.py",
        "memory.py",
        "surrogate.py",
        "twice.py",
    ),
    *("forward_raises.py:MyMixer", "forward_shape.py:MyMixer", "forward_nan.py:MyMixer"),
    *("good.py:Nothing", "good.py:torch", "good.py:", ".py:", "value.py:X", "base.py:X", "good.py"),
    *("recall", "recall:", "recall:pairs", "recall:pairs=,", "recall:pairs=nan", "recall:pairs=-1"),
    *("recall:pairs=99999999,vocab=8", "treecall:max_depth=0", "mamba:d_conv=99", "mamba:x=1"),
    *(
        "attention:heads=3",
        "recall:pairs=2,vocab=8 recall",
        "recal",
        "mmaba",
        "a:b=c,d=e",
        "=",
        "=1",
    ),
    *(
        "seed=",
        "seed=x",
        "train.lr=nan",
        "train.steps=-1",
        "model.d_model=0",
        "nonsense=1",
        "train=1",
    ),
    *("--seed", "--out", "--json", "--csv", "--debug", "--help", "--version", "-n", "-h", "--nope"),
    *("--plugin=fifo", "--out=loop", "--out=", "--file=fifo", "--plugin", "--site", "--workers=0"),
    *("%s", "%n%n", "{0}", "$(id)", "`id`", "';--", '"', "\\", "<script>", "[red]x[/red]", "[/]"),
    *("blocks.9.block_in", "blocks.0", "@", "@99", "@-1", "value+", "value+999", "key-1", "answer"),
    *BAD_SQL,
    *WRONG_MODELS,
    *WRONG_QUEUES,
)


def choose(rng: random.Random, words: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the parameters of a command that are always given, with their values.

    One without values is left out of all lines but hostile ones.
    """
    always = ALWAYS.get(" ".join(words), {})
    return {**always, **_together(rng, words)}


def _together(rng: random.Random, words: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return values that only fit together."""
    if words == ("intervene",) and rng.random() < 0.3:
        return {"kind": ("swap",), "metric": ("counterfactual", "likelihood")}
    if words == ("sweep", "run") and rng.random() < 0.5:
        return {"queue": (*QUEUES * 4, *WRONG_QUEUES), "recipe": (), "scale": ()}
    return {}


def valid(rng: random.Random, param: Any, words: Sequence[str]) -> str:
    """Return a value that is probably valid."""
    if param.name == "out" and param.metavar != "DIR":
        return rng.choice(OUTS.get(words[-1], ("f.png",)))
    if param.name == "out":
        return rng.choice(("new", "new/deeper"))
    known = NAMES.get(param.name) or METAVARS.get((param.metavar or "").strip("[]"))
    if known:
        return rng.choice(known)
    if param.metavar and param.metavar.startswith("FILE"):
        return "f.png"
    return rng.choice(_words(param.help or "") or INTEGERS)


def _words(text: str) -> list[str]:
    """Return the names that a help text lists: `train, dev or test`."""
    listed = re.search(r"((?:[a-z_]+, )+[a-z_]+(?: or|,) [a-z_]+|[a-z_]+ or [a-z_]+)", text)
    return re.findall(r"[a-z_]+", listed[0].replace(" or ", " ")) if listed else []
