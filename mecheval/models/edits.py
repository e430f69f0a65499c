"""Edits for `patch`: each function returns an edit of what passes a site.

`at` names one position in each row of the batch; without it every position is edited.
"""

from collections.abc import Callable

from jaxtyping import Int
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.models.site import Edit, Site

Positions = Int[Tensor, " batch"]


def put(value: Tensor, at: Positions | None = None) -> Edit:
    """Replace the tensor by one of its shape; with `at`, the time axis may be left out.

    Parameters
    ----------
    value
        The tensor to put in.
    at
        One position for each row; without it, every position is replaced.

    Returns
    -------
    edit
        For `patch`.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig, patch, put, record
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), vocab_size=12)
    >>> tokens = torch.randint(12, (2, 5))
    >>> with record(model, ["blocks.1.block_in"]) as seen:
    ...     logits = model(tokens)
    >>> other = torch.randint(12, (2, 5))
    >>> with patch(model, {"blocks.1.block_in": put(seen["blocks.1.block_in"])}):
    ...     restored = model(other)
    >>> torch.allclose(restored, logits, atol=1e-6)
    True
    """

    def change(here: Tensor, site: Site) -> Tensor:
        if at is not None and value.dim() == here.dim() + 1:
            return take(value, at, site.time).to(here)
        return value.to(here)

    return _edit(change, at)


def zero(at: Positions | None = None) -> Edit:
    """Multiply by zero."""
    return _edit(lambda here, site: here * 0, at)


def mean(at: Positions | None = None) -> Edit:
    """Replace every row by the mean over the batch."""
    return _edit(lambda here, site: here.mean(dim=0, keepdim=True).expand_as(here), at)


def add(value: Tensor, at: Positions | None = None) -> Edit:
    """Add a tensor, which is broadcast."""
    return _edit(lambda here, site: here + value.to(here), at)


def swap(order: Int[Tensor, " batch"], at: Positions | None = None) -> Edit:
    """Replace row i by row order[i]; with `at`, each row is read at its own position."""
    return _edit(lambda here, site: here[order], at)


def _edit(change: Callable[[Tensor, Site], Tensor], at: Positions | None) -> Edit:
    def edit(x: Tensor, site: Site) -> Tensor:
        here = x if at is None else take(x, at, site.time)
        new = change(here, site)
        if new.shape != here.shape:
            shapes = f"has the shape {tuple(here.shape)}, the edit {tuple(new.shape)}"
            raise InvalidInput(f"the site ({site.extra_repr()}) {shapes}")
        if at is None:
            return new
        return x.scatter(site.time, _index(x, at, site.time), new.unsqueeze(site.time))

    return edit


def take(x: Tensor, at: Positions, time: int) -> Tensor:
    """Return what each row holds at its position, without the time axis."""
    return x.gather(time, _index(x, at, time)).squeeze(time)


def _index(x: Tensor, at: Positions, time: int) -> Tensor:
    """Expand the positions over all other axes, as gather and scatter need them."""
    shape = list(x.shape)
    shape[time] = 1
    return at.to(x.device).view(-1, *[1] * (x.dim() - 1)).expand(shape)
