"""Builds the folders and files that fuzzed command lines name, good ones and hostile ones.

Everything is a template: a case works on copies, so that it can be repeated alone.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from support.bounded import forked
from support.made_runs import behaviour, experiment, grid, sweep

TINY = "task = 'recall:pairs=3,vocab=16'\nseed = {seed}\n"
TINY += "[model]\narchitecture = '{architecture}'\nd_model = 8\nmax_len = 32\n"
TINY += "[train]\ndocuments = 64\nbatch = 4\nsteps = 4\nlr = {lr}\nwarmup = 0.0\n"
TINY += "[eval]\ndocuments = 16\ngrid_documents = 8\nevery = 2\n"
RUNS = (("attention", 0, 1e-3), ("attention", 1, 1e-3), ("mamba", 0, 1e-3), ("mamba", 1, 1e-3))
RUNS += (("mamba", 2, 1e9),)  # it diverges
RECIPE = """
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import recipe

FIELDS = {"task": "recall:pairs=3,vocab=16", "model.architecture": "attention"}
FIELDS |= {"model.max_len": 32, "model.d_model": 8, "train.documents": 64, "train.batch": 4}
FIELDS |= {"eval.documents": 16, "eval.grid_documents": 16, "train.steps": 2}

@recipe("mine")
def mine(scale):
    "Two tiny runs."
    for seed in range(2):
        yield Experiment.of({**FIELDS, "seed": seed})
"""
STUDY = '[[study]]\nrecipe = "mine"\nscale = "quick"\nwhy = "It is first."\n'
QUEUES = {
    "two.toml": STUDY + STUDY.replace("quick", "small"),
    "seeds.toml": STUDY + "only = { seed = 1 }\n",
    "fields.toml": STUDY + 'name = "wider"\nfields = { model.d_model = 16, train.lr = 1e-3 }\n',
    "fields_unnamed.toml": STUDY + "fields = { model.d_model = 16 }\n",
    "unknown.toml": STUDY.replace("mine", "minee"),
    "twice.toml": STUDY + STUDY + "only = { seed = 1 }\n",
    "wrong.toml": "[study]\nrecipe = 3\n",
    "empty.toml": "",
    "only.toml": STUDY + "only = { seed = 99 }\n",
    "typed.toml": STUDY + "seeds = true\nonly = { train.lr = [1, {}] }\nfields = 1e400\n",
    "name.toml": STUDY + 'name = "../kept"\n' + STUDY.replace('"quick"', "1979-05-27"),
}
MIXER = """
import torch
from mecheval import register_mixer

@register_mixer("my_mixer")
class MyMixer(torch.nn.Module):
    "A mixer of one matrix."
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.line = torch.nn.Linear(d_model, d_model)
    def forward(self, x):
        return BODY
"""
PLUGINS = {
    "good.py": MIXER.replace("BODY", "self.line(x)"),
    "recipe.py": RECIPE,
    "forward_raises.py": MIXER.replace("BODY", "self.no_such_attribute"),
    "forward_shape.py": MIXER.replace("BODY", "self.line(x)[:, :1]"),
    "forward_nan.py": MIXER.replace("BODY", "self.line(x) * float('nan')"),
    "syntax.py": "def (:\n",
    "value.py": "raise ValueError('no')\n",
    "exits.py": "raise SystemExit(7)\n",
    "stops.py": "raise KeyboardInterrupt\n",
    "generator.py": "raise GeneratorExit\n",
    "base.py": "raise BaseException('bare')\n",
    "recursion.py": "def f():\n    f()\nf()\n",
    "memory.py": "[bytearray(1 << 34) for _ in range(99)]\n",
    "surrogate.py": "raise ValueError('\\udcff')\n",
    "empty.py": "",
    "twice.py": "from mecheval import register_mixer\n@register_mixer('mamba')\nclass M: pass\n",
}


def build(room: Path) -> Path:
    """Write all templates into an empty folder, by the command line where it can."""
    import mecheval.runs.run  # noqa: F401, here and not in every child

    for name, text in PLUGINS.items():
        (room / name).write_text(text)
    (room / "nul.py").write_bytes(b"x = '\0'\n")
    (room / "latin.py").write_bytes(b"x = '\xff'\n")
    for number, (architecture, seed, lr) in enumerate(RUNS):
        text = TINY.format(architecture=architecture, seed=seed, lr=lr)
        (room / f"run{number}.toml").write_text(text)
        require(room, "run", "--file", f"run{number}.toml", "--out", "runs")
    (room / "bad.toml").write_text("task = 3\nnonsense")
    (room / "deep.toml").write_text("a = " + "[" * 5000)
    (room / "binary.toml").write_bytes(bytes(range(256)) * 20)
    text = TINY.format(architecture="hybrid:rg_lru|mamba+attention", seed=0, lr=1e-3)
    (room / "hybrid.toml").write_text(text)
    require(room, "run", "--file", "hybrid.toml", "--out", "hybrids")
    (hybrid,) = (path for path in (room / "hybrids").iterdir() if path.is_dir())
    shutil.move(hybrid, room / "HYBRID")
    finished = sorted(path for path in (room / "runs").iterdir() if path.is_dir())
    shutil.copytree(finished[0], room / "RUN")
    fabricate_sweep(room / "sweep")
    require(room, "keep", "runs", "--out", "kept")
    require(room, "keep", "sweep", "--out", "kept_sweep")
    shutil.copytree(room / "runs", room / "damaged")
    first = min((room / "damaged").iterdir())
    with (first / "rows.jsonl").open("a") as file:
        file.write("x\n")
    shutil.copytree(room / "kept", room / "kept_damaged")
    (room / "kept_damaged" / "rows.parquet").write_bytes(b"PAR1 not really PAR1")
    shutil.copytree(room / "runs", os.fsdecode(bytes(room) + b"/not-utf8-\xff"))
    write_queues(room)
    (room / "empty").mkdir()
    (room / "locked").mkdir()
    (room / "locked").chmod(0o555)
    (room / "loop").symlink_to("loop")
    (room / "dangling").symlink_to("nowhere")
    (room / "linked").symlink_to("runs")
    os.mkfifo(room / "fifo")
    (room / "file.bin").write_bytes(bytes(range(256)))
    (room / "file.txt").write_text("text\n")
    return room


def write_queues(room: Path) -> None:
    """Write files of studies, some beside kept studies that are damaged or of other runs."""
    for place in ("queue", "queue/damaged", "queue/mixed"):
        (room / place).mkdir()
        for name, text in QUEUES.items():
            (room / place / name).write_text(text)
    shutil.copytree(room / "kept_damaged", room / "queue" / "damaged" / "other")
    shutil.copytree(room / "kept_sweep", room / "queue" / "mixed" / "mine-quick")


def fabricate_sweep(folder: Path) -> None:
    """Write a finished sweep of a recipe that has a figure and claims, without training."""
    experiments = [
        experiment(name, seed=seed) for name in ("attention", "mamba") for seed in (0, 1)
    ]
    shares = {"key": 0.1, "value": 0.9, "next_key": 0.0, "query": 0.0}
    sweep(folder, "figure5", experiments, lambda _: behaviour(0.9, 0.8) + grid(0.8, 0.1, shares))


def require(room: Path, *words: str) -> None:
    end = forked(words, room)
    if end.code:
        raise RuntimeError(f"mecheval {' '.join(words)}: {end.err.decode(errors='replace')}")


def copy(source: Path, target: Path, copy_file: Callable[..., object] = shutil.copy2) -> None:
    """Copy anything: a folder, a file, a link as a link, a FIFO as a new one."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir()
        for inner in source.iterdir():
            copy(inner, target / inner.name, copy_file)
        shutil.copystat(source, target)
    elif source.is_fifo():
        os.mkfifo(target)
    else:
        copy_file(source, target)


def clear(folder: Path) -> None:
    """Remove a folder, also where a case made one that may not be written."""
    for path in (folder, folder / "locked"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what is where: mode, size and time of change of everything below a folder."""
    entries = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118
            facts = os.lstat(path)
            times = 0 if name in folders else facts.st_mtime_ns
            entries[path] = (facts.st_mode, 0 if name in folders else facts.st_size, times)
    return entries
