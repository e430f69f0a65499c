"""How large the benchmarks are: as they are kept, or a short look."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARCHITECTURES = ("attention", "base_conv", "based", "delta_net", "h3", "hyena", "mamba")


@dataclass(frozen=True, kw_only=True)
class Size:
    """What every part measures. A floor is asked of the sizes it was set for, so a shorter look has fewer of these and
    the same sizes."""

    rounds: int = 5
    architectures: tuple[str, ...] = ARCHITECTURES
    # a train step: documents of a batch, pairs of a document, tokens of the vocabulary, and the widths
    batch: int = 32
    pairs: int = 32
    vocab: int = 8192
    widths: tuple[int, ...] = (16, 64, 256)
    width: int = 64  # where one is enough
    max_len: int = 1024
    # documents: drawn by the compiled generator, by the slow ones, evaluated, intervened in
    drawn: int = 100_032
    slowly: int = 500
    evaluated: int = 512
    grid: int = 320
    grid_task: str = "ar_16pairs"  # the paper says 32 pairs; its numbers come from 16
    # a sweep: models of so many steps; and the scale of figure 3 that is resumed, which at "paper" has 245 runs
    models: int = 6
    steps: int = 40
    resumed: str = "paper"
    # growth: the axes, each with the others as above but for the length, where a batch is few documents
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    long_batch: int = 2
    batches: tuple[int, ...] = (8, 16, 32, 64, 128)
    vocabularies: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)
    grown_widths: tuple[int, ...] = (16, 32, 64, 128, 256)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Size":
        """From JSON, which has lists."""
        fields: dict[str, Any] = {
            n: tuple(value) if isinstance(value, list) else value for n, value in record.items()
        }
        return cls(**fields)


FULL = Size()
QUICK = Size(
    rounds=1,
    widths=(64,),
    slowly=100,
    evaluated=128,
    grid=64,
    models=2,
    lengths=(256, 512, 1024),
    batches=(8, 32),
    vocabularies=(1024, 4096),
    grown_widths=(32, 64),
)
