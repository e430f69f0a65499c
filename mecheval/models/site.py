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

    Parameters
    ----------
    axes
        Names of the tensor's dimensions; one is `time`.
    about
        What the tensor is.
    materialised
        It is computed only while the site has edits.

    Examples
    --------
    >>> import torch
    >>> from mecheval import Site
    >>> site = Site("batch time d_model", "the input")
    >>> site.time, bool((site(torch.ones(1, 2, 3)) == 1).all())
    (1, True)
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
    """Return every site by its name, in the order of the forward pass.

    Parameters
    ----------
    model
        Any module with sites.

    Returns
    -------
    dict
        Sites by their names.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, sites
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, layers=1), vocab_size=12)
    >>> list(sites(model))[:3]
    ['embed_out', 'blocks.0.block_in', 'blocks.0.mixer_in']
    """
    return {name: module for name, module in model.named_modules() if isinstance(module, Site)}


@contextmanager
def record(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Record what passes the named sites inside the `with` block; the last pass wins.

    Parameters
    ----------
    model
        Any module with sites.
    names
        Names of sites.

    Returns
    -------
    context manager
        It gives a dict that holds the tensors after the forward pass.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig, record
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), vocab_size=12)
    >>> tokens = torch.randint(12, (2, 5))
    >>> with record(model, ["blocks.0.mixer_out"]) as seen:
    ...     logits = model(tokens)
    >>> seen["blocks.0.mixer_out"].shape
    torch.Size([2, 5, 8])
    """
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
    """Edit the model's sites inside the `with` block; patches nest and inner ones act last.

    Parameters
    ----------
    model
        Any module with sites.
    edits
        By site, a function of the tensor and the site that returns the new tensor: see `put`.

    Returns
    -------
    context manager
        Edits are removed at its end.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig, patch
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), vocab_size=12)
    >>> tokens = torch.randint(12, (2, 5))
    >>> with patch(model, {"blocks.1.block_in": lambda x, site: 0 * x}):
    ...     same = model(tokens).std(dim=(0, 1)).max() < 1e-6
    >>> bool(same)
    True
    """
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
