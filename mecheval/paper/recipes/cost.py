"""Beyond the paper: what a token costs in time and memory, the longer the documents are.

Every step sees as many tokens, whatever the length: few long documents or many short ones. Time and memory are in the
provenance of each run.
"""

from collections.abc import Iterator
from dataclasses import replace

from mecheval.core.spec import Scalar
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe

STEPS = 20


@recipe("cost")
def cost(scale: Scale) -> Iterator[Experiment]:
    """AR: time and memory of a token against the length of documents."""
    longest = max(scale.lengths)
    fields: dict[str, Scalar] = {"model.max_len": longest, "train.documents": 0, "train.steps": STEPS}
    fields |= {"eval.documents": 1, "eval.every": STEPS, "eval.grid": "none"}
    for length in scale.lengths:
        batch = {"train.batch": scale.tokens // length}
        size = replace(scale.recall, rates=(1e-3,), options={}, fields={**fields, **batch})
        # one token less than the length: BOS, divider and query stand beside the pairs
        task = f"recall:pairs={length // 2 - 2},vocab={longest}"
        yield from replace(scale, recall=size).widest().experiments(task)
