"""Ratios that fall when an optimisation is lost, each with a threshold of about half of what it was: `make guard`.

reads at the query alone     train steps, evaluation        cells stacked, from their layer on    grid
compiled and chunked ops     train steps                    compiled documents                    documents
fused AdamW                  AdamW                          no denormal numbers                   decayed numbers
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks import documents, evaluation
from benchmarks.measure import interleaved
from benchmarks.plain import twins
from benchmarks.ratio import Job, Line, times_as_fast
from benchmarks.size import Size
from benchmarks.steps import Arena
from mecheval.interventions.interchange import interchange
from mecheval.models.edits import put, take
from mecheval.models.inputs import Batch
from mecheval.models.site import patch, record, sites
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.tasks.recall import Recall
from mecheval.training.adamw import AdamW

CAPTION = (
    "Two rounds at most, with a batch of 16. The floor of each is about half of what it was: a busy machine keeps it, "
    "a lost optimisation does not. AdamW and decayed numbers: 50 times."
)
LIMITS = {"rounds": 2, "batch": 16, "slowly": 200, "evaluated": 128}  # a minute in all
REPEATS = 50  # of what takes no millisecond
ROLES = ("key", "value", "query")


def jobs(size: Size) -> Iterator[Job]:
    size = replace(size, **{name: min(getattr(size, name), most) for name, most in LIMITS.items()})
    for architecture in size.architectures:
        yield Job(architecture, partial(steps, architecture, size), weight=5)
    for name, lines in (
        ("evaluation", evaluated),
        ("grid", grid),
        ("AdamW", updates),
        ("documents", drawn),
    ):
        yield Job(name, partial(lines, size), weight=3)
    yield Job("denormals", partial(decayed, size))


def steps(architecture: str, size: Size) -> Iterator[Line]:
    arena = Arena(architecture, size.width, size)
    yield _ratio(
        f"{architecture} d={size.width}", "plain", arena.ours(), arena.plain(twins()), size
    )


def evaluated(size: Size) -> Iterator[Line]:
    times = evaluation.contest("attention", size, {"all logits": {}})
    yield times_as_fast("attention evaluated", "all logits", times["ours"], times["all logits"])


def drawn(size: Size) -> Iterator[Line]:
    times = documents.contest(Recall(), size)
    yield times_as_fast("recall documents", "twin", times["ours"], times["twin"])


def grid(size: Size) -> Iterator[Line]:
    """Every site of the stream and role, against a whole pass with all logits for each cell."""
    arena = Arena("attention", size.width, size)
    model, task, n = arena.model().requires_grad_(False), arena.task, size.batch
    names = [name for name in sites(model) if name.endswith(("block_in", "mixer_out"))]
    docs = task.documents(0, "test", 0, n)
    clean, wrong = (Batch.of(found) for found in (docs, task.corrupt(docs, "key", 0).documents))

    def cell_by_cell() -> None:
        with record(model, names) as seen:
            model(clean.tokens)
        for name in names:
            for role in ROLES:
                where = torch.from_numpy(docs.roles[role]).long()
                value = take(seen[name], where, 1)
                with patch(model, {name: put(value, where)}):
                    model(wrong.tokens)[torch.arange(n), wrong.at[:, 0]].softmax(dim=-1)

    ours = partial(interchange, model, task, names, ROLES, corrupt="key", documents=n)
    yield _ratio("attention grid", "cell by cell", ours, cell_by_cell, size)


def updates(size: Size) -> Iterator[Line]:
    """The optimiser alone."""
    arena = Arena("attention", size.width, size)
    ours, theirs = arena.model(), arena.model()
    for model in (ours, theirs):
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
    default = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.0)
    fused, plain = (
        partial(_updated, optimiser) for optimiser in (AdamW(ours.parameters(), 1e-3), default)
    )
    yield _ratio("AdamW", "torch's default", fused, plain, size)


def _updated(optimiser: AdamW | torch.optim.AdamW) -> None:
    for _ in range(REPEATS):
        optimiser.step()


def decayed(size: Size) -> Iterator[Line]:
    """Numbers too small to be normal, which must be as quick as others. Divided, since some processors multiply both
    alike."""
    tiny, normal = torch.full((2**18,), 1e-40), torch.ones(2**18)
    ours, theirs = (partial(_divided, numbers) for numbers in (tiny, normal))
    yield _ratio("decayed numbers", "normal numbers", ours, theirs, size)


def _divided(numbers: torch.Tensor) -> None:
    for _ in range(REPEATS):
        numbers / 3


def _ratio(
    what: str, against: str, ours: Callable[[], object], theirs: Callable[[], object], size: Size
) -> Line:
    with prepared(Settings()):
        times = interleaved({"ours": ours, "theirs": theirs}, size.rounds)
    return times_as_fast(what, against, times["ours"], times["theirs"])
