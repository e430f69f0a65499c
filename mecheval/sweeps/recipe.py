"""A recipe is a function that yields the experiments of a figure, as large as a scale says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Scalar, Spec
from mecheval.models.config import build_architecture
from mecheval.runs.experiment import Experiment
from mecheval.tasks import tasks

ARCHITECTURES = ("attention", "based", "mamba", "delta_net", "hyena", "h3", "base_conv")
MAMBAS = tuple(f"mamba:d_conv={taps}" for taps in range(5))
LINEAR = {"train.schedule": "linear"}  # §4.1 says cosine; figures 10 and 13 were run so
Rates = Sequence[float] | Mapping[str, Sequence[float]]  # for all, or by architecture


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of the experiments on one task: `options` are the task's, `fields` are of every experiment (`train.batch`, …).

    `usual` rates, if any, are those of figures that are not about width; `more_seeds` are of the widest models, beside
    the scale's.
    """

    widths: Sequence[int]
    rates: Rates
    options: Mapping[str, Scalar] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    usual: Rates = ()
    more_seeds: Sequence[int] = ()

    def rates_of(self, architecture: str) -> Sequence[float]:
        """An architecture of somebody else's is tried at every rate."""
        if not isinstance(self.rates, Mapping):
            return self.rates
        every = sorted({rate for rates in self.rates.values() for rate in rates})
        return self.rates.get(Spec.parse(architecture).name, every)

    def fields_of(self, architecture: str) -> Mapping[str, Any]:
        """A whole model of somebody else's keeps its own start."""
        if not build_architecture(architecture).whole:
            return self.fields
        return {name: value for name, value in self.fields.items() if not name.startswith("model.init.")}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the experiments of a recipe are. `grammars` are figure 7's, `lengths` and `tokens` of a step `cost`'s.

    Figures that are not about width have all widths and rates only where `every_width` is set.
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
        """Every architecture, width, number of layers, rate and seed. What is asked for here wins over the scale."""
        spec, size = self._sized(task)
        for architecture, width, depth in product(architectures, size.widths, layers):
            more = size.more_seeds if width == max(size.widths) else ()
            for rate, seed in product(size.rates_of(architecture), dict.fromkeys((*self.seeds, *more))):
                own = {"task": str(spec), "model.architecture": architecture, "model.d_model": width}
                own |= {"model.layers": depth, "train.lr": rate, "seed": seed}
                yield Experiment.of({**own, **size.fields_of(architecture), **(fields or {})})

    def widest(self) -> "Scale":
        """The same with the largest width alone."""
        return self._with(lambda size: replace(size, widths=(max(size.widths),)))

    def aside(self) -> "Scale":
        """For figures that are not about width: the widest models at their usual rates."""
        if self.every_width:
            return self
        return self.widest()._with(lambda size: replace(size, rates=size.usual or size.rates))

    def _with(self, change: Callable[[Size], Size]) -> "Scale":
        return replace(self, recall=change(self.recall), treecall=change(self.treecall))

    @property
    def _sizes(self) -> Mapping[str, Size]:
        return {"recall": self.recall, "treecall": self.treecall}

    def _sized(self, task: str) -> tuple[Spec, Size]:
        """A task of somebody else's is trained as recall is."""
        spec = tasks.expand(Spec.parse(task))
        if spec.name not in self._sizes:
            return spec, self.recall
        size = self._sizes[spec.name]
        return Spec(spec.name, {**size.options, **spec.options}), size


Make = Callable[[Scale], Iterator[Experiment]]


@dataclass(frozen=True)
class Recipe:
    """`figure` is the paper's, if it has one; the first line of `make`'s text says what it is about."""

    name: str
    make: Make
    figure: str | None = None

    @property
    def summary(self) -> str:
        return (self.make.__doc__ or "").strip().partition("\n")[0]

    def experiments(self, scale: Scale) -> list[Experiment]:
        """Each once, in the order of the recipe."""
        return list({experiment.key: experiment for experiment in self.make(scale)}.values())


recipes: dict[str, Recipe] = {}


def recipe(name: str, figure: str | None = None) -> Callable[[Make], Recipe]:
    """Registers a function under a name; yours, in a file given by --plugin, like ours."""
    if name in recipes:
        raise InvalidInput(f"name={name!r} is taken: there is a recipe of that name already")

    def register(make: Make) -> Recipe:
        recipes[name] = Recipe(name, make, figure)
        return recipes[name]

    return register
