"""Sites: named places in the forward pass where a tensor can be recorded or edited.

A `Site` is an identity module that holds its own edits, not a torch forward hook: it can stand
anywhere in an equation, also between `conv` and `silu`, and no edit outlives its `with` block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean

Edit = Callable[[Tensor, "Site"], Tensor]


class Site(nn.Module):
    """An identity module that applies the edits it holds.

    `axes` names the dimensions of the tensor; one of them is `time`. `about` describes it. A
    `materialised` tensor is computed only while the site has edits; the mixer then takes another
    path, which rounds differently.
    """

    def __init__(self, axes: str, about: str, materialised: bool = False) -> None:
        super().__init__()
        self.axes, self.about, self.materialised = tuple(axes.split()), about, materialised
        self.edits: list[Edit] = []

    @property
    def used(self) -> bool:
        """Tell whether the site has edits; a recording counts as one."""
        return bool(self.edits)

    @property
    def time(self) -> int:
        """Return the index of the time dimension."""
        return self.axes.index("time")

    def forward(self, x: Tensor) -> Tensor:
        for edit in self.edits:
            x = edit(x, self)
        return x

    def extra_repr(self) -> str:
        return " ".join(self.axes)


def sites(model: nn.Module) -> dict[str, Site]:
    """Return every site by its name, in the order of the forward pass."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Site)}


@contextmanager
def record(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Record what passes the named sites inside the `with` block; the last pass wins."""
    recorded: dict[str, Tensor] = {}

    def keep(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            recorded[name] = x
            return x

        return edit

    with patch(model, {name: keep(name) for name in names}):
        yield recorded


@contextmanager
def patch(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Edit the model's sites inside the `with` block; patches nest and inner ones act last."""
    known = sites(model)
    unknown = [name for name in edits if name not in known]
    if unknown:
        raise InvalidInput(f"no site {name!r}{did_you_mean(name, known)}" for name in unknown)
    edited: list[Site] = []
    try:
        for name, edit in edits.items():
            known[name].edits.append(edit)
            edited.append(known[name])
        yield
    finally:
        for site in edited:
            site.edits.pop()  # inner patches have left already: the last edit is this patch's
