"""Fault injection: a warm parent forks a child for each life of a run and kills it or its disk.

python tests/support/fault_injection.py --kills 1000   SIGKILL at random moments of all runs
python tests/support/fault_injection.py --points done  SIGKILL and disk errors at every write

Between two lives every file must be whole, and the last life must leave the bytes of an undisturbed
run. Prints JSON; the exit code is 1 if that is not so. The parent never calls backward: after that,
torch refuses to in a child.
"""

import argparse
import builtins
import errno
import gc
import io
import json
import logging
import os
import pkgutil
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

TASKS = ("recall:pairs=3,vocab=16", "treecall:terminals=6,nonterminals=6,max_depth=3,max_len=24")
ARCHITECTURES = ("attention", "base_conv", "based", "delta_net", "h3:d_state=8", "hyena", "mamba")
SMALL = {"model.d_model": 8, "model.max_len": 32, "train.documents": 64, "train.batch": 4}
SMALL |= {"eval.documents": 16, "eval.grid_documents": 16}
OWN = ("provenance.json", "checksums.json")  # different in every run of the same experiment
WAYS = ("call", "torn", "time")  # a kill before a call, in the middle of a write, from outside


def small(task: str = TASKS[0], architecture: str = "attention", **other: Any) -> Any:
    from mecheval.runs.experiment import Experiment

    fields = {
        "task": task,
        "model.architecture": architecture,
        **SMALL,
        "train.steps": 12,
        "eval.every": 3,
    }
    return Experiment.of(
        fields | {name.replace("_", ".", 1): value for name, value in other.items()}
    )


@dataclass
class Disk:
    """Counts every call that changes files and fails at one of them, or from it on.

    `fail` receives the number and name of a call; it kills the process, raises or returns.
    """

    fail: Callable[[int, str], None] = lambda number, call: None
    torn: bool = False  # half of a write reaches the file
    calls: list[str] = field(default_factory=list)

    def install(self, put: Callable[[Any, str, Any], None] = setattr) -> None:
        for name in (
            "fsync",
            "replace",
            "rename",
            "unlink",
            "remove",
            "rmdir",
            "mkdir",
            "write",
            "truncate",
            "link",
        ):
            put(os, name, self._counted(name, getattr(os, name)))
        put(os, "open", self._opening(os.open))
        for home in (io, builtins):
            put(home, "open", self._writing(home.open))

    def _count(self, call: str) -> None:
        self.calls.append(call)
        self.fail(len(self.calls), call)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._count(name)
            return real(*arguments, **keywords)

        return call

    def _opening(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                self._count("open")
            return real(path, flags, *arguments, **keywords)

        return call

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real(file, mode, *arguments, **keywords)
            assert mode in ("wb", "xb"), "the run writes bytes"
            if not isinstance(file, int):
                self._count("open")
            return Torn(real(file, mode, *arguments, **keywords).detach(), self)

        return call


class Torn(io.BufferedWriter):
    """Writes half of the content if the disk fails in the middle."""

    def __init__(self, raw: io.RawIOBase, disk: Disk) -> None:
        super().__init__(raw)
        self._disk = disk

    def write(self, content: Any) -> int:
        half = len(content) // 2 if self._disk.torn else 0
        super().write(content[:half])
        self.flush()
        self._disk._count("write")
        return half + super().write(content[half:])


def kill_at(wanted: int, calls: Collection[str] = ()) -> Callable[[int, str], None]:
    """Kill at a call, or at the first of some kind from it on."""

    def fail(number: int, call: str) -> None:
        if number >= wanted and (not calls or call in calls):
            os.kill(os.getpid(), signal.SIGKILL)

    return fail


def error_at(wanted: int, number: int) -> Callable[[int, str], None]:
    """Raise an OSError at a call; a full disk stays full, a broken one fails once."""

    def fail(at: int, call: str) -> None:
        stays = number == errno.ENOSPC and at > wanted and call in ("open", "write", "mkdir")
        if at == wanted or stays:
            raise OSError(number, os.strerror(number))

    return fail


class Stopped(BaseException):
    """An exception that no handler of errors catches."""


class Reaper:
    """A watcher that ends a run after a step, before it is saved, and notes where the run began."""

    def __init__(self, step: int | None = None) -> None:
        self.step, self.began = step, -1

    def start(self, experiment: Any, step: int) -> None:
        self.began = step

    def log(self, step: int, loss: float, row: Any) -> None:
        if step == self.step:
            raise Stopped

    def finish(self, status: str) -> None:
        pass


def flip(content: bytes, place: int) -> bytes:
    """Flip one bit."""
    changed = bytearray(content)
    changed[place] ^= 1 << place % 8
    return bytes(changed)


def truncate(content: bytes, place: int) -> bytes:
    return content[:place]


def spread(content: bytes, most: int) -> list[int]:
    """Return up to `most` places in the content; the first and the last are among them."""
    wanted = min(most, len(content))
    return sorted({place * (len(content) - 1) // max(wanted - 1, 1) for place in range(wanted)})


class Complaint(logging.Handler):
    """Fails on any warning: a kill or a full disk damages no checkpoint."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage())


@dataclass
class Death:
    """The end of a life: an exit code, or −9. A killed process reports no calls."""

    code: int
    calls: list[str]
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def live(experiment: Any, out: Path, disk: Disk | None, after: float | None = None) -> Death:
    """Live one life of a run in a child, killed from outside after some seconds if `after` is set.

    Without `disk` nothing is counted.
    """
    start = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os._exit(_carried_out(experiment, out, disk, writing))
    os.close(writing)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return Death(
            os.waitstatus_to_exitcode(status), told.read().split(), time.monotonic() - start
        )


def _carried_out(experiment: Any, out: Path, disk: Disk | None, tell: int) -> int:
    from mecheval.core.errors import StoreError
    from mecheval.runs.experiment import Settings
    from mecheval.runs.run import run

    real_write = os.write
    if disk:
        disk.install()
    try:
        run(experiment, out, Settings(save_every=0.0))
    except StoreError:
        return StoreError.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    real_write(tell, " ".join(disk.calls if disk else ()).encode())
    return 0


def result(folder: Path) -> dict[str, bytes]:
    """Return the files that are the same whenever the same experiment is run."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in OWN}


def broken(out: Path) -> list[str]:
    """List torn files; temporary files and tensors without a note are fine."""
    from mecheval.runs.checkpoint import load_checkpoint
    from mecheval.runs.files import Damaged, read_json

    found = []
    for path in [path for path in out.rglob("*") if path.is_file()]:
        try:
            if path.suffix == ".json":
                read_json(path)
            elif path.suffix == ".jsonl":
                [json.loads(line) for line in path.read_text().splitlines()]
            elif path.suffix == ".safetensors":
                _tensors(path.read_bytes())
        except (Damaged, ValueError) as error:
            found.append(f"{path.relative_to(out)}: {error}")
    for folder in out.glob("*.partial/checkpoints"):
        found += load_checkpoint(folder)[1]
    return found


def _tensors(content: bytes) -> None:
    from mecheval.runs.files import unpack_tensors

    unpack_tensors(content)


def leftovers(experiment: Any, out: Path, wanted: dict[str, bytes]) -> list[str]:
    """List what a finished run left behind, lacks or wrote differently."""
    folder, names = out / experiment.name, {*wanted, *OWN}
    if {path.name for path in out.iterdir()} != {experiment.name}:
        return [f"there are {sorted(path.name for path in out.iterdir())}"]
    if {path.name for path in folder.iterdir()} != names:
        return [f"it has {sorted(path.name for path in folder.iterdir())}"]
    return [
        f"{name} differs" for name, content in result(folder).items() if content != wanted[name]
    ]


def steps_saved(experiment: Any, out: Path) -> int:
    """Return the newest saved step; the checkpoints go when the run is finished."""
    from mecheval.core.errors import StoreError
    from mecheval.runs.checkpoint import newest_step
    from mecheval.runs.finished import Run

    for folder in out.glob("*"):
        try:
            Run(folder).verify()
            return experiment.train.total
        except StoreError:
            return newest_step(folder / "checkpoints")
    return 0


@dataclass
class Kept:
    """An experiment with the files of an undisturbed life and its end."""

    experiment: Any
    wanted: dict[str, bytes]
    death: Death

    @classmethod
    def of(cls, experiment: Any, room: Path) -> "Kept":
        out = room / "alone"
        live(experiment, out, None)  # whose kernels are compiled and cached: no writes of the run's
        shutil.rmtree(out)
        death = live(experiment, out, Disk())
        assert death.code == 0, experiment
        wanted = result(out / experiment.name)
        assert not leftovers(experiment, out, wanted)
        shutil.rmtree(out)
        return cls(experiment, wanted, death)

    def end(self, out: Path) -> list[str]:
        """Let it live to its end and list what is wrong."""
        death = live(self.experiment, out, Disk())
        found = (
            [f"exit code {death.code}"]
            if death.code
            else leftovers(self.experiment, out, self.wanted)
        )
        shutil.rmtree(out)
        return found


def kills(wanted: int, seed: int, room: Path) -> dict[str, Any]:
    """Kill runs at random moments, again and again, evenly among tasks and architectures."""
    pairs = [(task, architecture) for task in TASKS for architecture in ARCHITECTURES]
    report: dict[str, Any] = {"combinations": {}, "problems": []}
    for place, (task, architecture) in enumerate(pairs):
        layers = 2 if architecture in ("base_conv", "based") else 1  # two kinds of mixers by turns
        kept = Kept.of(small(task, architecture, model_layers=layers), room)
        quota = (place + 1) * wanted // len(pairs) - place * wanted // len(pairs)
        name = f"{task.partition(':')[0]} {architecture.partition(':')[0]}"
        rng = random.Random(f"{seed} {name}")
        ways, folders, problems = Counter({way: 0 for way in WAYS}), 0, []
        while ways.total() < quota:
            folders += 1
            found, died = childhood(kept, rng, room / f"{place}-{folders}")
            ways += died
            problems += [f"{name}, folder {folders}: {problem}" for problem in found]
        report["combinations"][name] = {
            "kills": ways.total(),
            "folders": folders,
            "ways": dict(ways),
        }
        report["problems"] += problems
    report["kills"] = sum(found["kills"] for found in report["combinations"].values())
    return report


def childhood(kept: Kept, rng: random.Random, out: Path) -> tuple[list[str], Counter[str]]:
    """Follow one folder from its first life to its last."""
    died: Counter[str] = Counter()
    saved = 0
    for way in _turns(rng):
        moment = rng.random() * rng.choice((0.3, 1.0))  # of a whole life; early and late ones
        number = 1 + int(moment * len(kept.death.calls))
        disk = {
            "call": Disk(kill_at(number)),
            "torn": Disk(kill_at(number, calls=("write",)), torn=True),
            "time": Disk(),
        }[way]
        death = live(
            kept.experiment, out, disk, moment * kept.death.seconds if way == "time" else None
        )
        if not death.killed:
            found = (
                [f"exit code {death.code}"]
                if death.code
                else leftovers(kept.experiment, out, kept.wanted)
            )
            shutil.rmtree(out, ignore_errors=True)
            return found, died
        died[way] += 1
        if problems := broken(out):
            return [f"after a kill by {way}: {problem}" for problem in problems], died
        before, saved = saved, steps_saved(kept.experiment, out)
        if saved < before:
            return [f"step {before} was saved and is lost"], died
    raise AssertionError("turns do not end")


def _turns(rng: random.Random) -> Iterator[str]:
    for _ in count():
        yield rng.choice(WAYS)


FAULTS = {
    "SIGKILL": lambda number: Disk(kill_at(number)),
    "SIGKILL in a write": lambda number: Disk(kill_at(number), torn=True),
    "ENOSPC": lambda number: Disk(error_at(number, errno.ENOSPC)),
    "EIO": lambda number: Disk(error_at(number, errno.EIO)),
    "EIO in a write": lambda number: Disk(error_at(number, errno.EIO), torn=True),
}


RATES = {"done": 1e-3, "diverged": 1e9}
ENDS = {0: "survived", 3: "refused", -signal.SIGKILL: "killed"}


def points(status: str, room: Path) -> dict[str, Any]:
    """Inject every fault at every call that changes files, in a run that ends with a status."""
    kept = Kept.of(
        small(train_steps=3, eval_every=1, train_lr=RATES[status], train_warmup=0.0), room
    )
    assert json.loads(kept.wanted["status.json"])["content"]["status"] == status
    calls = kept.death.calls
    ends, problems = {fault: Counter() for fault in FAULTS}, []
    for fault, make in FAULTS.items():
        for number, call in enumerate(calls, start=1):
            if call == "write" or not fault.endswith("in a write"):
                end, found = suffer(kept, make(number), room / "run")
                ends[fault][end] += 1
                problems += [f"{fault} at call {number}, {call}: {problem}" for problem in found]
    faults = sum(each.total() for each in ends.values())
    return {
        "points": len(calls),
        "calls": Counter(calls),
        "faults": faults,
        "ends": ends,
        "problems": problems,
    }


def suffer(kept: Kept, disk: Disk, out: Path) -> tuple[str, list[str]]:
    """Live once with a failing disk and once more; return how the first ended and what is wrong."""
    death = live(kept.experiment, out, disk)
    found = [] if death.code in ENDS else [f"exit code {death.code}"]
    found += broken(out) if out.exists() else []
    return ENDS.get(death.code, "failed"), found + kept.end(out)


def warm_up() -> None:
    """Import and compile all that a child needs; gradients are set by hand."""
    import numpy as np
    import torch

    from mecheval.metrics.behaviour import behaviour
    from mecheval.models.language_model import LanguageModel
    from mecheval.models.ops import kernels
    from mecheval.models.ops.kernels import selective_scan
    from mecheval.runs.files import pack_tensors, unpack_tensors
    from mecheval.runs.provenance import Clock, made_by, provenance, timestamp
    from mecheval.training.batches import Batches
    from mecheval.training.train import Training, gradient_norm

    import_module("mecheval.runs.run")
    for info in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        import_module(info.name)  # numba tries out on import whether it may write its cache
    torch.set_num_threads(1)
    for task in TASKS:
        for architecture in ARCHITECTURES:
            experiment = small(task, architecture, model_layers=2)
            training = Training.start(
                LanguageModel(experiment.model, experiment.task.vocab_size, 0), experiment.train
            )
            behaviour(training.model, Batches(experiment.task, 0, experiment.train)[0]).rows(
                "test", 0
            )
            for parameter in training.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            gradient_norm(training.model.parameters())
            training.optimiser.step()
            training.restore(unpack_tensors(pack_tensors(training.tensors())), training.numbers())
    x, A, B, D = (np.zeros(shape, np.float32) for shape in ((1, 2, 4), (4, 4), (1, 2, 4), (4,)))
    _, backward = selective_scan.kernels(selective_scan.block_width(4))
    backward(x, x, A, B, B, D, x, x.copy(), x.copy(), A.copy(), B.copy(), B.copy(), D.copy())
    provenance(made_by("cpu", 1, {}), Clock(), timestamp())
    logging.getLogger("mecheval").addHandler(Complaint())
    gc.collect()
    gc.freeze()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=0, metavar="N", help="how many, at random moments"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--points", choices=RATES, help="every fault at every write, of a run that ends so"
    )
    asked = parser.parse_args()
    memory = Path("/dev/shm")  # a kill leaves the same on every file system; this one is fast
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as room:
        start = time.monotonic()
        warm_up()
        report = {"warm_seconds": time.monotonic() - start}
        if asked.kills:
            report |= kills(asked.kills, asked.seed, Path(room))
        if asked.points:
            report |= points(asked.points, Path(room))
        report["seconds"] = time.monotonic() - start
    print(json.dumps(report, indent=1))
    return 1 if report.get("problems") else 0


if __name__ == "__main__":
    sys.exit(main())
