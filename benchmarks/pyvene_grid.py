"""Compute a grid of interventions by pyvene, as the paper's authors use it.

Each component of a layer has a pyvene model, and each role a call that runs the clean, the corrupt
and the patched documents with all logits.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.rivals import load_package
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import sites as all_sites
from mecheval.tasks.documents import Documents

BATCH = 64  # documents of an evaluation step of the authors, who take five
COMPONENTS = ("block_in", "block_out", "mixer_in", "mixer_out", "mlp_in", "mlp_out")


def component_sites(model: LanguageModel) -> list[str]:
    """Return the six sites of each layer, or the four of one without an MLP."""
    names = [name for name in all_sites(model) if name.startswith("blocks.")]
    return [name for name in names if name.endswith(COMPONENTS)]


@torch.no_grad()
def pyvene_cells(
    model: LanguageModel,
    clean: Documents,
    corrupt: Documents,
    sites: Sequence[str],
    roles: Sequence[str],
) -> Iterator[tuple[str, str, Float[Tensor, "documents vocab"]]]:
    """Yield site, role and logits at the query, with a clean activation in the corrupt run."""
    pyvene = load_package("pyvene")
    patched_model: Any = copy.deepcopy(model)  # pyvene removes the hooks of others
    patched_model.device = model.embedding.weight.device  # pyvene reads it
    outputs = pyvene.models.constants.CONST_OUTPUT_HOOK
    pyvene.type_to_module_mapping[LanguageModel] = {
        name: (f"blocks[%s].{name}", outputs) for name in COMPONENTS
    }
    pyvene.type_to_dimension_mapping[LanguageModel] = {name: ("d_model",) for name in COMPONENTS}
    base, source = ({"tokens": torch.from_numpy(docs.tokens).long()} for docs in (corrupt, clean))
    rows = torch.arange(len(clean))
    queries = torch.from_numpy(np.ascontiguousarray(clean.queries[:, 0])).long()
    for site in sites:
        _, layer, component = site.split(".")
        component_config = {"layer": int(layer), "component": component, "unit": "pos"}
        config = pyvene.IntervenableConfig(component_config)
        intervenable: Any = pyvene.IntervenableModel(config, model=patched_model)
        intervenable.disable_model_gradients()
        for role in roles:
            where = [[[int(position)] for position in clean.roles[role]]]
            _, patched = intervenable(
                base=base,
                sources=[source],
                unit_locations={"sources->base": (where, where)},
                output_original_output=True,
            )
            yield site, role, patched[rows, queries]
        intervenable._cleanup_states()
