"""Figures of the recipes in `sweeps.newer`: the lattice of switches, places of convolutions, all.

Each shows accuracy with its interval and the mechanism, so that one reads off what changes it.
"""

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig
from mecheval.report import labels
from mecheval.report.figure import Figure
from mecheval.report.parts.mechanisms import MechanismBars, MechanismMap
from mecheval.report.study import Study
from mecheval.report.tables import choice
from mecheval.report.verdict_figure import CHANCE
from mecheval.report.verdicts import verdicts
from mecheval.sweeps.newer import OFF, PLACES, lattice_nodes

BARS = f"The colour, and the word beside it, are the mechanism of most seeds. {CHANCE}"
MAP = "The colour is the mechanism of most seeds, and the stronger the more accurate the model is "
MAP += "above what needs no recall."
SWITCHES = ("decay", "delta", "β", "conv.", "gate", "norm", "normaliser")
_ON = {"delta": "delta", "β": "beta", "gate": "gate", "norm": "norm", "normaliser": "normaliser"}
PLACE_NAMES = {"": "none", "AqkvCD": "Canon"}


def lattice(study: Study) -> Figure:
    """Draw which switch of Gated DeltaNet changes accuracy and mechanism."""
    names = {ModelConfig(text).architecture: name for name, text in lattice_nodes().items()}
    order = list(names)
    table = _by_task(study)
    texts = table["model.architecture"]
    table = table.assign(
        label=[names.get(text, labels.architecture(text)) for text in texts],
        place=[order.index(text) if text in order else len(order) for text in texts],
        **{name: [_switch(text, name) for text in texts] for name in SWITCHES},
    )
    table = table.sort_values("place", kind="stable").drop(columns="place")
    title = "From a sum of values to Gated DeltaNet, one switch at a time"
    part = MechanismBars("", table, SWITCHES)
    return Figure.of(study, "lattice", title, [part], BARS, choice(study))


def convolutions(study: Study) -> Figure:
    """Draw at which place a short convolution brings which mechanism, by architecture."""
    table = verdicts(study)
    specs = [Spec.parse(text) for text in table["model.architecture"]]
    places = [str(spec.options.get("sconv", "")) for spec in specs]
    table = table.assign(
        panel=[labels.task(text) for text in table["task"]],
        y=[_without_place(spec) for spec in specs],
        x=[PLACE_NAMES.get(place, place) for place in places],
        place=[PLACES.index(place) if place in PLACES else len(PLACES) for place in places],
    )
    table = table.sort_values("place", kind="stable").drop(columns="place")
    part = MechanismMap("", table, "place of a short convolution", "")
    title = "Where does a short convolution bring recall, and of which kind?"
    about = "A: the mixer's input; q, k, v; O: its output; C, D, M: the input, inside and output "
    about += "of the MLP; Canon: A, q, k, v, C and D at once."
    return Figure.of(study, "convolutions", title, [part], about, MAP, choice(study))


def modern(study: Study) -> Figure:
    """Draw accuracy and mechanism of every architecture."""
    table = _by_task(study)
    lines = table[["model.architecture", "model.layers"]].to_dict("records")
    table = table.assign(label=[_label(line) for line in lines])
    part = MechanismBars("", table)
    title = "How today's architectures recall"
    return Figure.of(study, "modern", title, [part], BARS, choice(study))


def mamba3(study: Study) -> Figure:
    """Draw Mamba-3 and Mamba-2 with and without convolution, with one layer and two."""
    table = verdicts(study)
    table = table.assign(
        panel=["1 layer" if n == 1 else f"{n} layers" for n in table["model.layers"]],
        label=[_taps(text) for text in table["model.architecture"]],
    )
    title = "Does Mamba-3 recall without a short convolution?"
    title += "".join(f" {labels.task(text)}" for text in study.field("task"))
    part = MechanismBars("", table)
    return Figure.of(study, "mamba3", title, [part], BARS, choice(study))


def _taps(text: str) -> str:
    """Return an architecture by its name and the taps of its convolution."""
    taps = labels.option(text, "d_conv")
    name = labels.architecture(Spec.parse(text).name)
    return f"{name}, {taps} taps" if taps else f"{name}, no convolution"


def _by_task(study: Study) -> DataFrame:
    table = verdicts(study)
    return table.assign(panel=[labels.task(text) for text in table["task"]])


def _switch(text: str, name: str) -> str:
    """Return what a switch is set to, or nothing where it is off."""
    if name == "decay":
        decay = str(labels.option(text, "decay"))
        return "" if decay == "none" else f"by {decay}"
    if name == "conv.":
        taps = labels.option(text, "d_conv")
        return f"{taps} taps" if taps else ""
    return "●" if labels.option(text, _ON[name]) else ""


def _without_place(spec: Spec) -> str:
    """Return the architecture without its places; a sum of values by its own name."""
    options = {name: value for name, value in spec.options.items() if name != "sconv"}
    if all(option.split("=")[0] in options for option in OFF.values()):
        return "linear attention"
    return labels.architecture(str(Spec(spec.name, options)))


def _label(line: dict[str, object]) -> str:
    text, layers = str(line["model.architecture"]), line["model.layers"]
    return labels.architecture(text) + (f", {layers} layers" if layers != 2 else "")
