"""What is so of a model: computed from logits alone, without sites, grids, shares or verdicts.

The forward pass is written out block by block, keys are corrupted here, and a restored token is a
row of the stream that is copied from the clean run to the corrupt one. The documents are others
than those of a verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mecheval.tasks.documents import FIRST_SYMBOL

PLACES = ("key", "value", "next_key", "divider", "query")
SEED, ENOUGH = 4242, 0.2


@dataclass(frozen=True)
class Evidence:
    """What a model does on documents of its task, counted by hand.

    `lost` is the likelihood that a corrupted key takes, document by document. `back[layer, role]`
    is the part of all the lost likelihood that returns with the clean stream at the input of a
    layer (of the one after the last: before the final norm); `each` is that part by document.
    `inside[name, role]` is the same of a module inside a mixer.
    """

    layers: int
    accuracy: float
    train_accuracy: float
    from_document: float
    lost: np.ndarray
    each: dict[tuple[int, str], np.ndarray]
    inside: dict[tuple[str, str], float]

    @property
    def back(self) -> dict[tuple[int, str], float]:
        return {place: float(x.sum() / self.lost.sum()) for place, x in self.each.items()}

    @property
    def loss(self) -> float:
        return float(self.lost.mean())

    def most(self, *roles: str) -> float:
        """Return the most that any of the roles brings back at the input of a later block."""
        return max((self.back[n, r] for n in range(1, self.layers) for r in roles), default=0.0)

    def rise(self, layer: int) -> float:
        """Return what a layer adds to the part that is back at the query."""
        return self.back[layer + 1, "query"] - self.back[layer, "query"]

    def served(self, *roles: str) -> float:
        """Return the part of the documents that lose enough of which the roles bring half back."""
        enough = self.lost >= ENOUGH
        at = range(1, self.layers)
        parts = np.stack([sum(np.maximum(self.each[n, r], 0) for r in roles) for n in at])
        half = (parts >= 0.5 * self.lost).any(axis=0)
        return float(half[enough].mean())


@torch.no_grad()
def evidence(model, task, train_docs=None, documents=500) -> Evidence:
    """Measure a LanguageModel on test documents, and on those it was trained on, if given."""
    docs = task.documents(SEED, "test", 0, documents)
    rows = np.arange(documents)
    clean = docs.tokens
    wrong = clean.copy()
    wrong[rows, docs.roles["key"]] = _other_keys(task, docs)
    streams, other = (list(_streams(model, tokens)) for tokens in (clean, wrong))
    query = docs.roles["query"]
    logits = _logits(model, streams[-1], query)
    right = _likelihood(logits, docs.answer)
    corrupt = _likelihood(_logits(model, other[-1], query), docs.answer)
    each = {}
    for layer, (x, y) in enumerate(zip(streams, other, strict=True)):
        for role in PLACES:
            mended = y.clone()
            mended[rows, docs.roles[role]] = x[rows, docs.roles[role]]
            *_, last = _rest(model, mended, layer)
            restored = _likelihood(_logits(model, last, query), docs.answer)
            each[layer, role] = restored - corrupt
    said = logits.argmax(axis=-1)
    inside = (clean[:, :-1] == said[:, None]).any(axis=1)
    return Evidence(
        layers=len(model.blocks),
        accuracy=float((said == docs.answer).mean()),
        train_accuracy=_accuracy(model, train_docs) if train_docs else float("nan"),
        from_document=float(inside.mean()),
        lost=right - corrupt,
        each=each,
        inside=dict(_inside(model, docs, clean, wrong, right, corrupt)),
    )


def _other_keys(task, docs) -> np.ndarray:
    """Draw for each document a key that it does not have."""
    rng = np.random.default_rng(SEED)
    first, count = FIRST_SYMBOL, task.vocab // 2
    there = np.zeros((len(docs), count), bool)
    for row, tokens in enumerate(docs.tokens):
        keys = tokens[(tokens >= first) & (tokens < first + count)] - first
        there[row, keys] = True
    return np.where(there, -1.0, rng.random(there.shape)).argmax(axis=1) + first


def _streams(model, tokens) -> Iterator[torch.Tensor]:
    """Yield the stream before each block and after the last."""
    x = model.embedding.weight[torch.from_numpy(tokens).long()]
    if model.positions is not None:
        x = x + model.positions.weight[: tokens.shape[1]]
    yield x
    *later, _ = [*_rest(model, x, 0), None]
    yield from later


def _rest(model, x, layer) -> Iterator[torch.Tensor]:
    """Yield the stream after each block from a layer on; the stream itself if there is none."""
    if layer == len(model.blocks):
        yield x
    for block in model.blocks[layer:]:
        x = x + block.mixer(block.norm1(x))
        if block.mlp is not None:
            x = x + block.mlp(block.norm2(x))
        yield x


def _logits(model, x, query) -> np.ndarray:
    at_query = x[torch.arange(len(x)), torch.from_numpy(query).long()]
    return (model.norm(at_query) @ model.embedding.weight.T).double().numpy()


def _likelihood(logits, answer) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds[np.arange(len(odds)), answer] / odds.sum(axis=1)


def _accuracy(model, docs) -> float:
    *_, last = _streams(model, docs.tokens)
    said = _logits(model, last, docs.roles["query"]).argmax(axis=1)
    return float((said == docs.answer).mean())


def _inside(model, docs, clean, wrong, right, corrupt) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield what the output of each short convolution brings back, by torch's own hooks."""
    rows, kept = torch.arange(len(docs)), {}
    query = docs.roles["query"]
    for name, module in model.named_modules():
        if name.endswith("conv_out"):
            with module.register_forward_hook(lambda _, args, out: kept.update(out=out.clone())):
                list(_streams(model, clean))
            for role in ("key", "value", "next_key"):
                at = rows, torch.from_numpy(docs.roles[role]).long()

                def mend(_, args, out, at=at, clean_out=kept["out"]):
                    out = out.clone()
                    out[at] = clean_out[at]
                    return out

                with module.register_forward_hook(mend):
                    *_, last = _streams(model, wrong)
                back = _likelihood(_logits(model, last, query), docs.answer) - corrupt
                yield (name, role), float(back.sum() / (right - corrupt).sum())
