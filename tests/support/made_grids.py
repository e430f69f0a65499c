"""Grids of models, and grids made from given shares."""

import numpy as np

from mecheval.interventions.grid import Grid
from mecheval.interventions.interchange import interchange
from mecheval.interventions.verdict import verdict_sites
from mecheval.models.site import sites
from support.known_models import TASK

ROLES = ("key", "value", "next_key", "query")


def grid_for(model, task=TASK, documents=64, seed=0):
    convolved = [name for name in sites(model) if name.endswith("conv_out")]
    return interchange(
        model, task, verdict_sites(len(model.blocks)) + convolved, documents=documents, seed=seed
    )


def grid_of(n=200, seed=0, lost=0.8, layers=2, noise=0.1, **held):
    """Make a grid by shares: `value=0.9` at every block's input, `value_2=0.9` at block 2's."""
    rng = np.random.default_rng(seed)
    clean, corrupt = lost + 0.1 * rng.random(n), 0.1 * rng.random(n)
    cells = {}
    for site in verdict_sites(layers):
        for role in ROLES:
            share = held.get(f"{role}_{site.split('.')[1]}", held.get(role, 0.0))
            likelihood = corrupt + (clean - corrupt) * share + noise * rng.normal(size=n)
            cells["restored", site, role] = {"likelihood": likelihood}
    return Grid("key", "test", {"likelihood": clean}, {"likelihood": corrupt}, cells, layers)
