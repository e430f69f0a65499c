"""The options of each mixer: the base class of the mixer itself, which inherits this constructor.

They are apart from the mixers because listing or refusing an option must not import torch.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Constraints, Field, broken_constraints

Heads = Annotated[int, Field(ge=1, description="heads")]
Taps = Annotated[int, Field(ge=0, le=16, description="taps of the short convolutions; 0: none")]
ScanBackend = Annotated[
    Literal["auto", "torch", "numba", "mamba_ssm"],
    Field(description="who computes the scan; auto: the fastest here"),
]
DeltaBackend = Annotated[
    Literal["auto", "torch", "fla"],
    Field(description="who computes the delta rule; auto: the fastest here"),
]


Projections = Mapping[str, tuple[str, int, int]]  # a layer, and which of how many parts
SEPARATE: Projections = {which: (f"{which}_proj", 0, 1) for which in "qkv"}


def parts_of(layer: str, order: str) -> Projections:
    """Return the projections of a layer that computes several in this order."""
    return {which: (layer, part, len(order)) for part, which in enumerate(order)}


def heads_divide(heads: int, d_model: int) -> str | None:
    return f"heads={heads} must divide d_model={d_model}" if d_model % heads else None


def backend_is_installed(backend: str) -> str | None:
    if backend not in ("mamba_ssm", "fla") or importlib.util.find_spec(backend) is not None:
        return None
    return f"backend={backend} needs the package {backend}, which is not installed; use auto"


def refuse(problem: str | None) -> None:
    """Raise InvalidInput if a constraint returned a problem."""
    if problem:
        raise InvalidInput(problem)


@dataclass(eq=False, repr=False)
class MixerOptions:
    """The arguments of every mixer; a subclass adds its options as keywords."""

    d_model: int
    max_len: int
    constraints: ClassVar[Constraints] = ()
    start: ClassVar[Literal["normal", "own"]] = "normal"  # who draws the linear weights
    projections: ClassVar[Projections] = {}  # where queries, keys and values come from

    @property
    def part_widths(self) -> Mapping[str, Sequence[int]]:
        """Widths of the parts of a layer in `projections`, where they are not equal."""
        return {}

    def __post_init__(self) -> None:
        """Refuse options that do not fit together; a mixer then builds its layers."""
        super().__init__()  # nn.Module's, of which a mixer inherits next
        if problems := broken_constraints(self.constraints, vars(self)):
            raise InvalidInput(problems)
