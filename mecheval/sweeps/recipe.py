"""Recipes yield the experiments of a study; a scale says how large they are.

Both are registered by name: ours below, those of a package by entry points of the groups
`mecheval.recipes` and `mecheval.scales`, those of a file given by --plugin by `@recipe("name")`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from mecheval.core.registry import Registry
from mecheval.core.spec import Scalar, Spec
from mecheval.models.config import build_architecture
from mecheval.runs.experiment import Experiment
from mecheval.tasks import tasks

ARCHITECTURES = ("attention", "based", "mamba", "delta_net", "hyena", "h3", "base_conv")
# later than the paper, by family; add a name here when an architecture is added
NEWER = (
    *("gated_delta_net", "kda", "rwkv7"),  # memories that decay and are written by a delta rule
    *("gla", "hgrn2", "mamba2", "mamba3", "mlstm", "retnet"),  # that decay and add
    "rg_lru",  # a vector that decays
    "transformer",  # attention as it is built today
)
Rates = Sequence[float] | Mapping[str, Sequence[float]]  # for all, or by architecture


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of the experiments on one task.

    `options` are the task's, `fields` are set in every experiment (`train.batch`, …). Recipes that
    do not compare widths use the `usual` rates, if there are any; the widest models also have
    `more_seeds`.

    Parameters
    ----------
    widths
        Values of `model.d_model`.
    rates
        Learning rates, for all or by architecture.
    options
        Options of the task.
    fields
        Fields of every experiment.
    usual
        Rates of recipes that do not compare widths.
    more_seeds
        Further seeds of the widest models.

    Examples
    --------
    >>> from mecheval import Size
    >>> Size(widths=(8,), rates={"mamba": (0.01,), "attention": (0.001,)}).rates_of("h3")
    [0.001, 0.01]
    """

    widths: Sequence[int]
    rates: Rates
    options: Mapping[str, Scalar] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    usual: Rates = ()
    more_seeds: Sequence[int] = ()

    def rates_of(self, architecture: str) -> Sequence[float]:
        """Return the rates of an architecture; one that is not listed is tried at every rate."""
        if not isinstance(self.rates, Mapping):
            return self.rates
        every = sorted({rate for rates in self.rates.values() for rate in rates})
        return self.rates.get(Spec.parse(architecture).name, every)

    def fields_of(self, architecture: str) -> Mapping[str, Any]:
        """Return the fields for an architecture; a third-party model keeps its initialisation."""
        if not build_architecture(architecture).whole:
            return self.fields
        return {n: value for n, value in self.fields.items() if not n.startswith("model.init.")}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of the experiments of a recipe.

    `grammars` are tasks for recipes that compare several; `lengths` of documents and `tokens` of a
    step are for recipes that measure cost. Recipes that do not compare widths have all widths and
    rates only if `every_width` is set.

    Parameters
    ----------
    name
        Its name.
    recall
        Size of experiments on recall and on third-party tasks.
    treecall
        Size of experiments on treecall.
    seeds
        Seeds of every experiment.
    grammars
        Tasks for recipes that compare several.
    lengths
        Lengths of documents for recipes that measure cost.
    tokens
        Tokens of a step for those.
    every_width
        All widths and rates, also in recipes that do not compare them.

    Examples
    --------
    >>> from mecheval import Scale, Size
    >>> fields = {"train.documents": 0, "train.steps": 2, "eval.documents": 8}
    >>> size = Size(widths=(8,), rates=(0.01,), fields=fields)
    >>> scale = Scale(name="tiny", recall=size, treecall=size)
    >>> [one.train.steps for one in scale.experiments("recall:pairs=2", ["mamba"])]
    [2]
    """

    name: str
    recall: Size
    treecall: Size
    seeds: Sequence[int] = (0,)
    grammars: Sequence[str] = ("atr", "atr_8192", "atr_l10")
    lengths: Sequence[int] = (64, 128, 256, 512, 1024, 2048, 4096)
    tokens: int = 16_384
    every_width: bool = False

    def experiments(
        self,
        task: str,
        architectures: Sequence[str] = ARCHITECTURES,
        layers: Sequence[int] = (2,),
        fields: Mapping[str, Any] | None = None,
    ) -> Iterator[Experiment]:
        """Yield every architecture, width, depth, rate and seed; `fields` override the scale's."""
        spec, size = self._sized(task)
        for architecture, width, depth in product(architectures, size.widths, layers):
            model = {"model.architecture": architecture, "model.d_model": width}
            model["model.layers"] = depth
            others = {**size.fields_of(architecture), **(fields or {})}
            for rate, seed in product(size.rates_of(architecture), self.seeds_of(size, width)):
                varied = {"task": str(spec), **model, "train.lr": rate, "seed": seed}
                yield Experiment.of({**varied, **others})

    def seeds_of(self, size: Size, width: int) -> Sequence[int]:
        """Return the seeds of models of a width."""
        more = size.more_seeds if width == max(size.widths) else ()
        return list(dict.fromkeys((*self.seeds, *more)))

    def with_seeds(self, number: int) -> "Scale":
        """Return the same scale with so many seeds for every model."""
        scale = replace(self, seeds=range(number))
        return scale._with(lambda size: replace(size, more_seeds=()))

    def widest(self) -> "Scale":
        """Return the same scale with the largest width alone."""
        return self._with(lambda size: replace(size, widths=(max(size.widths),)))

    def aside(self) -> "Scale":
        """Return the scale of recipes that do not compare widths: the widest at usual rates."""
        if self.every_width:
            return self
        return self.widest()._with(lambda size: replace(size, rates=size.usual or size.rates))

    def _with(self, change: Callable[[Size], Size]) -> "Scale":
        return replace(self, recall=change(self.recall), treecall=change(self.treecall))

    def _sized(self, task: str) -> tuple[Spec, Size]:
        """Return a task with the scale's options; a third-party task is trained as recall is."""
        spec = tasks.expand(Spec.parse(task))
        if spec.name not in ("recall", "treecall"):
            return spec, self.recall
        size = self.recall if spec.name == "recall" else self.treecall
        return Spec(spec.name, {**size.options, **spec.options}), size


Recipe = Callable[[Scale], Iterator[Experiment]]

recipes = Registry("recipe", given=("scale",))
for _name in ("cost", "demo", "emergence"):
    recipes.add(_name, f"mecheval.sweeps.builtin:{_name}")
for _name in ("convolutions", "lattice", "mamba3", "modern"):
    recipes.add(_name, f"mecheval.sweeps.newer:{_name}")

scales = Registry("scale")
for _name in ("quick", "small"):
    scales.add(_name, f"mecheval.sweeps.builtin:{_name}")


def recipe(name: str) -> Callable[[Recipe], Recipe]:
    """Register a function from a scale to experiments; its first line of text is the summary.

    Parameters
    ----------
    name
        The name in `mecheval sweep run NAME`.

    Returns
    -------
    decorator
        It takes the function.

    Examples
    --------
    >>> from mecheval import get_scale, recipe
    >>> @recipe("two_mixers")
    ... def two_mixers(scale):
    ...     "Two architectures on the scale's AR."
    ...     yield from scale.experiments("recall", ["attention", "mamba"])
    >>> len({one.model.architecture for one in two_mixers(get_scale("quick"))})
    2
    """

    def register(function: Recipe) -> Recipe:
        recipes.add(name, function)
        return function

    return register


def get_experiments(recipe: str, scale: Scale) -> list[Experiment]:
    """Return the experiments of a recipe, each once, in the order of the recipe."""
    return list({one.key: one for one in recipes.get(recipe)(scale)}.values())


def get_scale(name: str) -> Scale:
    """Return the scale of a name: quick, small or another that is registered.

    Parameters
    ----------
    name
        A registered scale.

    Returns
    -------
    Scale
        The scale.

    Examples
    --------
    >>> from mecheval import get_scale
    >>> get_scale("quick").name
    'quick'
    """
    return scales.get(name)()


def recipe_names() -> list[str]:
    """Return the recipes of numbered figures in their order, then the others by name."""
    return sorted(sorted(recipes.names()), key=figure_order)


def figure_order(recipe: str | None) -> tuple[bool, int, str]:
    """Return a sort key: numbered figures come first, all other recipes are equal."""
    match = re.fullmatch(r"figure(\d+)(\w*)", recipe or "")
    return (False, int(match[1]), match[2]) if match else (True, 0, "")
