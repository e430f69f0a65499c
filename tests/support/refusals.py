"""Invalid input, each with what its error line must name: one case of each kind for each field.

Run as a script, it prints the exit codes and which heavy modules were imported.
"""

import sys

SMALL = ["run", "recall:pairs=2,vocab=8", "attention"]


def fields() -> list[tuple[str, str]]:
    """List every option of every task with invalid values: (task, option=value)."""
    counts = {
        "recall": ["pairs", "min_pairs", "vocab", "queries"],
        "treecall": ["terminals", "nonterminals", "max_depth", "max_rhs", "max_rules", "max_len"],
    }
    rows = []
    for task, names in counts.items():
        rows += [(task, f"{name}={value}") for name in names for value in ("0", "1.5")]
        rows += [(task, f"held_out={value}") for value in ("-0.1", "1.0", "some")]
        rows.append((task, "query=up"))
    for value in ("-1", "many", "true", "nan", "1000.0", '"8"', "99999999999999999999"):
        rows.append(("recall", f"pairs={value}"))
    rows += [("recall", "vocab=7"), ("recall", "vocab=8388608"), ("recall", "held_out=nan")]
    odd = ["max_rhs=1", "max_len=5", "max_len=32768", "head=up", "head=true"]
    odd += ["grammar_seed=-1", "grammar_seed=0.5", "grammar_seed=4294967296"]
    odd += ["terminal_weight=0", "terminal_weight=inf", "terminal_weight=10000000.0"]
    rows += [("treecall", option) for option in odd]
    rows += [("recall", f"{n}={v}") for n in ("passes", "slots", "filler") for v in INVALID]
    rows += [("recall", f"gaps={value}") for value in ("0", "-1.0", "17.0", "nan", "flat")]
    for task, names in OWN_OPTIONS.items():
        rows += [(task, f"{name}={value}") for name in names for value in INVALID]
    rows += [("copy", f"blanks={value}") for value in ("-1", "1.5", "many", "true")]
    return rows + [("track", f"group={value}") for value in ("S4", "a5", "60", "true")]


INVALID = ("0", "1.5", "-3", "many", "true", "99999999999")
OWN_OPTIONS = {
    "overwrite": ["pairs", "updates", "queries", "vocab"],
    "compose": ["grid", "queries", "vocab"],
    "hops": ["nodes", "min_nodes", "hops", "queries", "vocab"],
    "spans": ["pairs", "key_tokens", "value_tokens", "min_tokens", "vocab"],
    "copy": ["count", "vocab"],
    "track": ["length"],
    "hop_induction": ["length", "letters", "hops"],
    "ngram": ["order", "vocab", "length"],
}

# settings whose fields are valid one by one, and the fields that the error must name
TOGETHER: list[tuple[str, list[str]]] = [
    ("recall:pairs=33,vocab=64", ["pairs=33", "32", "vocab=64"]),
    ("recall:pairs=8,min_pairs=9", ["min_pairs=9", "pairs=8"]),
    ("recall:pairs=8,queries=9", ["queries=9", "8"]),
    ("recall:pairs=1,vocab=2000,held_out=0.001", ["held_out=0.001", "test"]),
    ("recall:pairs=4,vocab=2000,held_out=0.999", ["held_out=0.999", "train"]),
    ("recall:queries=3,slots=2", ["slots=2", "queries=3"]),
    ("recall:gaps=0.5", ["gaps=0.5", "slots"]),
    ("recall:filler=4", ["filler=4", "slots"]),
    ("overwrite:pairs=9,vocab=16", ["pairs=9", "8", "vocab=16"]),
    ("overwrite:updates=9", ["updates=9", "pairs=8"]),
    ("overwrite:pairs=4,updates=2", ["queries=8", "pairs=4"]),
    ("compose:vocab=8192", ["vocab=8192", "divisible by 3"]),
    ("compose:grid=4,vocab=45", ["grid=4", "16", "vocab=45"]),
    ("compose:queries=5", ["queries=5", "4", "grid=2"]),
    ("hops:nodes=129", ["nodes=129", "vocab=128"]),
    ("hops:min_nodes=76", ["min_nodes=76", "nodes=75"]),
    ("spans:vocab=4", ["key_tokens=3", "vocab=4"]),
    ("spans:min_tokens=4", ["min_tokens=4", "key_tokens=3"]),
    ("hop_induction:length=17", ["length=17", "18", "hops=16"]),
    ("hop_induction:letters=1024,length=4,hops=1", ["length=4", "fewer hops or letters"]),
    ("ngram:vocab=64,order=3", ["vocab=64", "32768", "order=3"]),
    ("ngram:length=4,order=3", ["length=4", "6", "order=3"]),
    ("ngram:vocab=32,order=3,length=6", ["length=6", "a smaller vocab or order"]),
    ("ngram:vocab=64,order=2,length=32", ["length=32", "a smaller vocab"]),
    ("treecall:terminals=65536,nonterminals=4096", ["terminals=65536", "nonterminals=4096"]),
    (
        "treecall:nonterminals=4096,max_rules=64,max_rhs=64",
        ["nonterminals=4096", "max_rules=64", "max_rhs=64"],
    ),
    ("treecall:terminals=1,held_out=0.5", ["held_out=0.5"]),
    # no document of three symbols exists: every production has one symbol beside its head
    ("treecall:max_rhs=2,max_depth=1", ["grammar_seed=0", "max_rhs=2", "has 2"]),
    # every document is too long
    ("treecall:max_rhs=64,max_rules=1,nonterminals=1,max_len=6,grammar_seed=3", ["max_len=6"]),
    # no query is possible: the only terminal is the root, or no tree has a grandparent
    ("treecall:terminals=1", ["query=parent", "500"]),
    ("treecall:max_depth=1,query=grandparent", ["query=grandparent"]),
    # queries exist on one side of the split only
    (
        "treecall:terminals=2,held_out=0.5,max_depth=1,max_rules=1,nonterminals=1,grammar_seed=1",
        ["held_out=0.5"],
    ),
]

# texts that are not specs, names that do not exist
TEXTS: list[tuple[str, list[str]]] = [
    ("", ["name=''"]),
    ("recall:", ["':'"]),
    ("recall:pairs", ["'pairs'", "option=value"]),
    ("recall:pairs=8,", ["','"]),
    ("recall:pairs=8;vocab=64", ["8;vocab=64"]),
    ("recall:pairs=8,pairs=9", ["pairs", "twice"]),
    ("recal", ["'recal'", "did you mean 'recall'"]),
    ("recall:pars=8", ["'pars'", "did you mean 'pairs'"]),
    ("recall:terminals=8", ["'terminals'", "known"]),
    ("ar_16pairs:pairs=0", ["ar_16pairs", "pairs=0"]),
    ("nowhere.py:Task", ["nowhere.py"]),
]

# other arguments of the command line
ARGUMENTS: list[tuple[list[str], list[str]]] = [
    (["sample", "recall", "-n", "0"], ["n=0", "from 1"]),
    (["sample", "recall", "-n", "x"], ["-n"]),
    (["sample", "recall", "-n", "1000000"], ["n=1000000"]),
    (["sample", "recall", "--seed", "-1"], ["seed=-1"]),
    (["sample", "recall", "--split", "tset"], ["split=tset", "train, dev, test"]),
    (["sample", "recall", "--role", "bos"], ["role=bos", "key, value, query"]),
    (["sample", "copy", "--role", "key"], ["role=key", "value"]),
    (["sample", "track", "--role", "value"], ["role=value", "element, query"]),
    (["sample", "recall", "--kind", "shuffle"], ["kind=shuffle", "resample, swap"]),
    (["sample", "recall", "--colour"], ["--colour"]),
    (["sample"], ["TASK"]),
    (["show", "task", "recall", "--train", "0"], ["train=0"]),
    (["show", "task", "recal"], ["'recal'"]),
    (["check", "recal"], ["'recal'"]),
    (["list"], ["KIND"]),
    (["list", "taks"], ["'taks'", "did you mean 'tasks'"]),
    (["list", "sites"], ["'sites'"]),
    (["list", "tasks", "mamba"], ["'mamba'", "no MODEL"]),
    (["show"], ["command"]),
    (["show", "taks", "recall"], ["taks"]),
    (["show", "sites"], ["MODEL"]),
    (["show", "model", "recall"], ["'recall'"]),
    (["show", "sites", "mmaba"], ["'mmaba'", "did you mean 'mamba'"]),
    (["show", "sites", "mamba:backend=cuda"], ["backend=cuda", "auto, torch, numba, mamba_ssm"]),
    (["show", "sites", "attention:positions=maybe"], ["positions=maybe", "true or false"]),
    (["show", "sites", "based:kernel=0"], ["kernel=0", "long"]),
    (["show", "sites", "h3:d_state=3"], ["d_state=3", "even"]),
    (["show", "sites", "hyena:fitler_order=8"], ["'fitler_order'", "did you mean 'filter_order'"]),
    (["show", "sites", "mamba", "--layers", "0"], ["layers=0", "from 1"]),
    (["show", "model", "attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["show", "model", "attention:heads=4,kv_heads=3"], ["kv_heads=3", "divide", "heads=4"]),
    (["show", "model", "transformer:heads=64"], ["rotary=true", "heads=64", "d_model=64"]),
    (["show", "sites", "attention:rotary_base=500.0"], ["rotary_base=500", "rotary=true"]),
    (["show", "sites", "attention:window=-1"], ["window=-1", "from 0"]),
    (["show", "model", "h3:head_dim=3"], ["head_dim=3", "divide", "d_model=64"]),
    (["show", "model", "h3", "--d-model", "9"], ["head_dim=2", "divide", "d_model=9"]),
    (["show", "model", "mamba:backend=mamba_ssm"], ["backend=mamba_ssm", "not installed"]),
    (["show", "model", "delta_net:backend=numba"], ["backend=numba", "auto, torch, fla"]),
    (["check", "mamba:d_conv=99"], ["d_conv=99", "from 0 to 16"]),
    (["check", "base_conv:kernel=short"], ["kernel=short", "from 1 to 64", "long"]),
    (["smaple", "recall"], ["smaple"]),
    (["--colour"], ["--colour"]),
]

# fields of an experiment with invalid values, and what must be named beside them
EXPERIMENT: list[tuple[str, list[str]]] = [
    ("train.lr=0", ["above 0"]),
    ("train.lr=fast", ["a number"]),
    ("train.lr=2000000000", ["1e+09"]),
    ("train.steps=0", ["from 1"]),
    ("train.steps=1.5", ["an integer"]),
    ("train.epochs=-1", ["from 1"]),
    ("train.batch=0", ["from 1"]),
    ("train.documents=-1", ["from 0"]),
    ("train.documents=0", ["steps", "fresh"]),
    ("train.documents=31", ["at least batch=32"]),
    ("train.schedule=step", ["cosine, linear, constant"]),
    ("train.warmup=1.1", ["from 0 to 1"]),
    ("train.stop=95", ["to 1"]),
    ("model.d_model=0", ["from 1"]),
    ("model.layers=x", ["an integer"]),
    ("model.max_len=6", ["at least 7", "recall:pairs=2,vocab=8"]),
    ("eval.documents=0", ["from 1"]),
    ("seed=4294967296", ["below 4294967296"]),
    ("train.learning_rate=1", ["no such field", "train.lr"]),
    ("train.stpes=5", ["no such field", "did you mean 'train.steps'"]),
]
RUNS: list[tuple[list[str], list[str]]] = [
    (["run"], ["TASK and MODEL"]),
    (["run", "recall"], ["recall", "TASK and MODEL"]),
    (["run", "recal", "mamba"], ["task=recal", "did you mean 'recall'"]),
    (["run", "recall:pairs=600", "attention"], ["model.max_len=1024", "at least 1203"]),
    (["run", "recall", "mmaba"], ["model.architecture", "did you mean 'mamba'"]),
    (["run", "recall", "mamba:d_conv=99"], ["model.architecture", "d_conv=99", "from 0 to 16"]),
    (["run", "recall", "attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["run", "recall", "nowhere.py:Mixer"], ["nowhere.py"]),
    (["run", "--file", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    (["run", "--file", "."], ["'.'", "cannot be read"]),
    ([*SMALL, "seed=1", "seed=2"], ["seed", "twice"]),
    ([*SMALL, "train.steps=5", "train.epochs=1"], ["epochs=1", "steps=5", "exclude each other"]),
    ([*SMALL, "train.lr="], ["'train.lr='", "a number"]),
    ([*SMALL, "--threads", "0"], ["threads=0", "from 1"]),
    ([*SMALL, "--save-every", "-1"], ["save_every=-1", "from 0"]),
    ([*SMALL, "--save-every", "x"], ["--save-every"]),
    ([*SMALL, "--log", "wnadb"], ["log=wnadb", "did you mean 'wandb'"]),
    (["runs", "nowhere"], ["'nowhere'", "a folder with runs"]),
    (["results"], ["DIR"]),
]
# interventions that are refused before a run is read
INTERVENE: list[tuple[list[str], list[str]]] = [
    (["intervene"], ["RUN"]),
    (["intervene", "nowhere"], ["RUN='nowhere'", "the folder of a finished run"]),
    (["intervene", ".", "--corrupt", "bos"], ["corrupt=bos", "key, value, query"]),
    (["intervene", ".", "--kind", "shuffle"], ["kind=shuffle", "resample, swap"]),
    (
        ["intervene", ".", "--condition", "resotred"],
        ["condition=resotred", "restored, ablated, control"],
    ),
    (
        ["intervene", ".", "--metric", "likelyhood"],
        ["metric=likelyhood", "likelihood, accuracy, logit, kl, share"],
    ),
    (["intervene", ".", "--metric", "counterfactual"], ["metric=counterfactual", "kind=swap"]),
    (["intervene", ".", "--documents", "0"], ["documents=0", "from 1"]),
    (["intervene", ".", "--documents", "many"], ["--documents", "'many'", "an integer"]),
    (["intervene", ".", "--document", "-1"], ["document=-1", "from 0"]),
    (
        ["intervene", ".", "--document", "3", "--role", "key"],
        ["role=key", "document=3", "all its positions"],
    ),
    (
        ["intervene", ".", "--document", "3", "--condition", "control"],
        ["condition=control", "document=3"],
    ),
    (["intervene", ".", "--memory", "0"], ["memory=0", "from 1"]),
]
# interventions that a run refuses: run, arguments, exit code, what must be named
OF_RUNS: list[tuple[str, list[str], int, list[str]]] = [
    (
        "attention",
        ["--site", "blocks.0.mixer_uot"],
        2,
        ["'blocks.0.mixer_uot'", "did you mean 'blocks.0.mixer_out'?"],
    ),
    ("attention", ["--site", "blocks.2.block_in"], 2, ["'blocks.2.block_in'", "blocks.1.block_in"]),
    ("attention", ["--role", "kye"], 2, ["role='kye'", "did you mean 'key'?"]),
    (
        "attention",
        ["--role", "answer"],
        2,
        ["role='answer'", "bos, divider, key, next_key, query, value"],
    ),
    ("attention", ["--role", "value+x"], 2, ["role='value+x'", "'value+1'"]),
    ("attention", ["--role", "@-1"], 2, ["role='@-1'", "'@5'"]),
    ("diverged", [], 3, ["diverged", "has no weights"]),
    ("damaged", [], 3, ["is damaged", "weights.safetensors", "checksum"]),
    ("empty", [], 3, ["is not a complete run", "checksums.json"]),
]


def table() -> list[tuple[list[str], list[str]]]:
    """List every refusal as (arguments, what the error must name)."""
    rows = []
    for task, option in fields():
        rows.append((["sample", f"{task}:{option}"], [option, "must be", task]))
    rows += [(["sample", text], named) for text, named in TOGETHER + TEXTS]
    rows += [([*SMALL, field], [field, *named]) for field, named in EXPERIMENT]
    return rows + ARGUMENTS + RUNS + INTERVENE


def main() -> None:
    from mecheval.cli import main as mecheval

    codes = {mecheval(arguments) for arguments, _ in table()}
    print(sorted(codes), sorted({"torch", "numba"} & sys.modules.keys()))


if __name__ == "__main__":
    main()
