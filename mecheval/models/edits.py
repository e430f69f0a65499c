"""What can be done at a site: each function makes an edit for `patch`.

`at` names one position for each row of the batch; without it the edit is at every position.
"""

from collections.abc import Callable

from jaxtyping import Int
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.models.site import Edit, Site

Positions = Int[Tensor, " batch"]


def put(value: Tensor, at: Positions | None = None) -> Edit:
    """Another tensor in its place: one of the site's shape or, with `at`, also one without the time axis."""

    def change(here: Tensor, site: Site) -> Tensor:
        whole = at is not None and value.dim() == here.dim() + 1
        return (take(value, at, site.time) if whole and at is not None else value).to(here)

    return _edit(change, at)


def zero(at: Positions | None = None) -> Edit:
    return _edit(lambda here, site: here * 0, at)


def mean(at: Positions | None = None) -> Edit:
    """The mean over the batch."""
    return _edit(lambda here, site: here.mean(dim=0, keepdim=True).expand_as(here), at)


def add(value: Tensor, at: Positions | None = None) -> Edit:
    """A tensor on top; it is broadcast."""
    return _edit(lambda here, site: here + value.to(here), at)


def swap(order: Int[Tensor, " batch"], at: Positions | None = None) -> Edit:
    """Row i gets what row order[i] has, each at its own position."""
    return _edit(lambda here, site: here[order], at)


def _edit(change: Callable[[Tensor, Site], Tensor], at: Positions | None) -> Edit:
    def edit(x: Tensor, site: Site) -> Tensor:
        here = x if at is None else take(x, at, site.time)
        new = change(here, site)
        if new.shape != here.shape:
            raise InvalidInput(
                f"the site has the shape {tuple(here.shape)} ({site.extra_repr()}), the edit {tuple(new.shape)}"
            )
        return new if at is None else x.scatter(site.time, _index(x, at, site.time), new.unsqueeze(site.time))

    return edit


def take(x: Tensor, at: Positions, time: int) -> Tensor:
    """What each row has at its position."""
    return x.gather(time, _index(x, at, time)).squeeze(time)


def _index(x: Tensor, at: Positions, time: int) -> Tensor:
    """The positions, spread over all other axes, for gather and scatter."""
    shape = list(x.shape)
    shape[time] = 1
    return at.to(x.device).view(-1, *[1] * (x.dim() - 1)).expand(shape)
