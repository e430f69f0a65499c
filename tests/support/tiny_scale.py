"""A scale at which every recipe runs to its end in seconds: nothing is learned."""

from mecheval.paper.recipes import Scale, Size

_FIELDS = {"train.steps": 4, "train.batch": 8, "eval.every": 2, "eval.documents": 16, "eval.grid_documents": 8}

MICRO = Scale(
    name="micro",
    recall=Size(widths=(8,), rates=(1e-2,), options={"pairs": 3, "vocab": 16}, fields=_FIELDS),
    treecall=Size(widths=(8,), rates=(1e-2,), options={"max_len": 32}, fields=_FIELDS),
    lengths=(16, 32),
    tokens=64,
)
