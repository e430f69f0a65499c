"""Cards that are refused: the content of `my.py`, the subject, and what the error must name."""

HEAD = "from torch import nn\n\n\n"
CLASS = HEAD + "class Mine(nn.Module):\n"
INIT = CLASS + "    def __init__(self, {}):\n        super().__init__()\n"
PLAIN = INIT.format("d_model, max_len{more}")
UNTYPED = ["Mine", "'window' must have a type", "my.py:5"]
SIGNATURE = ["Mine", "(d_model, max_len, **options)", "my.py:5"]
FAILED = ["cannot be built", "no", "my.py:5"]
BROKEN: list[tuple[str, str, list[str]]] = [
    ("x = 1\n\n1 / 0\n", "my.py:Mine", ["my.py:3", "ZeroDivisionError", "division by zero"]),
    ("import torch\nimport no_such_module\n", "my.py:Mine", ["my.py:2", "ModuleNotFoundError"]),
    ("x = 1\ndef broken(:\n", "my.py:Mine", ["my.py:2", "SyntaxError"]),
    ("def f():\n    raise SystemExit(0)\n\nf()\n", "my.py:Mine", ["my.py:2", "SystemExit"]),
    (PLAIN.format(more=""), "my.py:Mien", ["my.py", "no class 'Mien'", "did you mean 'Mine'?"]),
    (PLAIN.format(more=""), "my.py:nn", ["my.py", "no class 'nn'", "(known: Mine)"]),
    (PLAIN.format(more=""), "my.py:", ["name=''", "letters"]),
    (PLAIN.format(more=""), "my.py:Mine:window=4", ["Mine", "no option 'window'"]),
    (PLAIN.format(more=", window=None"), "my.py:Mine:window=4", UNTYPED),
    (PLAIN.format(more=", window"), "my.py:Mine", UNTYPED),
    (PLAIN.format(more=", window: nn.Module = None"), "my.py:Mine:window=relu", UNTYPED),
    (PLAIN.format(more=", window: 'No' = 4"), "my.py:Mine", ["annotations", "my.py:5", "'No'"]),
    (PLAIN.format(more=", window=4"), "my.py:Mine:window=x", ["Mine", "window=x", "an integer"]),
    (INIT.format("width"), "my.py:Mine", [*SIGNATURE, "(width)"]),
    (INIT.format("d_model"), "my.py:Mine", [*SIGNATURE, "(d_model)"]),
    (CLASS + "    pass\n", "my.py:Mine", ["Mine", "cannot be built", "my.py:4"]),
    (f"{PLAIN.format(more='')}        raise RuntimeError('no')\n", "my.py:Mine", FAILED),
    ("class Mine:\n    documents = None\n", "my.py:Mine", ["must be a mixer", "it is a task"]),
]
NAMES: list[tuple[list[str], list[str]]] = [
    (["card"], ["SUBJECT"]),
    (["card", "mmaba"], ["'mmaba'", "did you mean 'mamba'"]),
    (["card", "mamba:d_conv=99"], ["d_conv=99", "from 0 to 16"]),
    (["card", "mamba:d_covn=2"], ["'d_covn'", "did you mean 'd_conv'"]),
    (["card", "attention:heads=3"], ["heads=3", "divide", "d_model=64"]),
    (["card", "recall"], ["'recall'"]),
    (["card", ""], ["name=''"]),
    (["card", "nowhere.py:Mixer"], ["no such file: nowhere.py"]),
    (["card", "mamba", "--plugin", "nowhere.py"], ["no such file: nowhere.py"]),
    (["card", "mamba", "--scale", "smal"], ["'smal'", "did you mean 'small'"]),
    (["card", "mamba", "--workers", "0"], ["workers=0", "from 1"]),
    (["card", "mamba", "--workers", "many"], ["--workers", "'many'", "an integer"]),
    (["card", "mamba", "--colour"], ["--colour"]),
]
BAD = {
    "Leaks": "must not see the future",
    "KeepsState": "keeps state between calls",
    "MixesTheBatch": "must treat the rows of a batch independently",
    "DeadSite": "site unused is dead",
    "NotANumber": "must return finite numbers",
}
