"""Write calibration.md, .csv and .png: are verdicts right as often as their confidence says?

The planted models are in planted.py. Everything is seeded: it writes the same bytes again.
"""

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from planted import POWER_SIZES, SIZES, Coverage, Judgement, Power, coverage, judgements, power

from mecheval.metrics.statistics import proportion_interval

HERE = Path(__file__).parent
MODELS = range(240)
KINDS = {"near the thresholds": 2, "anywhere": 1}  # samples of each size
BINS = ((0.0, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 1.0), (1.0, 1.1))
BLUE, GREY = "#0072B2", "#8C8C8C"
SHADES = ("#9ECAE1", "#4F9BCB", "#2070B4", "#08306B")
TEXT = (HERE / "calibration.txt").read_text(encoding="utf-8")
Line = dict[str, Any]


def main() -> None:
    """Write the page, the figure and the numbers behind them."""
    every = [x for kind, k in KINDS.items() for x in judgements(kind, MODELS, samples=k)]
    powers, coverages = list(power()), list(coverage())
    with (HERE / "calibration.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*asdict(every[0]), "right"], lineterminator="\n")
        table.writeheader()
        table.writerows({**asdict(one), "right": one.right} for one in every)
    lines = [line for kind in KINDS for n in SIZES for line in bins(_some(every, kind, n))]
    page = TEXT.format(
        models=len(MODELS),
        truths=_truths(every),
        bins=_table(lines),
        overall=_overall(every),
        coverage=_coverage_table(coverages),
        power=_power_table(powers),
    )
    (HERE / "calibration.md").write_text(page, encoding="utf-8")
    _draw(lines, powers, coverages)


def bins(every: Sequence[Judgement]) -> list[Line]:
    """Return by confidence how many verdicts are right, with Wilson's 95 % interval."""
    rows = []
    for low, high in BINS:
        inside = [one for one in every if low <= one.confidence < high]
        if inside:
            right, n = sum(one.right for one in inside), len(inside)
            mean = float(np.mean([one.confidence for one in inside]))
            numbers = {"models": inside[0].models, "documents": inside[0].n, "verdicts": n}
            ends = proportion_interval(right, n)
            numbers |= {"confidence": mean, "right": right / n, "low": ends[0], "high": ends[1]}
            rows.append({**numbers, "holds": ends[0] <= mean <= ends[1]})
    return rows


def _some(every: Sequence[Judgement], kind: str, n: int) -> list[Judgement]:
    return [one for one in every if (one.models, one.n) == (kind, n)]


def _truths(every: Sequence[Judgement]) -> str:
    truths = {(one.models, one.model): one.truth for one in every}
    names = list(truths.values())
    return ", ".join(f"{names.count(name)} {name}" for name in sorted({*names}))


def _table(lines: Sequence[Line]) -> str:
    text = ""
    for line in lines:
        holds = "yes" if line["holds"] else "**no**"
        text += (
            f"| {line['models']} | {line['documents']} | {line['verdicts']} "
            f"| {line['confidence']:.3f} | {line['right']:.3f} "
            f"| {line['low']:.3f} to {line['high']:.3f} | {holds} |\n"
        )
    held = sum(line["holds"] for line in lines)
    return f"{text}\n{held} of {len(lines)} intervals hold the mean confidence of their line."


def _overall(every: Sequence[Judgement]) -> str:
    text = "| models | documents | verdicts | confidence, mean | right |\n|---|---|---|---|---|\n"
    for kind in KINDS:
        for n in SIZES:
            some = _some(every, kind, n)
            confidence, right = np.mean([(one.confidence, one.right) for one in some], axis=0)
            text += f"| {kind} | {n} | {len(some)} | {confidence:.3f} | {right:.3f} |\n"
    return text.rstrip()


def _coverage_table(coverages: Sequence[Coverage]) -> str:
    text = ""
    for one in coverages:
        now, before = one.covered / one.studies, one.bootstrap_covered / one.studies
        text += (
            f"| {one.case} | {one.share:.3f} | {one.n} | {now:.3f} | {before:.3f} "
            f"| {one.width:.3f} | {one.bootstrap_width:.3f} |\n"
        )
    return text.rstrip()


def _power_table(powers: Sequence[Power]) -> str:
    text = ""
    for effect in dict.fromkeys(one.effect for one in powers):
        some = [one for one in powers if one.effect == effect]
        for strength in dict.fromkeys(one.strength for one in some):
            named = [one.named / one.studies for one in some if one.strength == strength]
            cells = " | ".join(f"{x:.2f}" for x in named)
            text += f"| {effect} | {strength:.2f} | {cells} |\n"
    return text.rstrip()


def _draw(lines: Sequence[Line], powers: Sequence[Power], coverages: Sequence[Coverage]) -> None:
    figure = Figure(figsize=(8.4, 8.6), layout="constrained")
    axes = figure.subplots(3, 3)
    for row, kind in enumerate(KINDS):
        for axis, n in zip(axes[row], SIZES, strict=True):
            some = [one for one in lines if (one["models"], one["documents"]) == (kind, n)]
            _draw_bins(axis, some)
            axis.set_title(f"{kind}, {n} documents", fontsize=8.5)
        axes[row][0].set_ylabel("verdicts that are right")
    for axis, effect in zip(axes[2], ("restored share", "lost likelihood"), strict=False):
        _draw_power(axis, [one for one in powers if one.effect == effect])
        axis.set(xlabel=effect, ylim=(-0.03, 1.03))
        axis.set_title("power", fontsize=9)
    axes[2][0].set_ylabel("named with confidence ≥ 0.95")
    axes[2][1].legend(title="documents", fontsize=7, title_fontsize=7, frameon=False)
    _draw_coverage(axes[2][2], coverages)
    figure.savefig(HERE / "calibration.png", dpi=130)


def _draw_bins(axis: Axes, rows: Sequence[Line]) -> None:
    x, y = ([row[name] for row in rows] for name in ("confidence", "right"))
    below = [row["right"] - row["low"] for row in rows]
    above = [row["high"] - row["right"] for row in rows]
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    axis.errorbar(x, y, [below, above], fmt="o", color=BLUE, markersize=4, linewidth=1)
    axis.set(xlabel="confidence", xlim=(0.35, 1.02), ylim=(0.2, 1.02))


def _draw_power(axis: Axes, powers: Sequence[Power]) -> None:
    for n, shade in zip(POWER_SIZES, SHADES, strict=True):
        some = [one for one in powers if one.n == n]
        x = [one.strength for one in some]
        y = np.array([one.named / one.studies for one in some])
        ends = np.array([proportion_interval(one.named, one.studies) for one in some])
        axis.errorbar(x, y, np.abs(ends.T - y), color=shade, marker="o", markersize=3, label=f"{n}")


def _draw_coverage(axis: Axes, coverages: Sequence[Coverage]) -> None:
    for shift, name, colour, label in (
        (-0.12, "bootstrap_covered", GREY, "percentile bootstrap"),
        (0.12, "covered", BLUE, "this interval"),
    ):
        places = np.array([SIZES.index(one.n) for one in coverages]) + shift
        values = [getattr(one, name) / one.studies for one in coverages]
        axis.plot(places, values, "o", color=colour, markersize=4, label=label)
    axis.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
    axis.set(xlabel="documents", ylim=(0.7, 1.01))
    axis.set_xticks(range(len(SIZES)), [str(n) for n in SIZES])
    axis.set_title("coverage of a share's interval", fontsize=9)
    axis.legend(fontsize=7, frameon=False, loc="lower right")


if __name__ == "__main__":
    main()
