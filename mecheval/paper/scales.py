"""How large a recipe is: `quick` in minutes of two cores, `small` in an evening for all of them, `paper` as published.

`laptop` is the part of `paper` that two cores can do: AR at widths 32 and 64, the latter with three seeds, ATR at 64 in
one grammar, each architecture at its best published rate, where that is known.

One mistake of the paper's runs is not copied: attention had no positions at the two highest rates.
"""

from dataclasses import replace

from mecheval.core.spec import Scalar
from mecheval.sweeps.recipe import Scale, Size

# the paper's start, 0.02 for all, stays at chance for thousands of steps
_START = {"model.init.linear": 3.0, "model.init.embedding": 5.0}
_FOUR_PAIRS = {"pairs": 4, "vocab": 64}  # with 8, attention is at chance after 7,500 steps
_SHORT = {"max_len": 32}
_RECALL: dict[str, Scalar] = {**_START, "train.batch": 128, "train.stop": 0.99, "eval.every": 100}
_RECALL |= {"eval.documents": 512, "eval.grid": "stream"}  # figure 12 asks for this grid, and so shares runs
_RECALL |= {"train.steps": 3000}
_TREECALL = {**_START, "train.batch": 32, "train.bucket": 8, "eval.every": 500, "eval.documents": 512}
_TREECALL |= {"train.steps": 3000}  # after 2,000 attention still hardly needs the key: unsolved

_ONE_RATE = dict.fromkeys(("based", "delta_net", "hyena", "h3", "base_conv"), (3e-3,))
QUICK = Scale(
    name="quick",
    recall=Size(
        widths=(64,),
        rates={**_ONE_RATE, "attention": (1e-3,), "mamba": (1e-2,)},
        options=_FOUR_PAIRS,
        fields=_RECALL,
    ),
    treecall=Size(
        widths=(64,),
        rates={**_ONE_RATE, "attention": (1e-3,), "mamba": (3e-3,)},
        options=_SHORT,
        fields=_TREECALL,
    ),
)

_TWO_RATES = dict.fromkeys(("attention", "based", "delta_net", "hyena", "h3", "base_conv"), (1e-3, 3e-3))
SMALL = Scale(
    name="small",
    recall=Size(
        widths=(16, 32, 64),
        rates={**_TWO_RATES, "mamba": (3e-3, 1e-2)},
        options=_FOUR_PAIRS,
        fields=_RECALL,
        usual=QUICK.recall.rates,
    ),
    treecall=Size(
        widths=(16, 32, 64),
        rates={**_TWO_RATES, "mamba": (1e-3, 3e-3)},
        options=_SHORT,
        fields=_TREECALL,
        usual=QUICK.treecall.rates,
    ),
    seeds=(0, 1, 2),
)

_WIDTHS = (16, 32, 64, 128, 256)
_RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
_PUBLISHED = {"train.documents": 100_032, "train.batch": 32, "eval.documents": 320, "eval.every": 1000}
PAPER = Scale(
    name="paper",
    # §4.2 says 32 pairs; 16 were run
    recall=Size(
        widths=_WIDTHS, rates=(*_RATES, 1e-2, 3e-2), options={"pairs": 16}, fields={**_PUBLISHED, "train.epochs": 16}
    ),
    treecall=Size(widths=_WIDTHS, rates=_RATES, fields={**_PUBLISHED, "train.epochs": 32}),
    every_width=True,
)

_BEST = {"attention": (1e-3,), "based": (3e-3,), "mamba": (1e-2,), "delta_net": (3e-3,)}
_BEST |= {"hyena": (3e-4,), "h3": (3e-3,), "base_conv": (1e-2,)}
_LAPTOP_ATR = {**dict.fromkeys(_BEST, (1e-3,)), "mamba": (3e-3,)}
LAPTOP = Scale(
    name="laptop",
    recall=replace(PAPER.recall, widths=(32, 64), rates=_BEST, more_seeds=(1, 2)),
    treecall=replace(PAPER.treecall, widths=(64,), rates=_LAPTOP_ATR),
    grammars=("atr",),
)

SCALES = {scale.name: scale for scale in (QUICK, SMALL, LAPTOP, PAPER)}
