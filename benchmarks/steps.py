"""A train step of every architecture and width, against its plain form, packaged rivals and the machine's limit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.flops import flops, gemm, gemm_rate
from benchmarks.measure import Times
from benchmarks.plain import Ops, plain_step, published, twins, usual_convolutions
from benchmarks.ratio import Job, Line, skipped, times_as_fast
from benchmarks.rivals import (
    fla_chunks,
    fla_recurrence,
    mambapy_model,
    mambapy_scan,
    transformers_model,
)
from benchmarks.rounds import contest
from benchmarks.size import Size
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.ops.delta_rule import delta_rule
from mecheval.models.ops.selective_scan import selective_scan
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.tasks.recall import Recall
from mecheval.training.batches import Batches
from mecheval.training.config import TrainConfig
from mecheval.training.train import Training, train

CAPTION = (
    "A train step (forward, backward, gradient norm, AdamW) of 2 layers. Everybody has a process of their own, for in "
    "a common one those with large temporaries would profit from a heap that others have warmed. *plain* is what the "
    "authors' code does: logits at all positions, cross-entropy over all positions with the label −100 where nothing "
    "is asked, torch's default AdamW, every op by its `_ref` twin. *conv1d and FFT*: the plain form with convolutions "
    "as zoology has them. Nobody but us flushes denormal numbers and keeps freed memory: neither do the authors' code "
    "and those packages. "
    "*published scan*: the plain form with the sequential scan as state-spaces/mamba publishes it; *mambapy's scan*: "
    "with mambapy's; *mambapy's mixer* and *transformers* are those packages' own modules. *fla's recurrence* and "
    "*fla's chunks*: the plain form with what fla has of the delta rule in plain torch. *plain: losses* is how far the "
    "losses of both are apart after 4 updates, *plain: float64* the same in double precision, of 4 documents. "
    "*GEMM peak* is the share of the machine's limit, one core, float32: matrix products, attention's products (the "
    "half that is causal), triangular solves and Fourier transforms, and for each token, channel and state of the scan "
    "7 operations forward and 19 backward (4 and 10 in the last layer, which is read at one token), over the rate of a "
    "product of 1,024 × 1,024 matrices in the same rounds. Norms, activations, gates, short convolutions and the "
    "optimiser are not counted."
)
UPDATES = 4
Step = Callable[[], float]  # trains once, tells the loss


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        for d_model in size.widths:
            arena = Arena(architecture, d_model, size)
            yield Job(
                f"{architecture} d={d_model}",
                arena.lines,
                weight=20 + size.rounds * (4 + d_model / 16),
            )


@dataclass(frozen=True)
class Arena:
    """Everybody who trains the same model on the same documents."""

    architecture: str
    d_model: int
    size: Size
    dtype: torch.dtype = torch.float32

    def lines(self) -> Iterator[Line]:
        what = f"{self.architecture} d={self.d_model}"
        given = {
            "architecture": self.architecture,
            "d_model": self.d_model,
            "size": asdict(self.size),
        }
        names = [*self.contestants(), "gemm"]
        found = contest(contestant, names, self.size.rounds, warm=UPDATES + 1, **given)
        with prepared(Settings()):
            work = flops(self.ours())
        ours, product = found.times.pop("ours"), found.times.pop("gemm")
        for name, theirs in found.times.items():
            yield times_as_fast(what, name, ours, theirs)
        yield Line(
            what, "plain: losses", abs(found.values["ours"] - found.values["plain"]), "apart"
        )
        yield Line(what, "plain: float64", self.apart_in_double(), "apart")
        yield _share(what, work, ours, product)
        yield from (skipped(what, name, reason) for name, reason in found.absent.items())

    def contestants(self) -> dict[str, Callable[[], Step]]:
        """How each is made; `Missing` if it is not here."""
        plain = twins()
        return {"ours": self.ours, "plain": lambda: self.plain(plain), **self._rivals(plain)}

    def apart_in_double(self) -> float:
        """Of our losses and the plain form's, with few documents. In single precision AdamW's first update, g / |g|,
        turns the rounding of a gradient near zero into a whole step."""
        exact = replace(
            self, size=replace(self.size, batch=min(self.size.batch, 4)), dtype=torch.float64
        )
        with prepared(Settings()):
            ours, plain = (
                [step() for _ in range(UPDATES + 1)][-1]
                for step in (exact.ours(), exact.plain(twins()))
            )
        return abs(ours - plain)

    def _rivals(self, plain: Ops) -> dict[str, Callable[[], Step]]:
        if self.architecture == "mamba":
            return {
                "published scan": lambda: self.plain({**plain, **published()}),
                "mambapy's scan": lambda: self.plain({**plain, selective_scan: mambapy_scan()}),
                "mambapy's mixer": lambda: self._plainly(mambapy_model(self.model())),
                "transformers": self._transformers,
            }
        if self.architecture == "delta_net":
            return {
                "fla's recurrence": lambda: self.plain({**plain, delta_rule: fla_recurrence()}),
                "fla's chunks": lambda: self.plain({**plain, delta_rule: fla_chunks()}),
            }
        if self.architecture == "attention":
            return {}
        return {"conv1d and FFT": lambda: self.plain({**plain, **usual_convolutions()})}

    def ours(self) -> Step:
        """The training loop itself, one step at a time."""
        batches = self.batches
        training = Training.start(self.model(), batches.config)
        steps = train(training, batches.config, batches, lambda model: {"loss": 0.0}, every=10**9)

        def step() -> float:
            next(steps)
            return training.loss

        return step

    def plain(self, ops: Ops) -> Step:
        return self._plainly(self.model(), ops)

    def _plainly(self, model: LanguageModel, ops: Ops | None = None) -> Step:
        return plain_step(model, model.parameters(), self.batches, ops or {})

    def _transformers(self) -> Step:
        model = transformers_model(self.model())

        def logits(tokens: Tensor) -> Tensor:
            found: Tensor = model(tokens).logits
            return found

        return plain_step(logits, model.parameters(), self.batches, {})

    def model(self) -> LanguageModel:
        config = ModelConfig(
            architecture=self.architecture, d_model=self.d_model, max_len=self.size.max_len
        )
        return LanguageModel(config, self.task.vocab_size).to(self.dtype)

    @property
    def task(self) -> Recall:
        return Recall(pairs=self.size.pairs, vocab=self.size.vocab)

    @property
    def batches(self) -> Batches:
        config = TrainConfig(
            documents=0, steps=10**9, batch=self.size.batch, schedule="constant", warmup=0.0
        )
        return Batches(self.task, 0, config)


def contestant(
    architecture: str, d_model: int, size: Mapping[str, Any], name: str
) -> Callable[[], object]:
    """One of an arena, or a large matrix product, for a process of its own."""
    return (
        gemm()
        if name == "gemm"
        else Arena(architecture, d_model, Size.of(size)).contestants()[name]()
    )


def _share(what: str, work: int, ours: Times, product: Times) -> Line:
    """Of what the machine could do in the same rounds: where its clock goes up and down, it does so for both."""

    def share(step: float, one: float) -> float:
        return 100 * work / step / 1e6 / gemm_rate(one)

    shares = [share(*of_a_round) for of_a_round in zip(ours.cpu, product.cpu, strict=True)]
    step, one = (times.spreads()["cpu_ms"].median for times in (ours, product))
    note = f"{work / 1e9:.2f} GFLOP at {gemm_rate(one):.0f} GFLOP/s"
    return Line(
        what,
        "GEMM peak",
        share(step, one),
        "%",
        min(shares),
        max(shares),
        ours.spreads(),
        note=note,
    )
