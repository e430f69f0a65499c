"""The same interventions by pyvene, driven as the paper's authors drive it: a model for each component and layer, and
for each role a call that runs the clean, the corrupt and the patched documents, with all logits."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.rivals import package
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import sites as all_sites
from mecheval.tasks.documents import Documents

BATCH = 64  # documents in one of the authors' evaluation steps, of which they took five
COMPONENTS = ("block_in", "block_out", "mixer_in", "mixer_out", "mlp_in", "mlp_out")


def component_sites(model: LanguageModel) -> list[str]:
    """Six for each layer, or four where there is no MLP."""
    return [
        name
        for name in all_sites(model)
        if name.startswith("blocks.") and name.endswith(COMPONENTS)
    ]


@torch.no_grad()
def pyvene_cells(
    model: LanguageModel,
    clean: Documents,
    wrong: Documents,
    sites: Sequence[str],
    roles: Sequence[str],
) -> Iterator[tuple[str, str, Float[Tensor, "documents vocab"]]]:
    """Logits at the query for every site and role, the clean activation put into the corrupt run."""
    pyvene = package("pyvene")
    own: Any = copy.deepcopy(model)  # pyvene removes hooks that are not its own
    own.device = model.embedding.weight.device  # … and asks for this
    outputs = pyvene.models.constants.CONST_OUTPUT_HOOK
    pyvene.type_to_module_mapping[LanguageModel] = {
        name: (f"blocks[%s].{name}", outputs) for name in COMPONENTS
    }
    pyvene.type_to_dimension_mapping[LanguageModel] = {name: ("d_model",) for name in COMPONENTS}
    base, source = ({"tokens": torch.from_numpy(docs.tokens).long()} for docs in (wrong, clean))
    rows = torch.arange(len(clean))
    for site in sites:
        _, layer, component = site.split(".")
        config = pyvene.IntervenableConfig(
            {"layer": int(layer), "component": component, "unit": "pos"}
        )
        intervenable: Any = pyvene.IntervenableModel(config, model=own)
        intervenable.disable_model_gradients()
        for role in roles:
            where = [[[int(position)] for position in clean.roles[role]]]
            _, patched = intervenable(
                base=base,
                sources=[source],
                unit_locations={"sources->base": (where, where)},
                output_original_output=True,
            )
            yield (
                site,
                role,
                patched[rows, torch.from_numpy(np.ascontiguousarray(clean.queries[:, 0])).long()],
            )
        intervenable._cleanup_states()
