"""Compute a grid of interventions by pyvene, as the paper's authors use it.

Each component of a layer has a pyvene model, and each role a call that runs the clean, the corrupt
and the patched documents with all logits.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.rivals import load_package
from mecheval.models.language_model import LanguageModel
from mecheval.models.pyvene import to_pyvene
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
    load_package("pyvene")
    base, source = ({"tokens": torch.from_numpy(docs.tokens).long()} for docs in (corrupt, clean))
    rows = torch.arange(len(clean))
    queries = torch.from_numpy(np.ascontiguousarray(clean.queries[:, 0])).long()
    for site in sites:
        intervenable = to_pyvene(model, [site])
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
