"""Measure ratios that fall when an optimisation is lost, with low floors: `make guard`.

optimisation                              lines that fall without it
reads at the query alone                  train steps, evaluation
compiled and chunked ops                  train steps, linear scan
stacked cells that start at their layer   grid
compiled documents                        documents
fused AdamW                               AdamW
flushed denormal numbers                  decayed numbers
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial

import torch

from benchmarks.documents import time_generators
from benchmarks.evaluation import time_evaluation
from benchmarks.measure import time_rounds
from benchmarks.ops import build_contestant
from benchmarks.plain import twins
from benchmarks.ratio import Job, Line, speedup
from benchmarks.size import Size
from benchmarks.steps import Setup
from mecheval.interventions.interchange import interchange
from mecheval.models.edits import put, take
from mecheval.models.inputs import Batch
from mecheval.models.site import patch, record, sites
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.tasks.recall import Recall
from mecheval.training.adamw import AdamW

CAPTION = (
    "Two rounds at most, with a batch of 16. Each floor is about half of the ratio measured when "
    "it was set: a busy machine does not lower a ratio that far, a lost optimisation does. AdamW, "
    "the linear scan and decayed numbers: 50 times."
)
LIMITS = {"rounds": 2, "batch": 16, "slowly": 200, "evaluated": 128}  # a minute in all
REPEATS = 50  # of calls that take less than a millisecond
ROLES = ("key", "value", "query")


def jobs(size: Size) -> Iterator[Job]:
    limits = {name: min(getattr(size, name), most) for name, most in LIMITS.items()}
    size = replace(size, **limits)
    for architecture in (*size.architectures, *size.newer_guarded):
        yield Job(architecture, partial(step_lines, architecture, size), weight=5)
    yield Job("linear scan", partial(scan_lines, size))
    yield Job("evaluation", partial(evaluation_lines, size), weight=3)
    yield Job("grid", partial(grid_lines, size), weight=3)
    yield Job("AdamW", partial(optimiser_lines, size), weight=3)
    yield Job("documents", partial(document_lines, size), weight=3)
    yield Job("denormals", partial(denormal_lines, size))


def step_lines(architecture: str, size: Size) -> Iterator[Line]:
    setup = Setup(architecture, size.width, size)
    what = f"{architecture} d={size.width}"
    yield _speedup(what, "plain", setup.ours(), setup.plain(twins()), size)


def scan_lines(size: Size) -> Iterator[Line]:
    """Compare the op alone: it is too small a part of a train step to be missed there."""
    ours, ref = (build_contestant("linear scan", asdict(size), name) for name in ("ours", "ref"))
    yield _speedup("linear scan", "ref", partial(_repeat, ours), partial(_repeat, ref), size)


def evaluation_lines(size: Size) -> Iterator[Line]:
    times = time_evaluation("attention", size, {"all logits": {}})
    yield speedup("attention evaluated", "all logits", times["ours"], times["all logits"])


def document_lines(size: Size) -> Iterator[Line]:
    times = time_generators(Recall(), size)
    yield speedup("recall documents", "twin", times["ours"], times["twin"])


def grid_lines(size: Size) -> Iterator[Line]:
    """Compare a grid with one pass per cell that computes all logits."""
    setup = Setup("attention", size.width, size)
    model, task, n = setup.model().requires_grad_(False), setup.task, size.batch
    names = [name for name in sites(model) if name.endswith(("block_in", "mixer_out"))]
    docs = task.documents(0, "test", 0, n)
    clean, corrupt = Batch.of(docs), Batch.of(task.corrupt(docs, "key", 0).documents)

    def cell_by_cell() -> None:
        with record(model, names) as activations:
            model(clean.tokens)
        for name in names:
            for role in ROLES:
                where = torch.from_numpy(docs.roles[role]).long()
                value = take(activations[name], where, 1)
                with patch(model, {name: put(value, where)}):
                    model(corrupt.tokens)[torch.arange(n), corrupt.at[:, 0]].softmax(dim=-1)

    ours = partial(interchange, model, task, names, ROLES, corrupt="key", documents=n)
    yield _speedup("attention grid", "cell by cell", ours, cell_by_cell, size)


def optimiser_lines(size: Size) -> Iterator[Line]:
    setup = Setup("attention", size.width, size)
    ours, theirs = setup.model(), setup.model()
    for model in (ours, theirs):
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
    fused = AdamW(ours.parameters(), 1e-3)
    default = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.0)
    updates = partial(_repeat, fused.step), partial(_repeat, default.step)
    yield _speedup("AdamW", "torch's default", *updates, size)


def denormal_lines(size: Size) -> Iterator[Line]:
    """Divide numbers too small to be normal: some processors multiply them as fast as others."""
    tiny, normal = torch.full((2**18,), 1e-40), torch.ones(2**18)
    ours, theirs = partial(_repeat, lambda: tiny / 3), partial(_repeat, lambda: normal / 3)
    yield _speedup("decayed numbers", "normal numbers", ours, theirs, size)


def _repeat(call: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        call()


def _speedup(
    what: str, against: str, ours: Callable[[], object], theirs: Callable[[], object], size: Size
) -> Line:
    with prepared(Settings()):
        times = time_rounds({"ours": ours, "theirs": theirs}, size.rounds)
    return speedup(what, against, times["ours"], times["theirs"])
