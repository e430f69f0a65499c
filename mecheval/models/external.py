"""Third-party models: any module from tokens to logits, with sites, in place of our backbone.

A site is a `Site` that the module already has, or a place that a mapping names by a submodule:

    {"blocks.1.block_in": "input of layers.1", "blocks.1.mixer_out": "output of layers.1.attention"}

That submodule then passes its input or output through a `Site`. No torch hook is used and the
original module is not changed. A verdict needs sites named as those of a `LanguageModel`.
"""

import copy
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.models.edits import put
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.site import Edit, Site, patch, record
from mecheval.models.site import sites as sites_of

BATCHES, TIMES = (3, 2), (2, 3)  # of the two passes that every site must see
BOUNDARY = re.compile(r"blocks\.[0-9]+\.block_in|final_in")  # sites that must hold all information
UNKNOWN = ("?",)  # axes of a site before the first pass
Tokens = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch reads vocab"]
Shape = tuple[int, ...]


class ExternalModel(nn.Module):
    """A copy of a module from tokens (batch, time) to logits (batch, time, vocab), with sites.

    `sites` maps names to "input of PATH" or "output of PATH" of submodules; of several inputs or
    outputs the first is meant. By default it is the module's attribute `sites`. A `forward` that
    takes `at` computes the logits at those positions only.

    Parameters
    ----------
    module
        A module from tokens to logits.
    sites
        Names by which its tensors are reached.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from mecheval import ExternalModel, record
    >>> module = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    >>> model = ExternalModel(module, {"blocks.0.block_out": "output of 0"})
    >>> with record(model, ["blocks.0.block_out"]) as seen:
    ...     logits = model(torch.randint(12, (2, 5)))
    >>> seen["blocks.0.block_out"].shape
    torch.Size([2, 5, 8])
    """

    kinds: tuple[str, ...] = ()  # what its layers are is not known

    def __init__(self, module: nn.Module, sites: Mapping[str, str] | None = None) -> None:
        super().__init__()
        module = _copy(module)
        places = getattr(module, "sites", {}) if sites is None else sites
        named = sites_of(module) | _place_sites(module, places)
        for name, site in named.items():  # before the module, so that a site has this name
            add_site(self, name, site)
        self.module = module
        self.takes_at = "at" in inspect.signature(module.forward).parameters
        self._ties = tied_names(module.state_dict(prefix="module.", keep_vars=True))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            check_passes(self, named)
            _check_boundaries(self, [name for name in named if BOUNDARY.fullmatch(name)])

    def forward(self, tokens: Tokens, at: Reads | None = None) -> Logits:
        """Return logits at every position, or at the positions `at` of each row."""
        if at is not None and self.takes_at:
            return self.module(tokens, at=at)
        logits = self.module(tokens)
        if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            problem = f"for tokens {tuple(tokens.shape)} it returns {shape}"
            raise InvalidInput(f"{self.name} must return logits (batch, time, vocab); {problem}")
        return logits if at is None else gather_reads(logits, at)

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return every tensor once: a head tied to the embedding is saved as the embedding."""
        state = super().state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in state.items() if name not in self._ties}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        ties = self._ties.items()
        tied = {name: state_dict[first] for name, first in ties if first in state_dict}
        return super().load_state_dict({**state_dict, **tied}, *args, **kwargs)


def _copy(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"a model must be a torch.nn.Module, not {type(module).__name__}")
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise InvalidInput(f"{type(module).__name__} cannot be deep-copied: {error}") from error


def _place_sites(module: nn.Module, places: Any) -> dict[str, Site]:
    """Create the sites of a mapping where the inputs and outputs of submodules pass them."""
    if not isinstance(places, Mapping):
        allowed = "must map names to 'input of PATH' or 'output of PATH'"
        raise InvalidInput(f"sites={places!r} {allowed}")
    known = {path: part for path, part in module.named_modules(remove_duplicate=False) if path}
    taken, created, problems = sites_of(module), dict[str, Site](), []
    for name, place in places.items():
        end, _, path = str(place).partition(" of ")
        if end not in ("input", "output") or path not in known:
            allowed = "must be 'input of PATH' or 'output of PATH' of a submodule"
            problems.append(f"site {name}={str(place)!r} {allowed}{did_you_mean(path, known)}")
            continue
        passed = _open(known[path])
        if end in passed or name in taken:
            reason = "another site has this name or place"
            problems.append(f"site {name}={str(place)!r} must be new; {reason}")
        created[name] = passed[end] = Site(" ".join(UNKNOWN), str(place))
    if problems:
        raise InvalidInput(problems)
    return created


class _Passing(nn.Module):
    """A base class that makes a submodule pass its input and output through sites."""

    passed_sites: dict[str, Site]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if site := self.passed_sites.get("input"):
            if args:
                args = (_apply(site, args[0]), *args[1:])
            else:
                kwargs |= {name: _apply(site, value) for name, value in list(kwargs.items())[:1]}
        out = super().forward(*args, **kwargs)
        if not (site := self.passed_sites.get("output")):
            return out
        return (_apply(site, out[0]), *out[1:]) if type(out) is tuple and out else _apply(site, out)


def _open(part: nn.Module) -> dict[str, Site]:
    """Return the sites that a submodule passes, after changing its class so that it does.

    It keeps its parameters, names and base classes. The sites are not submodules of it: it may
    run all its submodules in sequence.
    """
    if not isinstance(part, _Passing):
        part.passed_sites = {}  # type: ignore[assignment]
        part.__class__ = types.new_class(type(part).__name__, (_Passing, type(part)))
    assert isinstance(part, _Passing)
    return part.passed_sites


def _apply(site: Site, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise InvalidInput(f"the {site.about} must be a tensor, or begin with one; it is {kind}")
    return site(value)


def add_site(root: nn.Module, name: str, site: Site) -> None:
    """Add a site under its dotted name."""
    *path, last = name.split(".")
    parent = root
    try:
        for part in path:
            parent.add_module(part, parent._modules.get(part) or nn.Module())
            parent = parent.get_submodule(part)
        if last in parent._modules or name.split(".")[0] == "module":
            raise KeyError(f"{last!r} is taken")
        parent.add_module(last, site)
    except KeyError as error:
        raise InvalidInput(f"site {name!r} must have another name: {error.args[0]}") from error


def check_passes(model: ExternalModel, named: Mapping[str, Site]) -> None:
    """Check that a pass meets every site once, with batch and time axes, and is repeatable."""
    passes = [_shapes(model, named, *size) for size in zip(BATCHES, TIMES, strict=True)]
    problems = []
    for name, site in named.items():
        each = [shapes[name] for shapes in passes]
        if counts := [len(shapes) for shapes in each if len(shapes) != 1]:
            count = f"it is passed {counts[0]} times"
            problems.append(f"site {name!r} must be passed once in a forward pass; {count}")
        elif not _fits(site, [shapes[0] for shapes in each]):
            shape = f"for tokens {(BATCHES[0], TIMES[0])} it has the shape {each[0][0]}"
            problems.append(f"site {name!r} must be a tensor (batch, …) with a time axis; {shape}")
    if problems:
        raise InvalidInput(problems)
    tokens = _tokens(model, BATCHES[0], TIMES[0])
    if not torch.equal(model(tokens).nan_to_num(), model(tokens).nan_to_num()):
        rule = "must return the same logits for the same tokens"
        reason = "it draws random numbers (set dropout to 0) or keeps state between calls"
        raise InvalidInput(f"{model.name} {rule}; {reason}")


def _check_boundaries(model: ExternalModel, names: Sequence[str]) -> None:
    """Reject a `block_in` or `final_in` that a residual bypasses: its verdict would be wrong."""
    tokens = _tokens(model, BATCHES[0], TIMES[0])
    others, problems = model(tokens + 1), []
    for name in names:
        with record(model, [name]) as recorded:
            logits = model(tokens)
        with patch(model, {name: put(recorded[name])}):
            restored = model(tokens + 1)
        if (restored - logits).abs().max() > 1e-3 * (others - logits).abs().max():
            reason = "with all of it replaced, the logits still depend on the tokens"
            advice = "place it before the residual branches off, or give it another name"
            problems.append(f"site {name!r} is bypassed: {reason}; {advice}")
    if problems:
        raise InvalidInput(problems)


def _shapes(
    model: ExternalModel,
    named: Mapping[str, Site],
    batch: int,
    time: int,
) -> dict[str, list[Shape]]:
    """Return the shapes of all that passes each site in one forward pass."""
    shapes: dict[str, list[Shape]] = {name: [] for name in named}

    def note_shape(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            shapes[name].append(tuple(x.shape))
            return x

        return edit

    tokens = _tokens(model, batch, time)
    try:
        with patch(model, {name: note_shape(name) for name in named}):
            model(tokens, tokens[:, :1])
    except InvalidInput:
        raise
    except Exception as error:
        problem = f"with {(batch, time)} it raised {type(error).__name__}: {error}"
        raise InvalidInput(f"{model.name} must take tokens (batch, time); {problem}") from error
    return shapes


def _tokens(model: nn.Module, batch: int, time: int) -> Tensor:
    device = next((parameter.device for parameter in model.parameters()), None)
    return torch.zeros(batch, time, dtype=torch.long, device=device)


def _fits(site: Site, shapes: list[Shape]) -> bool:
    """Tell whether a site has the axes it declares; set them if they are unknown."""
    sizes = list(zip(*shapes, strict=False))
    if len(shapes[0]) != len(shapes[1]) or sizes[:1] != [BATCHES] or TIMES not in sizes[1:]:
        return False
    if site.axes == UNKNOWN:
        time = sizes.index(TIMES, 1)
        rest = ["source" if size == TIMES else str(size[0]) for size in sizes]
        site.axes = ("batch", *rest[1:time], "time", *rest[time + 1 :])
    return len(site.axes) == len(sizes) and "time" in site.axes and sizes[site.time] == TIMES


def tied_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Map the name of each tensor that has an earlier name to that name."""
    first: dict[int, str] = {}
    ties = {}
    for name, tensor in tensors.items():
        if first.setdefault(id(tensor), name) != name:
            ties[name] = first[id(tensor)]
    return ties
