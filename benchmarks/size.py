"""The sizes of the benchmarks: those of the stored results, and those of a quick run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARCHITECTURES = ("attention", "base_conv", "based", "delta_net", "h3", "hyena", "mamba")
NEWER = (
    "gated_delta_net",
    "gla",
    "hgrn2",
    "kda",
    "mamba2",
    "mamba3",
    "mlstm",
    "retnet",
    "rg_lru",
    "rwkv7",
    "transformer",
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """The sizes of every part. Floors hold for the sizes they were set for, so `QUICK` has fewer
    sizes, not smaller ones."""

    rounds: int = 5
    architectures: tuple[str, ...] = ARCHITECTURES
    # later ones: train steps at one width, growth with the length, the guard; one or a few stand
    # for all that call the same op
    newer: tuple[str, ...] = NEWER
    newer_grown: tuple[str, ...] = ("gated_delta_net", "mamba2", "rg_lru", "attention:window=64")
    newer_guarded: tuple[str, ...] = ("gated_delta_net",)
    # train steps: documents of a batch, pairs of a document, tokens of the vocabulary, widths
    batch: int = 32
    pairs: int = 32
    vocab: int = 8192
    widths: tuple[int, ...] = (16, 64, 256)
    width: int = 64  # of parts that measure one width
    max_len: int = 1024
    # documents drawn by the compiled generator and by the slow ones, evaluated, of a grid
    drawn: int = 100_032
    slowly: int = 500
    evaluated: int = 512
    grid: int = 320
    grid_task: str = "ar_16pairs"  # the paper says 32 pairs; its numbers come from 16
    # sweeps: models and their steps; the scale of figure 3 that is resumed ("paper": 245 runs)
    models: int = 6
    steps: int = 40
    resumed: str = "paper"
    card_steps: int = 3000  # of training on AR for a first card
    # growth: the values of each axis; the others stay as above, but a long batch is smaller
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    long_batch: int = 2
    batches: tuple[int, ...] = (8, 16, 32, 64, 128)
    vocabularies: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)
    grown_widths: tuple[int, ...] = (16, 32, 64, 128, 256)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Size":
        """Return the size that was written as JSON, where tuples are lists."""
        fields: dict[str, Any] = {}
        for name, value in record.items():
            fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)


FULL = Size()
QUICK = Size(
    rounds=1,
    widths=(64,),
    slowly=100,
    evaluated=128,
    grid=64,
    models=2,
    card_steps=300,
    lengths=(256, 512, 1024),
    batches=(8, 32),
    vocabularies=(1024, 4096),
    grown_widths=(32, 64),
)
