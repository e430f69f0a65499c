"""A card of a model that nobody trained here: asked in words, measured, written as one page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import short
from mecheval.interventions.layer_map import LayerMap, layer_map
from mecheval.interventions.verdict import Verdict
from mecheval.metrics.capacity import PAIRS, Capacity, capacity, most_pairs
from mecheval.results.csv import to_csv
from mecheval.runs.files import write
from mecheval.tasks import tasks
from mecheval.tasks.recall import Recall
from mecheval.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mecheval.interventions.heads import Heads
    from mecheval.models.hf.model import HubModel

PARTS = "parts"  # folder of what is measured already
CAVEATS = (
    "A corruption changes every reading of the key; the clean activation is restored at the last.",
    "A share says where the information is sufficient, not that nothing else would do.",
    "Words are asked by one template; another has other accuracies.",
    "Attention weights say where a head looks; that it matters is said by its ablation alone.",
)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Examined:
    """The findings in one list of words."""

    words: str
    task: Any
    capacity: Capacity
    verdict: Verdict
    layers: LayerMap
    heads: "Heads | None"

    @property
    def sentences(self) -> dict[str, str]:
        said = {"verdict": str(self.verdict), "layers": str(self.layers)}
        curve = [f"{row.accuracy:.0%} with {row.pairs}" for row in self.capacity.by_pairs()]
        said["capacity"] = f"right answers by pairs: {', '.join(curve)}"
        return said | ({"heads": str(self.heads)} if self.heads else {})

    def tables(self) -> dict[str, Any]:
        """Return data frames by name, each with the column `words`."""
        found = {"capacity": self.capacity.to_frame(), "layers": self.layers.to_frame()}
        if self.heads:
            found |= {"heads": self.heads.to_frame(), "ablations": self.heads.ablation_frame()}
        return {name: frame.assign(words=self.words) for name, frame in found.items()}

    def figures(self) -> "dict[str, Figure]":
        found = {"capacity": self.capacity.plot(), "layers": self.layers.plot()}
        return found | ({"heads": self.heads.plot()} if self.heads else {})


@dataclass(frozen=True)
class ModelCard:
    """The findings about a model in each list of words, and the folder they are written to.

    Parameters
    ----------
    facts
        The model, the task and the template.
    parts
        What each list of words has shown.
    folder
        Where the files are.

    Examples
    --------
    >>> from mecheval import examine
    >>> examine.__name__
    'examine'
    """

    facts: Mapping[str, Any]
    parts: tuple[Examined, ...]
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """Return all facts, verdicts and sentences as JSON has them."""
        parts = []
        for part in self.parts:
            verdict = part.verdict.to_dict()
            parts.append({"words": part.words, "verdict": verdict, "sentences": part.sentences})
        return {**self.facts, "words": parts}

    def __repr__(self) -> str:
        said = [f"{part.words}: {part.verdict.mechanism}" for part in self.parts]
        return short(f"ModelCard({self.facts['model']}; {', '.join(said)})")


def examine(
    model: "HubModel",
    task: Task | None = None,
    words: Sequence[str] = ("nouns", "names"),
    template: str = "rows",
    *,
    documents: int = 320,
    pairs: Sequence[int] = PAIRS,
    asked: int = 100,
    seed: int = 0,
    out: str | Path = "runs/examined",
    facts: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ModelCard:
    """Ask a model to recall in its own words, and write how it does that to a folder.

    Parameters
    ----------
    model
        A model, as `load_hf` returns it.
    task
        What is asked; by default recall of 4 pairs that are read twice.
    words
        Lists of words: each is asked by itself.
    template
        How pairs are written.
    documents
        Documents of the interventions.
    pairs
        Numbers of pairs of the capacity curve.
    asked
        Documents of each number of pairs, and of the scores of heads.
    seed
        Seed of all documents.
    out
        Folder of page, tables and figures. Parts of the grid that are there are not measured
        again.
    facts
        More to be written down, such as where the weights come from.
    progress
        Called with what is done, and how much of how many.

    Returns
    -------
    ModelCard
        Verdict, capacity curve, layer map and heads for each list of words.

    Examples
    --------
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from mecheval import HubModel, Recall, examine
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    >>> config = LlamaConfig(vocab_size=19, num_hidden_layers=2, **sizes)
    >>> task = Recall(pairs=2, passes=2, vocab=16)
    >>> model = HubModel(LlamaForCausalLM(config).eval(), "tiny")
    >>> examine(model, task, ["ids"], documents=40, pairs=(2,), asked=8, out="here")
    ModelCard(tiny; ids: unsolved)
    """
    from mecheval.models.hf.lexicon import in_words

    given = Recall(pairs=4, passes=2) if task is None else task
    if not words or documents < 1:
        raise InvalidInput(f"{words=} and {documents=} must not be empty")
    asked_in = {name: in_words(given, model, name, template) for name in dict.fromkeys(words)}
    folder, parts = Path(out), []
    for name, worded in asked_in.items():
        sizes = most_pairs(worded, pairs, model.max_len)
        parts.append(_examine(model, name, worded, sizes, documents, asked, seed, folder, progress))
    card = ModelCard({**_facts(model, given, template), **(facts or {})}, tuple(parts), folder)
    write_card(card)
    return card


def _examine(
    model: "HubModel",
    name: str,
    task: Task,
    pairs: Sequence[int],
    documents: int,
    asked: int,
    seed: int,
    folder: Path,
    progress: Progress | None,
) -> Examined:
    from mecheval.interventions.depth import depth_grid
    from mecheval.interventions.heads import heads

    def step(what: str) -> Callable[[int, int], None]:
        return lambda done, total: progress(f"{name}: {what}", done, total) if progress else None

    curve = capacity(model, task, pairs, documents=asked, seed=seed, progress=step("capacity"))
    how: dict[str, Any] = {"documents": asked, "seed": seed, "progress": step("heads")}
    found = heads(model, task, **how) if model.attending else None
    kept: dict[str, Any] = {"folder": folder / PARTS, "progress": step("layers")}
    grid = depth_grid(model, task, documents=documents, seed=seed, **kept)
    mapped = layer_map(grid, model.layer_kinds if model.kinds else ())
    return Examined(name, task, curve, grid.verdict(), mapped, found)


def _facts(model: "HubModel", task: Task, template: str) -> dict[str, Any]:
    count = sum(p.numel() for p in model.parameters())
    return {
        "model": model.name,
        "family": model.family,
        "layers": model.depth,
        "parameters": f"{count:,}",
        "dtype": str(model.dtype).removeprefix("torch."),
        "task": _spec(task),
        "template": template,
        "caveats": list(CAVEATS),
    }


def _spec(task: Task) -> str:
    try:
        return str(tasks.spec_of(task))
    except InvalidInput:  # its class is not registered, so that no spec builds it
        return str(task)


def write_card(card: ModelCard) -> None:
    """Write tables, figures, JSON and a page that holds them all."""
    import json

    from pandas import concat

    card.folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[Any]] = {}
    for part in card.parts:
        for name, frame in part.tables().items():
            tables.setdefault(name, []).append(frame)
    for name, frames in tables.items():
        write(card.folder / f"{name}.csv", to_csv(concat(frames, ignore_index=True)).encode())
    pictures = {}
    for part in card.parts:
        for name, figure in part.figures().items():
            picture = _png(figure)
            pictures[part.words, name] = picture
            write(card.folder / f"{name}-{part.words}.png", picture)
    text = json.dumps(card.to_dict(), ensure_ascii=False, indent=1)
    write(card.folder / "result.json", text.encode() + b"\n")
    write(card.folder / "card.html", _page(card, pictures).encode())


def _png(figure: "Figure") -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()


def _page(card: ModelCard, pictures: Mapping[tuple[str, str], bytes]) -> str:
    import base64

    from mecheval.report.page import render

    parts = []
    for part in card.parts:
        tables = {name: frame.to_dict("records") for name, frame in part.tables().items()}
        tables = {name: lines for name, lines in tables.items() if lines and name != "heads"}
        shown = {}
        for (words, name), picture in pictures.items():
            if words == part.words:
                shown[name] = "data:image/png;base64," + base64.b64encode(picture).decode()
        parts.append(
            {
                "words": part.words,
                "sentences": part.sentences,
                "heads": part.heads is not None,
                "tables": {name: [_rounded(line) for line in t] for name, t in tables.items()},
                "pictures": shown,
                "example": _example(part.task),
            }
        )
    title = f"{card.facts['model']} · mechanism card"
    folder = Path(__file__).with_name("templates")
    return render("examined.html", folder, title=title, facts=card.facts, parts=parts)


def _example(task: Any) -> dict[str, str]:
    docs = task.documents(0, "test", 0, 1)
    tokens = docs.tokens[0, : docs.lengths[0]].tolist()
    text = task.text(docs, 0) if hasattr(task, "text") else " ".join(map(task.word, tokens))
    return {"text": text, "answer": task.word(int(docs.answer[0]))}


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in line.items()
    }
