"""Makes the submodules of a model pass their inputs and outputs through sites, without hooks.

The class of a submodule is changed, so that it keeps its parameters, its names and its base
classes. What is done to a tensor is a list of objects, not of closures: a copy of the model has
copies of its sites.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.site import Site

Change = Callable[[Tensor], Tensor]


@dataclass
class Pass:
    """One forward pass: the block from which it runs, what enters there, and what is read.

    `carried` is the second stream of a family that has one, as the last block has left it;
    `outputs` are those of mixers side by side that wait for the others of their sum.
    """

    start: int = 0
    stream: Tensor | None = None
    at: Reads | None = None
    carried: Tensor | None = None
    outputs: list[Tensor] = field(default_factory=list)


@dataclass
class Changes:
    """Changes of the first input and of the first output of a submodule."""

    before: list[Change] = field(default_factory=list)
    after: list[Change] = field(default_factory=list)


class _Changed(nn.Module):
    """A base class that makes a submodule pass its input and output through changes."""

    changes: Changes

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        for change in self.changes.before:
            args, kwargs = _with_first(change(_first(args, kwargs)), args, kwargs)
        out = super().forward(*args, **kwargs)
        for change in self.changes.after:
            out = (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)
        return out


class _Block(nn.Module):
    """A base class of blocks: a pass that resumes further on skips this one."""

    place: "Boundary"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        place = self.place
        if (out := place.skipped()) is not None:
            return out
        x, args = place.enter(_first(args, kwargs), args)
        args, kwargs = _with_first(x, args, kwargs)
        return place.leave(super().forward(*args, **kwargs))


@dataclass
class Boundary:
    """The input of a block, where a pass can resume.

    `width` is that of the stream, `carries` the position of a second one among the arguments.
    """

    index: int
    site: Site
    run: Pass
    width: int
    carries: int | None = None
    returns: int = 0  # items of the tuple that the block returns; 0: a tensor

    def skipped(self) -> Any:
        """Return what the block would return if it does not run in this pass, else None."""
        if self.run.start <= self.index or self.run.stream is None:
            return None
        x = self.run.stream[..., : self.width]
        return (x, *[None] * (self.returns - 1)) if self.returns else x

    def enter(self, x: Tensor, args: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the block's input behind its site, with its other arguments."""
        run = self.run
        if self.carries is not None:
            place = 1 + self.carries
            x = torch.cat([x, args[place] if run.carried is None else run.carried], dim=-1)
        if run.start == self.index and run.stream is not None:
            x = run.stream
        x = self.site(x)
        if self.carries is not None:
            x, run.carried = x[..., : self.width], x[..., self.width :]
            args = (*args[:place], run.carried, *args[place + 1 :])
        return x, args

    def leave(self, out: Any) -> Any:
        """Note the form in which a block returns the stream."""
        self.returns = len(out) if isinstance(out, tuple) else 0
        return out


@dataclass
class Reading:
    """Gathers the positions at which the head is computed."""

    run: Pass

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.run.at is None else gather_reads(x, self.run.at)


@dataclass
class Sum:
    """The site of the sum of mixers side by side, each times a factor.

    The last of them is changed by what the sum's edits add to it, so that without edits, or with
    the sum's own value, nothing changes.
    """

    site: Site
    layer: nn.Module
    factors: list[str]
    run: Pass

    def __call__(self, x: Tensor) -> Tensor:
        self.run.outputs.append(x)
        if len(self.run.outputs) < len(self.factors):
            return x
        values = [getattr(self.layer, name) for name in self.factors]
        outputs, self.run.outputs = self.run.outputs, []
        if not self.site.used:
            return x
        total = sum((y * value for y, value in zip(outputs, values, strict=True)), start=0 * x)
        return x + (self.site(total) - total) / values[-1]


def open_part(part: nn.Module) -> Changes:
    """Return the changes that a submodule applies, after changing its class so that it does."""
    if not isinstance(part, _Changed):
        part.changes = Changes()  # type: ignore[assignment]
        part.__class__ = types.new_class(type(part).__name__, (_Changed, type(part)))
    assert isinstance(part, _Changed)
    return part.changes


def open_block(block: nn.Module, boundary: Boundary) -> None:
    """Make a block pass its input through a site, and be skipped where a pass resumes later."""
    block.place = boundary  # type: ignore[assignment]
    block.__class__ = types.new_class(type(block).__name__, (_Block, type(block)))


def is_open(root: nn.Module) -> bool:
    """Tell whether submodules are changed already."""
    return any(isinstance(part, (_Block, _Changed)) for part in root.modules())


def put_at(root: nn.Module, place: str, change: Change) -> None:
    """Apply a change at "input of PATH" or "output of PATH" of a module's submodules."""
    end, _, path = place.partition(" of ")
    changes = open_part(root.get_submodule(path))
    (changes.before if end == "input" else changes.after).append(change)


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    value = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(value, Tensor):
        raise InvalidInput(f"a submodule must be given a tensor first, not {type(value).__name__}")
    return value


def _with_first(
    x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args:
        return (x, *args[1:]), kwargs
    return args, {**kwargs, next(iter(kwargs)): x}
