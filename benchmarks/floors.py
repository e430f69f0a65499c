"""The floor of each ratio, by part, subject and contestant; a line without one has no verdict."""

from benchmarks.ratio import Floor
from benchmarks.size import FULL, NEWER

_STEPS = {"attention": 14, "base_conv": 10, "based": 10, "delta_net": 10, "h3": 5, "hyena": 6}
_RECURRENT = tuple(name for name in NEWER if name != "transformer")
_IN_TRANSFORMERS = ("gated_delta_net", "kda", "mamba2", "mlstm", "rg_lru", "transformer")
_LINEAR = ("mamba", "delta_net", "hyena", "base_conv", "h3", *FULL.newer_grown)
# about half of the measured ratio: a lost optimisation falls below that, a busy machine does not
_GUARD = {
    ("attention d=64", "plain"): 4.5,
    ("base_conv d=64", "plain"): 8.0,
    ("based d=64", "plain"): 5.5,
    ("delta_net d=64", "plain"): 6.0,
    ("gated_delta_net d=64", "plain"): 6.0,
    ("h3 d=64", "plain"): 9.0,
    ("hyena d=64", "plain"): 8.0,
    ("mamba d=64", "plain"): 7.0,
    ("attention evaluated", "all logits"): 4.5,
    ("attention grid", "cell by cell"): 6.0,
    ("AdamW", "torch's default"): 2.0,
    ("linear scan", "ref"): 3.0,
    ("recall documents", "twin"): 300.0,
    ("decayed numbers", "normal numbers"): 0.7,
}

FLOORS: dict[tuple[str, str, str], Floor] = {
    ("documents", "ar_32pairs", "twin"): Floor(100),
    ("documents", "atr", "twin"): Floor(300),
    **{("steps", f"{name} d=64", "plain"): Floor(times) for name, times in _STEPS.items()},
    **{("steps", f"{name} d=64", "plain"): Floor(10) for name in NEWER},
    **{("steps", f"{name} d=64", "fla's recurrence"): Floor(10) for name in _RECURRENT},
    **{("steps", f"{name} d=64", "transformers"): Floor(3) for name in _IN_TRANSFORMERS},
    **{("steps", f"{name} d=64", "delta_net"): Floor(2, "at most") for name in NEWER},
    ("steps", "attention d=256", "plain"): Floor(5),
    ("steps", "mamba d=64", "published scan"): Floor(40),
    ("steps", "mamba d=64", "mambapy's scan"): Floor(20),
    ("steps", "attention d=64", "GEMM peak"): Floor(40),
    ("steps", "attention d=256", "GEMM peak"): Floor(60),
    ("steps", "mamba d=64", "GEMM peak"): Floor(15),
    ("ops", "selective scan", "published"): Floor(50),
    ("ops", "selective scan", "mambapy"): Floor(5),
    ("ops", "delta rule", "ref"): Floor(10),
    ("ops", "linear recurrence", "ref"): Floor(5),
    ("interventions", "attention", "pyvene"): Floor(80),
    ("interventions", "mamba", "pyvene"): Floor(40),
    ("startup", "mecheval --help", "import torch"): Floor(0.3, "at most"),
    ("sweep", "resume", "start"): Floor(5, "at most"),
    **{("growth", f"{name}, length", "time"): Floor(1.2, "at most") for name in _LINEAR},
    **{("growth", f"{name}, length", "memory"): Floor(1.1, "at most") for name in _LINEAR},
    **{("guard", *key): Floor(threshold) for key, threshold in _GUARD.items()},
}

LOSS_DIFFERENCE = Floor(5e-6, "at most")  # 5 decimals
LOSS_DIFFERENCE_IN_DOUBLE = Floor(1e-9, "at most")
CHECKPOINT = Floor(2, "at most")  # per cent of the training time


def floor_of(part: str, what: str, against: str) -> Floor | None:
    if part == "checkpoint":
        return CHECKPOINT
    if part == "steps" and against == "plain: losses":
        return LOSS_DIFFERENCE
    if part == "steps" and against == "plain: float64":
        return LOSS_DIFFERENCE_IN_DOUBLE
    return FLOORS.get((part, what, against))
