"""Measure a train step against its plain form, other packages and the machine's limit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.flops import count_flops, gemm, gemm_rate
from benchmarks.measure import Times
from benchmarks.plain import Ops, plain_step, published, twins, usual_convolutions
from benchmarks.ratio import Job, Line, cpu_share, skipped, speedup
from benchmarks.rivals import (
    fla_chunks,
    fla_recurrence,
    fla_recurrences,
    mambapy_model,
    mambapy_scan,
    transformers_model,
)
from benchmarks.rounds import run_contest
from benchmarks.size import NEWER, Size
from benchmarks.transformers_mixers import MIXERS, with_mixers_of_transformers
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
    "A train step (forward, backward, gradient norm, AdamW) of 2 layers. Every contestant has a "
    "process of its own: in a shared one, those with large temporaries would profit from the heap "
    "of the others. *plain* is what the authors' code does: logits at all positions, cross-entropy "
    "over all of them with the label −100 at tokens that are no query, torch's default AdamW, "
    "every op replaced by its `_ref` twin. *conv1d and FFT*: the plain form with the convolutions "
    "of zoology. Only we flush denormal numbers and keep freed memory; the authors' code and those "
    "packages do not. "
    "*published scan*: the plain form with the sequential scan that state-spaces/mamba publishes; "
    "*mambapy's scan*: with mambapy's; *mambapy's mixer* and *transformers* are the modules of "
    "those packages: for Mamba a whole model, for the others their mixer in the blocks of the "
    "plain form, with weights of its own (Qwen3-Next's for gated_delta_net, Kimi Linear's for kda, "
    "xLSTM's for mlstm, RecurrentGemma's for rg_lru, Llama's for transformer). *fla's recurrence* "
    "and *fla's chunks*: the plain form with fla's delta rule, or its naive recurrences, in plain "
    "torch. *delta_net* is the ratio of our time to that of our DeltaNet, so smaller is better. "
    "*plain: losses* is the difference of both losses after 4 updates, *plain: "
    "float64* the same in double precision with 4 documents. "
    "*GEMM peak* is the share of the machine's limit, one core, float32: matrix products, the "
    "causal half of attention's products, triangular solves and Fourier transforms, and for each "
    "token, channel and state of the scan 7 operations forward and 19 backward (4 and 10 in the "
    "last layer, which is read at one token), and for each token and number of the recurrence's "
    "memory 4 and 10, with 1 and 4 more if it decays and 4 and 12 if it erases (not in the last "
    "layer), over the rate of a product of 1,024 × 1,024 matrices in the same rounds. The linear "
    "scan of rg_lru, norms, activations, gates, short convolutions and the optimiser are not "
    "counted."
)
UPDATES = 4
Step = Callable[[], float]  # trains on one batch and returns the loss


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        for d_model in size.widths:
            setup = Setup(architecture, d_model, size)
            weight = 20 + size.rounds * (4 + d_model / 16)
            yield Job(f"{architecture} d={d_model}", setup.lines, weight)
    for architecture in size.newer:
        setup = Setup(architecture, size.width, size)
        weight = 20 + size.rounds * (4 + size.width / 16)
        yield Job(f"{architecture} d={size.width}", setup.lines, weight)


@dataclass(frozen=True)
class Setup:
    """The model, the task and the batches that every contestant trains."""

    architecture: str
    d_model: int
    size: Size
    dtype: torch.dtype = torch.float32

    def lines(self) -> Iterator[Line]:
        what = f"{self.architecture} d={self.d_model}"
        contest = run_contest(
            build_contestant,
            [*self.contestants(), "gemm"],
            self.size.rounds,
            warmup=UPDATES + 1,
            architecture=self.architecture,
            d_model=self.d_model,
            size=asdict(self.size),
        )
        with prepared(Settings()):
            work = count_flops(self.ours())
        ours, product = contest.times.pop("ours"), contest.times.pop("gemm")
        for name, theirs in contest.times.items():
            compare = cpu_share if name == "delta_net" else speedup
            yield compare(what, name, ours, theirs)
        difference = abs(contest.values["ours"] - contest.values["plain"])
        yield Line(what, "plain: losses", difference, "apart")
        yield Line(what, "plain: float64", self.difference_in_double(), "apart")
        yield _peak_share(what, work, ours, product)
        for name, reason in contest.missing.items():
            yield skipped(what, name, reason)

    def contestants(self) -> dict[str, Callable[[], Step]]:
        """Return a function for each contestant that builds its step, or raises `Missing`."""
        plain = twins()
        return {"ours": self.ours, "plain": lambda: self.plain(plain), **self._rivals(plain)}

    def difference_in_double(self) -> float:
        """Return the difference of our loss and the plain form's, with few documents.

        In single precision AdamW's first update, g / |g|, turns the rounding of a gradient near
        zero into a whole step.
        """
        small = replace(self.size, batch=min(self.size.batch, 4))
        exact = replace(self, size=small, dtype=torch.float64)
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
                "mambapy's mixer": lambda: self._train_plainly(mambapy_model(self.model())),
                "transformers": self._transformers,
            }
        if self.architecture == "delta_net":
            return {
                "fla's recurrence": lambda: self.plain({**plain, delta_rule: fla_recurrence()}),
                "fla's chunks": lambda: self.plain({**plain, delta_rule: fla_chunks()}),
            }
        if self.architecture == "attention":
            return {}
        if self.architecture in NEWER:
            return self._rivals_of_newer(plain)
        return {"conv1d and FFT": lambda: self.plain({**plain, **usual_convolutions()})}

    def _rivals_of_newer(self, plain: Ops) -> dict[str, Callable[[], Step]]:
        rivals: dict[str, Callable[[], Step]]
        rivals = {"delta_net": replace(self, architecture="delta_net").ours}
        if self.architecture != "transformer":
            rivals["fla's recurrence"] = lambda: self.plain({**plain, **fla_recurrences()})
        if self.architecture in MIXERS:
            rivals["transformers"] = lambda: self._train_plainly(
                with_mixers_of_transformers(self.model(), self.task.max_len)
            )
        return rivals

    def ours(self) -> Step:
        """Return one step of the training loop of mecheval."""
        batches = self.batches
        training = Training.start(self.model(), batches.config)
        steps = train(training, batches.config, batches, lambda model: {"loss": 0.0}, every=10**9)

        def step() -> float:
            next(steps)
            return training.loss

        return step

    def plain(self, ops: Ops) -> Step:
        return self._train_plainly(self.model(), ops)

    def _train_plainly(self, model: LanguageModel, ops: Ops | None = None) -> Step:
        return plain_step(model, model.parameters(), self.batches, ops or {})

    def _transformers(self) -> Step:
        model = transformers_model(self.model())

        def logits(tokens: Tensor) -> Tensor:
            output: Tensor = model(tokens).logits
            return output

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


def build_contestant(
    architecture: str, d_model: int, size: Mapping[str, Any], name: str
) -> Callable[[], object]:
    """Return the step of one contestant, or a large matrix product."""
    if name == "gemm":
        return gemm()
    return Setup(architecture, d_model, Size.of(size)).contestants()[name]()


def _peak_share(what: str, work: int, ours: Times, product: Times) -> Line:
    """Return the share of what the machine can do, as the product of the same round shows it.

    A clock that changes between rounds changes both.
    """

    def share(step_ms: float, product_ms: float) -> float:
        return 100 * work / step_ms / 1e6 / gemm_rate(product_ms)

    shares = [share(*round_ms) for round_ms in zip(ours.cpu, product.cpu, strict=True)]
    step_ms, product_ms = (times.spreads()["cpu_ms"].median for times in (ours, product))
    ratio, spreads = share(step_ms, product_ms), ours.spreads()
    note = f"{work / 1e9:.2f} GFLOP at {gemm_rate(product_ms):.0f} GFLOP/s"
    return Line(what, "GEMM peak", ratio, "%", min(shares), max(shares), spreads, note=note)
