"""Whole models of a stranger's: any module from tokens to logits, with sites in it, in place of our backbone.

A site is a `Site` that the module has, or a place that a mapping names by a submodule:

    {"blocks.1.block_in": "input of layers.1", "blocks.1.mixer_out": "output of layers.1.attention"}

That submodule then passes its input or output through a `Site`; no torch hook is used, and the stranger's own module is
left alone. With the names that our own sites have, a verdict can be given.
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
from mecheval.models.ops.reads import Reads, gathered
from mecheval.models.site import Edit, Site, patch, record
from mecheval.models.site import sites as all_sites

BATCHES, TIMES = (3, 2), (2, 3)  # of the two passes in which every site must be met
BOUNDARY = re.compile(r"blocks\.[0-9]+\.block_in|final_in")  # what goes into a block, or comes out of the last one
UNKNOWN = ("?",)  # axes of a site before anything passed it
Shape = tuple[int, ...]


class Foreign(nn.Module):
    """A copy of a module from tokens (batch, time) to logits (batch, time, vocab), as training and interventions want
    it.

    `sites` maps names to "input of PATH" or "output of PATH" of submodules, of several inputs or outputs the first; if
    left out, it is what the module itself has by that name. A module whose `forward` takes `at` is asked for the logits
    at those positions alone.
    """

    def __init__(self, module: nn.Module, sites: Mapping[str, str] | None = None) -> None:
        super().__init__()
        own = _copied(module)
        found = all_sites(own) | _placed(own, getattr(own, "sites", {}) if sites is None else sites)
        for name, site in found.items():  # before the module, for a site to be known by this name
            _add(self, name, site)
        self.module = own
        self.takes_at = "at" in inspect.signature(own.forward).parameters
        self._twins = _twins(own.state_dict(prefix="module.", keep_vars=True))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            _must_be_met(self, found)
            _must_hold_all(self, [name for name in found if BOUNDARY.fullmatch(name)])

    def forward(self, tokens: Int[Tensor, "batch time"], at: Reads | None = None) -> Float[Tensor, "batch reads vocab"]:
        """Logits where they are read: at every position, or at the positions `at` of each row."""
        if at is not None and self.takes_at:
            return self.module(tokens, at=at)
        logits = self.module(tokens)
        if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
            given = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            asked = f"for tokens {tuple(tokens.shape)} it returns {given}"
            raise InvalidInput(f"{self.name} must return logits (batch, time, vocab); {asked}")
        return logits if at is None else gathered(logits, at)

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Every tensor once: a head that is tied to the embedding is the embedding."""
        whole = super().state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in whole.items() if name not in self._twins}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        again = {twin: state_dict[name] for twin, name in self._twins.items() if name in state_dict}
        return super().load_state_dict({**state_dict, **again}, strict, assign)


def _copied(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"a model must be a torch.nn.Module; {type(module).__name__} is none")
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise InvalidInput(f"{type(module).__name__} must be possible to copy: {error}") from error


def _placed(module: nn.Module, wanted: Any) -> dict[str, Site]:
    """The sites of a mapping, each where a submodule's input or output will pass it."""
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f"sites={wanted!r} must map names to 'input of PATH' or 'output of PATH'")
    known = {path: part for path, part in module.named_modules(remove_duplicate=False) if path}
    own, found = all_sites(module), dict[str, Site]()
    problems = []
    for name, place in wanted.items():
        end, _, path = str(place).partition(" of ")
        if end not in ("input", "output") or path not in known:
            allowed = "must be 'input of PATH' or 'output of PATH' of a submodule"
            problems.append(f"site {name}={str(place)!r} {allowed}{did_you_mean(path, known)}")
            continue
        passed = _opened(known[path])
        if end in passed or name in own:
            problems.append(f"site {name}={str(place)!r} must be new; the name or the place is another site's")
        found[name] = passed[end] = Site(" ".join(UNKNOWN), str(place))
    if problems:
        raise InvalidInput(problems)
    return found


class _Passing(nn.Module):
    """What a submodule becomes by its new class: itself, with sites that its input and output pass."""

    passed_sites: dict[str, Site]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if site := self.passed_sites.get("input"):
            if args:
                args = (_through(site, args[0]), *args[1:])
            else:
                kwargs |= {name: _through(site, value) for name, value in list(kwargs.items())[:1]}
        out = super().forward(*args, **kwargs)
        if not (site := self.passed_sites.get("output")):
            return out
        return (_through(site, out[0]), *out[1:]) if type(out) is tuple and out else _through(site, out)


def _opened(part: nn.Module) -> dict[str, Site]:
    """The sites that a submodule passes, by its ends. It keeps its parameters, its names and what it is an instance of;
    the sites are no submodules of it: it may be something that runs all its submodules in a row."""
    if not isinstance(part, _Passing):
        part.passed_sites = {}  # type: ignore[assignment]
        part.__class__ = types.new_class(type(part).__name__, (_Passing, type(part)))
    assert isinstance(part, _Passing)
    return part.passed_sites


def _through(site: Site, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise InvalidInput(f"the {site.about} must be a tensor, or begin with one; it is {type(value).__name__}")
    return site(value)


def _add(root: nn.Module, name: str, site: Site) -> None:
    """Makes a site known by its dotted name."""
    *path, last = name.split(".")
    home = root
    try:
        for part in path:
            home.add_module(part, home._modules.get(part) or nn.Module())
            home = home.get_submodule(part)
        if last in home._modules or name.split(".")[0] == "module":
            raise KeyError(f"{last!r} is taken")
        home.add_module(last, site)
    except KeyError as error:
        raise InvalidInput(f"site {name!r} must have another name: {error.args[0]}") from error


def _must_be_met(model: Foreign, found: Mapping[str, Site]) -> None:
    """Every site once in a pass, with a batch and a time axis; and the same logits again for the same tokens."""
    shapes = [_shapes(model, found, batch, time) for batch, time in zip(BATCHES, TIMES, strict=True)]
    problems = []
    for name, site in found.items():
        each = [seen[name] for seen in shapes]
        if times := [len(seen) for seen in each if len(seen) != 1]:
            problems.append(f"site {name!r} must be passed once in a forward pass; it is passed {times[0]} times")
        elif not _fits(site, [seen[0] for seen in each]):
            asked = f"for tokens {(BATCHES[0], TIMES[0])} it has the shape {each[0][0]}"
            problems.append(f"site {name!r} must be a tensor (batch, …) with a time axis; {asked}")
    if problems:
        raise InvalidInput(problems)
    tokens = _tokens(model, BATCHES[0], TIMES[0])
    if not torch.equal(model(tokens).nan_to_num(), model(tokens).nan_to_num()):
        reason = "it draws at random (dropout must be 0) or keeps something between calls"
        raise InvalidInput(f"{model.name} must give the same logits for the same tokens: {reason}")


def _must_hold_all(model: Foreign, names: Sequence[str]) -> None:
    """A block's input beside which something else goes on, as a residual does beside a norm, makes false verdicts."""
    tokens = _tokens(model, BATCHES[0], TIMES[0])
    others, problems = model(tokens + 1), []
    for name in names:
        with record(model, [name]) as seen:
            logits = model(tokens)
        with patch(model, {name: put(seen[name])}):
            restored = model(tokens + 1)
        if (restored - logits).abs().max() > 1e-3 * (others - logits).abs().max():
            reason = (
                "when all of it is replaced, the logits still depend on the tokens; place it before a residual parts"
            )
            problems.append(f"site {name!r} must hold all that goes on there: {reason}, or give it another name")
    if problems:
        raise InvalidInput(problems)


def _shapes(model: Foreign, found: Mapping[str, Site], batch: int, time: int) -> dict[str, list[Shape]]:
    """Of all that passes each site in one pass."""
    shapes: dict[str, list[Shape]] = {name: [] for name in found}

    def look(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            shapes[name].append(tuple(x.shape))
            return x

        return edit

    tokens = _tokens(model, batch, time)
    try:
        with patch(model, {name: look(name) for name in found}):
            model(tokens, tokens[:, :1])
    except InvalidInput:
        raise
    except Exception as error:
        asked = f"with {(batch, time)} it raised {type(error).__name__}: {error}"
        raise InvalidInput(f"{model.name} must take tokens (batch, time); {asked}") from error
    return shapes


def _tokens(model: nn.Module, batch: int, time: int) -> Tensor:
    device = next((parameter.device for parameter in model.parameters()), None)
    return torch.zeros(batch, time, dtype=torch.long, device=device)


def _fits(site: Site, shapes: list[Shape]) -> bool:
    """Whether it has the axes it says; one of a mapping is told which it has."""
    sizes = list(zip(*shapes, strict=False))
    if len(shapes[0]) != len(shapes[1]) or sizes[:1] != [BATCHES] or TIMES not in sizes[1:]:
        return False
    if site.axes == UNKNOWN:
        time = sizes.index(TIMES, 1)
        rest = ["source" if size == TIMES else str(size[0]) for size in sizes]
        site.axes = ("batch", *rest[1:time], "time", *rest[time + 1 :])
    return len(site.axes) == len(sizes) and "time" in site.axes and sizes[site.time] == TIMES


def _twins(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Names of tensors that are there already by another name, with that one."""
    first: dict[int, str] = {}
    return {name: first[id(tensor)] for name, tensor in tensors.items() if first.setdefault(id(tensor), name) != name}
