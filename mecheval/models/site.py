"""Named places in the forward pass: where a tensor can be read or changed.

A `Site` is an identity module that carries its own edits. It is no forward hook: it stands wherever an equation has a
tensor, also between `silu` and `conv`, and nothing outlives its `with`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean

Edit = Callable[[Tensor, "Site"], Tensor]


class Site(nn.Module):
    """The identity, until somebody edits it. `axes` names the tensor's dimensions; one of them is `time`.

    Where `materialised`, the tensor is computed only while somebody looks, and the rest of the mixer then goes another
    way with other roundings.
    """

    def __init__(self, axes: str, about: str, materialised: bool = False) -> None:
        super().__init__()
        self.axes, self.about, self.materialised = tuple(axes.split()), about, materialised
        self.edits: list[Edit] = []

    @property
    def used(self) -> bool:
        """Whether anybody looks: what is costly to materialise is materialised only then."""
        return bool(self.edits)

    @property
    def time(self) -> int:
        """Which dimension is time."""
        return self.axes.index("time")

    def forward(self, x: Tensor) -> Tensor:
        for edit in self.edits:
            x = edit(x, self)
        return x

    def extra_repr(self) -> str:
        return " ".join(self.axes)


def sites(model: nn.Module) -> dict[str, Site]:
    """Every site by its name, in the order of the forward pass."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Site)}


@contextmanager
def record(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """What passes the sites while the block runs; the last call wins."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            seen[name] = x
            return x

        return edit

    with patch(model, {name: keep(name) for name in names}):
        yield seen


@contextmanager
def patch(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """The model with edits at its sites, until the block is left, however it is left. Patches nest, inner ones last."""
    known = sites(model)
    wrong = [name for name in edits if name not in known]
    if wrong:
        raise InvalidInput(f"no site {name!r}{did_you_mean(name, known)}" for name in wrong)
    added: list[Site] = []
    try:
        for name, edit in edits.items():
            known[name].edits.append(edit)
            added.append(known[name])
        yield
    finally:
        for site in added:
            site.edits.pop()  # patches are left in the order opposite to their coming: the last edit is this one's
