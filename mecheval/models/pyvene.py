"""Our models in pyvene: it takes the outputs of sites as it takes those of any module."""

import copy
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.models.build import Model
from mecheval.models.site import sites as sites_of


def to_pyvene(model: Model, sites: Sequence[str]) -> Any:
    """Return a pyvene model with an intervention at some sites, each at positions of its own.

    Parameters
    ----------
    model
        A model with sites. A copy is used, because pyvene removes the hooks of others.
    sites
        Names of sites.

    Returns
    -------
    pyvene.IntervenableModel
        Called with `base`, `sources` and `unit_locations`, it puts the sources' activations into
        the base.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig, to_pyvene
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), vocab_size=12)
    >>> there = to_pyvene(model, ["final_in"])
    >>> base, source = (torch.randint(12, (2, 5)) for _ in range(2))
    >>> place = [[[4], [4]]]  # for each site and document, its positions
    >>> locations = {"sources->base": (place, place)}
    >>> sources = [{"tokens": source}]
    >>> _, patched = there({"tokens": base}, sources, unit_locations=locations)
    >>> torch.allclose(patched[:, 4], model(source)[:, 4], atol=1e-6)
    True
    """
    try:
        with redirect_stdout(StringIO()):  # pyvene prints what else could be installed
            import pyvene
    except ImportError as error:
        raise InvalidInput("pyvene is not installed; pip install pyvene") from error
    known = sites_of(model)
    unknown = [name for name in sites if name not in known]
    if unknown:
        raise InvalidInput(f"no site {name!r}{did_you_mean(name, known)}" for name in unknown)
    for name in sites:
        if known[name].materialised:
            problem = f"site {name!r} is computed only while it is edited"
            raise InvalidInput(f"{problem}, which pyvene cannot know; use interchange")
        if known[name].time != 1:
            problem = f"site {name!r} has the axes {known[name].extra_repr()}"
            raise InvalidInput(f"{problem}; pyvene takes positions from the second; leave it out")
    copied: Any = copy.deepcopy(model)
    if not hasattr(copied, "device"):
        copied.device = next(model.parameters()).device  # pyvene reads it, and the width
    if not hasattr(copied, "config"):
        copied.config = SimpleNamespace(d_model=copied.d_model)
    outputs = pyvene.models.constants.CONST_OUTPUT_HOOK
    pyvene.type_to_module_mapping[type(model)] = {name: (name, outputs) for name in known}
    pyvene.type_to_dimension_mapping[type(model)] = {name: ("d_model",) for name in known}
    places = [{"layer": 0, "component": name, "unit": "pos"} for name in sites]
    there: Any = pyvene.IntervenableModel(pyvene.IntervenableConfig(places), model=copied)
    there.disable_model_gradients()
    return there
