"""Inputs that cannot be meant, each with what its error line must name. As a script: what was imported."""

import sys

WHOLE = ["0", "-1", "1.5", "many", "true", "nan", "inf", "1000.0", '"8"', "99999999999999999999"]
SHARES = ["-0.1", "1", "1.0", "2", "nan", "inf", "-inf", "some", "true"]
WORDS = ["up", "1", "true", '"key "', "0.5"]


def fields() -> list[tuple[str, str]]:
    """Every option of both tasks with values of the wrong type or out of range: (task, option=value)."""
    whole = {
        "recall": ["pairs", "min_pairs", "vocab", "queries"],
        "treecall": ["terminals", "nonterminals", "max_depth", "max_rhs", "max_rules", "max_len"],
    }
    rows = [(task, f"{name}={value}") for task, names in whole.items() for name in names for value in WHOLE]
    rows += [(task, f"held_out={value}") for task in whole for value in SHARES]
    rows += [(task, f"query={value}") for task in whole for value in WORDS]
    rows += [("treecall", f"head={value}") for value in WORDS]
    rows += [("treecall", f"grammar_seed={value}") for value in ("-1", "0.5", "x", "true", "nan", "4294967296")]
    rows += [
        ("treecall", f"terminal_weight={value}") for value in ("0", "-1", "nan", "inf", "heavy", "true", "10000000.0")
    ]
    rows += [("recall", f"vocab={value}") for value in ("1", "7", "8191", "8388608")]
    rows += [("treecall", "max_rhs=1"), ("treecall", "max_len=5"), ("treecall", "max_len=32768")]
    return rows


# settings whose fields are fine one by one, and the fields that the error must name
TOGETHER: list[tuple[str, list[str]]] = [
    ("recall:pairs=33,vocab=64", ["pairs=33", "32", "vocab=64"]),
    ("recall:pairs=5000", ["pairs=5000", "4096"]),
    ("recall:pairs=8,min_pairs=9", ["min_pairs=9", "pairs=8"]),
    ("recall:pairs=8,queries=9", ["queries=9", "8"]),
    ("recall:pairs=8,min_pairs=2,queries=3", ["queries=3", "2"]),
    ("recall:vocab=2,pairs=1,held_out=0.5", ["held_out=0.5"]),
    ("recall:vocab=20,pairs=4,held_out=0.01", ["held_out=0.01"]),
    ("recall:vocab=20,pairs=4,held_out=0.99", ["held_out=0.99"]),
    ("recall:pairs=1,vocab=2000,held_out=0.001", ["held_out=0.001", "test"]),
    ("recall:pairs=4,vocab=2000,held_out=0.999", ["held_out=0.999", "train"]),
    ("recall:pairs=8,queries=8,vocab=64,held_out=0.2", ["held_out=0.2", "test"]),
    ("treecall:terminals=65536,nonterminals=4096", ["terminals=65536", "nonterminals=4096"]),
    ("treecall:nonterminals=4096,max_rules=64,max_rhs=64", ["nonterminals=4096", "max_rules=64", "max_rhs=64"]),
    ("treecall:terminals=1,held_out=0.5", ["held_out=0.5"]),
    ("treecall:terminals=10,held_out=0.01", ["held_out=0.01"]),
    ("treecall:terminals=10,held_out=0.99", ["held_out=0.99"]),
    # no document of three symbols exists: every production has one symbol beside its head and nothing deeper
    ("treecall:max_rhs=2,max_depth=1", ["grammar_seed=0", "max_rhs=2", "has 2"]),
    ("treecall:max_rhs=2,max_depth=1,nonterminals=1", ["grammar_seed=0", "max_rhs=2"]),
    ("treecall:max_rhs=2,max_depth=1,head=left,query=child", ["grammar_seed=0", "max_rhs=2"]),
    # every document is too long
    ("treecall:max_rhs=64,max_rules=1,nonterminals=1,max_len=6,grammar_seed=3", ["max_len=6"]),
    # nothing can be asked: one terminal whose rightmost occurrence is the root, trees without grandparents
    ("treecall:terminals=1", ["query=parent", "500"]),
    ("treecall:terminals=1,query=grandparent", ["query=grandparent"]),
    ("treecall:terminals=1,query=sibling", ["query=sibling"]),
    ("treecall:max_depth=1,query=grandparent", ["query=grandparent"]),
    ("treecall:max_depth=1,query=grandparent,head=left", ["query=grandparent"]),
    ("treecall:nonterminals=1,query=grandparent", ["query=grandparent"]),
    # almost everything is rejected
    ("treecall:max_len=6,max_rhs=64,max_rules=1", ["max_len=6"]),
    # … or can be asked only on one side of the split
    ("treecall:terminals=2,held_out=0.5,max_depth=1,max_rules=1,nonterminals=1,grammar_seed=1", ["held_out=0.5"]),
]

# texts that are no specs, names that do not exist
TEXTS: list[tuple[str, list[str]]] = [
    ("", ["name=''"]),
    ("re call", ["name='re call'"]),
    ("recall:", ["':'"]),
    ("recall:pairs", ["'pairs'", "option=value"]),
    ("recall:pairs=", ["pairs="]),
    ("recall:=8", ["'=8'"]),
    ("recall:pairs=8,", ["','"]),
    ("recall:pairs=8,,vocab=64", ["option=value"]),
    ("recall:pairs=8;vocab=64", ["8;vocab=64"]),
    ("recall:pairs=8,pairs=9", ["pairs", "twice"]),
    ('recall:query="key', ["option=value"]),
    ("recal", ["'recal'", "did you mean 'recall'"]),
    ("Recall", ["'Recall'", "recall"]),
    ("mamba", ["'mamba'", "known"]),
    ("ar_8pairs", ["'ar_8pairs'", "did you mean"]),
    ("recall:pars=8", ["'pars'", "did you mean 'pairs'"]),
    ("recall:terminals=8", ["'terminals'", "known"]),
    ("treecall:pairs=8", ["'pairs'", "known"]),
    ("treecall:maxdepth=8", ["'maxdepth'", "did you mean 'max_depth'"]),
    ("atr:pairs=8", ["atr", "'pairs'"]),
    ("ar_16pairs:pairs=0", ["ar_16pairs", "pairs=0"]),
    ("nowhere.py:Task", ["nowhere.py"]),
    ("nowhere.py:", ["nowhere.py"]),
]

# other words of the command line: arguments, and what must be named
ARGUMENTS: list[tuple[list[str], list[str]]] = [
    (["sample", "recall", "-n", "0"], ["n=0", "from 1"]),
    (["sample", "recall", "-n", "-3"], ["n=-3", "from 1"]),
    (["sample", "recall", "-n", "x"], ["-n"]),
    (["sample", "recall", "-n", "1000000"], ["n=1000000"]),
    (["sample", "recall", "--seed", "-1"], ["seed=-1"]),
    (["sample", "recall", "--seed", "x"], ["--seed"]),
    (["sample", "recall", "--seed", "1e400"], ["--seed"]),
    (["sample", "recall", "--split", "tset"], ["split=tset", "train, dev, test"]),
    (["sample", "recall", "--start", "-1"], ["start=-1"]),
    (["sample", "recall", "--role", "bos"], ["role=bos", "key, value, query"]),
    (["sample", "recall", "--kind", "shuffle"], ["kind=shuffle", "resample, swap"]),
    (["sample", "recall", "--colour"], ["--colour"]),
    (["sample"], ["TASK"]),
    (["describe", "recall", "--train", "0"], ["train=0"]),
    (["describe", "recall", "--evaluation", "-5"], ["evaluation=-5"]),
    (["describe", "recal"], ["'recal'"]),
    (["check", "recal"], ["'recal'"]),
    (["check", "recall:pairs=0"], ["pairs=0"]),
    (["list"], ["WHAT"]),
    (["list", "taks"], ["taks"]),
    (["list", "tasks", "--plugin", "nowhere.py"], ["nowhere.py"]),
    (["list", "sites"], ["MODEL"]),
    (["list", "tasks", "mamba"], ["MODEL"]),
    (["list", "sites", "mmaba"], ["'mmaba'", "did you mean 'mamba'"]),
    (["list", "sites", "mamba:d_conv=-1"], ["mamba", "d_conv=-1", "from 0 to 16"]),
    (["list", "sites", "mamba:backend=cuda"], ["backend=cuda", "auto, torch, numba, mamba_ssm"]),
    (["list", "sites", "attention:heads=0"], ["heads=0", "from 1"]),
    (["list", "sites", "attention:positions=maybe"], ["positions=maybe", "true or false"]),
    (["list", "sites", "based:kernel=0"], ["kernel=0", "long"]),
    (["list", "sites", "h3:d_state=3"], ["d_state=3", "even"]),
    (["list", "sites", "hyena:fitler_order=8"], ["'fitler_order'", "did you mean 'filter_order'"]),
    (["list", "sites", "mamba", "--layers", "0"], ["layers=0", "from 1"]),
    (["describe", "mamba:d_state=0"], ["d_state=0", "from 1"]),
    (["describe", "attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["describe", "delta_net:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["describe", "based:heads=65"], ["heads=65", "divide", "d_model=64"]),
    (["describe", "linear_attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["describe", "h3:head_dim=3"], ["head_dim=3", "divide", "d_model=64"]),
    (["describe", "h3:d_state=7"], ["d_state=7", "even"]),
    (["describe", "h3", "--d-model", "9"], ["head_dim=2", "divide", "d_model=9"]),
    (["describe", "linear_attention:feature_dim=0"], ["feature_dim=0", "from 1 to 256"]),
    (["describe", "mamba:backend=mamba_ssm"], ["backend=mamba_ssm", "not installed"]),
    (["describe", "delta_net:backend=fla"], ["backend=fla", "not installed"]),
    (["describe", "delta_net:backend=numba"], ["backend=numba", "auto, torch, fla"]),
    (["check", "mamba:d_conv=99"], ["d_conv=99", "from 0 to 16"]),
    (["check", "attention:heads=3"], ["heads=3", "divide", "d_model=16"]),
    (["check", "hyena:skip=1"], ["skip=1", "true or false"]),
    (["check", "base_conv:kernel=short"], ["kernel=short", "from 1 to 64", "long"]),
    (["check", "mamba:d_covn=2"], ["'d_covn'", "did you mean 'd_conv'"]),
    (["describe", "mamba", "--d-model", "0"], ["d_model=0", "from 1"]),
    (["describe", "mamba", "--layers", "-2"], ["layers=-2", "from 1"]),
    (["smaple", "recall"], ["smaple"]),
    (["--colour"], ["--colour"]),
]

SMALL = ["run", "recall:pairs=2,vocab=8", "attention"]
# fields of an experiment with values that they cannot have, and what must be named beside them
EXPERIMENT: list[tuple[str, list[str]]] = [
    ("train.lr=0", ["above 0"]),
    ("train.lr=-1", ["above 0"]),
    ("train.lr=nan", ["a number"]),
    ("train.lr=inf", ["a number"]),
    ("train.lr=true", ["a number"]),
    ("train.lr=fast", ["a number"]),
    ("train.lr=2000000000", ["1e+09"]),
    ("train.steps=0", ["from 1"]),
    ("train.steps=1.5", ["an integer"]),
    ("train.steps=10.0", ["an integer"]),
    ("train.steps=true", ["an integer"]),
    ("train.epochs=-1", ["from 1"]),
    ("train.batch=0", ["from 1"]),
    ("train.batch=200000", ["65536"]),
    ("train.documents=-1", ["from 0"]),
    ("train.documents=0", ["steps", "fresh"]),
    ("train.documents=31", ["at least batch=32"]),
    ("train.schedule=step", ["cosine, linear, constant"]),
    ("train.warmup=1.1", ["from 0 to 1"]),
    ("train.warmup=some", ["from 0 to 1"]),
    ("train.stop=0", ["above 0"]),
    ("train.stop=95", ["to 1"]),
    ("model.d_model=0", ["from 1"]),
    ("model.layers=x", ["an integer"]),
    ("model.layers=257", ["256"]),
    ("model.max_len=0", ["from 1"]),
    ("model.max_len=6", ["at least 7", "recall:pairs=2,vocab=8"]),
    ("model.init.linear=0", ["above 0"]),
    ("model.init.embedding=inf", ["a number"]),
    ("eval.documents=0", ["from 1"]),
    ("eval.every=0", ["from 1"]),
    ("eval.every=often", ["an integer"]),
    ("seed=-1", ["from 0"]),
    ("seed=4294967296", ["below 4294967296"]),
    ("seed=0.5", ["an integer"]),
    ("model.heads=2", ["no such field"]),
    ("train.learning_rate=1", ["no such field", "train.lr"]),
    ("lr=1", ["no such field"]),
    ("train.stpes=5", ["no such field", "did you mean 'train.steps'"]),
]
RUNS: list[tuple[list[str], list[str]]] = [
    (["run"], ["TASK and MODEL"]),
    (["run", "recall"], ["recall", "TASK and MODEL"]),
    (["run", "recall", "mamba", "attention"], ["recall mamba attention", "TASK and MODEL"]),
    (["run", "train.lr=1"], ["TASK and MODEL"]),
    (["run", "recal", "mamba"], ["task=recal", "did you mean 'recall'"]),
    (["run", "recall:pairs=0", "mamba"], ["task=recall:pairs=0", "from 1"]),
    (["run", "recall:pairs=33,vocab=64", "mamba"], ["pairs=33", "vocab=64"]),
    (["run", "recall:pairs=600", "attention"], ["model.max_len=1024", "at least 1203"]),
    (["run", "recall", "mmaba"], ["model.architecture", "did you mean 'mamba'"]),
    (["run", "recall", "mamba:d_conv=99"], ["model.architecture", "d_conv=99", "from 0 to 16"]),
    (["run", "recall", "mamba:d_covn=2"], ["'d_covn'", "did you mean 'd_conv'"]),
    (["run", "recall", "attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["run", "recall", "attention:heads=2", "model.d_model=9"], ["heads=2", "divide", "d_model=9"]),
    (["run", "recall", "nowhere.py:Mixer"], ["nowhere.py"]),
    (["run", "nowhere.py:Task", "mamba"], ["nowhere.py"]),
    (["run", "recall", "mamba", "--plugin", "nowhere.py"], ["nowhere.py"]),
    (["run", "recall", "mamba", "--file", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    (["run", "--file", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    (["run", "--file", "."], ["'.'", "cannot be read"]),
    ([*SMALL, "seed=1", "seed=2"], ["seed", "twice"]),
    ([*SMALL, "task=atr"], ["task", "twice"]),
    ([*SMALL, "model.architecture=mamba"], ["model.architecture", "twice"]),
    ([*SMALL, "train.steps=5", "train.epochs=1"], ["epochs=1", "steps=5", "both"]),
    ([*SMALL, "train.documents=0", "train.epochs=1"], ["documents=0", "steps"]),
    ([*SMALL, "train.lr="], ["'train.lr='", "a number"]),
    ([*SMALL, "--threads", "0"], ["threads=0", "from 1"]),
    ([*SMALL, "--threads", "x"], ["--threads"]),
    ([*SMALL, "--save-every", "-1"], ["save_every=-1", "from 0"]),
    ([*SMALL, "--save-every", "nan"], ["save_every=nan", "from 0"]),
    ([*SMALL, "--save-every", "x"], ["--save-every"]),
    ([*SMALL, "--log", "wnadb"], ["log=wnadb", "did you mean 'wandb'"]),
    ([*SMALL, "--colour"], ["--colour"]),
    (["runs"], ["DIR"]),
    (["runs", "nowhere"], ["'nowhere'", "a folder with runs"]),
    (["results"], ["DIR"]),
    (["results", "nowhere"], ["'nowhere'", "a folder with runs"]),
    (["results", "nowhere", "--csv"], ["'nowhere'", "a folder with runs"]),
    (["results", ".", "--colour"], ["--colour"]),
]
# interventions that are refused before a run is looked at
INTERVENE: list[tuple[list[str], list[str]]] = [
    (["intervene"], ["RUN"]),
    (["intervene", "nowhere"], ["RUN='nowhere'", "the folder of a finished run"]),
    (["intervene", ".", "--corrupt", "bos"], ["corrupt=bos", "key, value, query"]),
    (["intervene", ".", "--kind", "shuffle"], ["kind=shuffle", "resample, swap"]),
    (["intervene", ".", "--condition", "resotred"], ["condition=resotred", "restored, ablated, control"]),
    (["intervene", ".", "--metric", "likelyhood"], ["metric=likelyhood", "likelihood, accuracy, logit, kl, share"]),
    (["intervene", ".", "--metric", "counterfactual"], ["metric=counterfactual", "kind=swap"]),
    (["intervene", ".", "--documents", "0"], ["documents=0", "from 1"]),
    (["intervene", ".", "--documents", "-3"], ["documents=-3", "from 1"]),
    (["intervene", ".", "--documents", "many"], ["--documents", "'many'", "an integer"]),
    (["intervene", ".", "--document", "-1"], ["document=-1", "from 0"]),
    (["intervene", ".", "--document", "1.5"], ["--document", "'1.5'", "an integer"]),
    (["intervene", ".", "--document", "3", "--role", "key"], ["role=key", "document=3", "all its positions"]),
    (["intervene", ".", "--document", "3", "--condition", "control"], ["condition=control", "document=3"]),
    (["intervene", ".", "--memory", "0"], ["memory=0", "from 1"]),
    (["intervene", ".", "--memory", "2000000"], ["memory=2000000", "1048576"]),
    (["intervene", ".", "--memory", "lots"], ["--memory", "'lots'", "an integer"]),
    (["intervene", ".", "--plugin", "nowhere.py"], ["nowhere.py"]),
    (["intervene", ".", "--colour"], ["--colour"]),
]
# and those that a run refuses: which run, what is asked, the exit code, what must be named
OF_RUNS: list[tuple[str, list[str], int, list[str]]] = [
    ("attention", ["--site", "blocks.0.mixer_uot"], 2, ["'blocks.0.mixer_uot'", "did you mean 'blocks.0.mixer_out'?"]),
    ("attention", ["--site", "blocks.2.block_in"], 2, ["'blocks.2.block_in'", "blocks.1.block_in"]),
    ("attention", ["--site", ""], 2, ["no site ''", "embed_out"]),
    ("attention", ["--site", "blocks.0.mixer.conv_out"], 2, ["'blocks.0.mixer.conv_out'", "blocks.0.mixer.head_out"]),
    ("attention", ["--role", "kye"], 2, ["role='kye'", "did you mean 'key'?"]),
    ("attention", ["--role", "answer"], 2, ["role='answer'", "bos, divider, key, next_key, query, value"]),
    ("attention", ["--role", "value+x"], 2, ["role='value+x'", "'value+1'"]),
    ("attention", ["--role", "@-1"], 2, ["role='@-1'", "'@5'"]),
    ("attention", ["--role", "key", "--role", "@"], 2, ["role='@'"]),
    ("diverged", [], 3, ["diverged", "has no weights"]),
    ("damaged", [], 3, ["is damaged", "weights.safetensors", "checksum"]),
    ("empty", [], 3, ["is no whole run", "checksums.json"]),
]


def table() -> list[tuple[list[str], list[str]]]:
    """All of them as (arguments, what the error must name)."""
    rows = [(["sample", f"{task}:{option}"], [option, "must be", task]) for task, option in fields()]
    rows += [(["sample", text], named) for text, named in TOGETHER + TEXTS]
    rows += [([*SMALL, field], [field, *named]) for field, named in EXPERIMENT]
    return rows + ARGUMENTS + RUNS + INTERVENE


def main() -> None:
    from mecheval.cli import main as mecheval

    codes = {mecheval(arguments) for arguments, _ in table()}
    print(sorted(codes), sorted({"torch", "numba"} & sys.modules.keys()))


if __name__ == "__main__":
    main()
