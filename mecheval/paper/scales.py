"""The sizes of the paper: `paper` as published, `laptop` the part of it that two cores can train.

One mistake of the published runs is not copied: attention had no positions at the two highest
rates.
"""

from dataclasses import replace

from mecheval.sweeps.recipe import NEWER, Scale, Size

_WIDTHS = (16, 32, 64, 128, 256)
_RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
_FIELDS = {"train.documents": 100_032, "train.batch": 32}
_FIELDS |= {"eval.documents": 320, "eval.every": 1000}
_BEST = {"attention": (1e-3,), "based": (3e-3,), "mamba": (1e-2,), "delta_net": (3e-3,)}
_BEST |= {"hyena": (3e-4,), "h3": (3e-3,), "base_conv": (1e-2,)}
_LATER = {**dict.fromkeys(NEWER, (3e-3,)), **dict.fromkeys(("hybrid", "parallel"), (1e-3,))}


def paper() -> Scale:
    """Return every width and rate of the published runs, with one seed."""
    return Scale(
        name="paper",
        recall=Size(
            widths=_WIDTHS,
            rates=(*_RATES, 1e-2, 3e-2),
            options={"pairs": 16},  # §4.2 says 32; 16 were run
            fields={**_FIELDS, "train.epochs": 16},
        ),
        treecall=Size(widths=_WIDTHS, rates=_RATES, fields={**_FIELDS, "train.epochs": 32}),
        every_width=True,
    )


def laptop() -> Scale:
    """Return AR at two widths, the larger with three seeds, and ATR at one width and grammar.

    Each architecture is trained at its best published rate, where that is known; those that are
    later than the paper at the rate of their nearest relative in it.
    """
    published = paper()
    treecall = {**dict.fromkeys(_BEST, (1e-3,)), "mamba": (3e-3,), **_LATER}
    return Scale(
        name="laptop",
        recall=replace(
            published.recall, widths=(32, 64), rates={**_BEST, **_LATER}, more_seeds=(1, 2)
        ),
        treecall=replace(published.treecall, widths=(64,), rates=treecall),
        grammars=("atr",),
    )
