"""How fast documents are drawn, as ratios to three plain generators measured in the same run.

    twin      the pure twin of `mecheval.tasks.reference`: the same documents, its randomness in Python too
    random    the same generator fed by Python's own `random`, whose words cost next to nothing
    numpy     a generator in the manner usual in this field: numpy's `choice` for every draw, all pairs examined

The rounds are interleaved; the median of CPU times is taken, with the least and the most beside it.
"""

import argparse
import json
import random
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mecheval.plugins import build_task
from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

TRAIN = 100_032
FLOORS = {"ar_32pairs": 100, "atr": 300}


class PythonRandom(random.Random):
    def below(self, n: int) -> int:
        return self.randrange(n)

    def pick(self, cuts: Sequence[int]) -> int:
        return bisect_right(cuts, self.getrandbits(32))


def compiled(task: Recall | Treecall, n: int) -> None:
    task.documents(0, "train", 0, n)


def twin(task: Recall | Treecall, n: int) -> None:
    key = key_of(task.key, 0, "train")
    for i in range(n):
        attempt = 0
        while task.reference(Stream(key, i, attempt), "train") is None:
            attempt += 1


def plain(task: Recall | Treecall, n: int) -> None:
    rng = PythonRandom(0)
    for _ in range(n):
        while task.reference(rng, "train") is None:
            pass


def by_numpy(task: Recall | Treecall, n: int) -> None:
    rng = np.random.default_rng(0)
    draw = numpy_recall if isinstance(task, Recall) else numpy_treecall
    for _ in range(n):
        while draw(task, rng) is None:
            pass


def numpy_recall(task: Any, rng: np.random.Generator) -> dict[str, Any]:
    half = task.vocab // 2
    keys, values = (rng.choice(half, size=task.pairs, replace=False) for _ in range(2))
    tokens = [1, *(int(token) for pair in zip(3 + keys, 3 + half + values, strict=True) for token in pair), 2]
    asked = int(rng.integers(task.pairs))
    tokens.append(tokens[1 + 2 * asked])
    return {"tokens": tokens, "roles": {"key": 1 + 2 * asked, "value": 2 + 2 * asked}, "answer": tokens[2 + 2 * asked]}


def numpy_treecall(task: Any, rng: np.random.Generator) -> dict[str, Any] | None:
    grammar = task.grammar
    nodes: list[dict[str, Any]] = []
    stack: list[tuple[int, int | None]] = [(grammar.terminals + int(rng.integers(grammar.nonterminals)), None)]
    heads = 0
    while stack:
        if len(nodes) > task.max_symbols:
            return None
        symbol, parent = stack.pop()
        if symbol < grammar.terminals:
            own = None
            if symbol < 0:
                symbol, (own, parent) = -1 - symbol, parent
            nodes.append({"symbol": symbol, "own": own, "parent": parent})
            continue
        x = symbol - grammar.terminals
        body = grammar.bodies[x][rng.choice(len(grammar.bodies[x]), p=grammar.rule_probabilities(x))]
        head = int(rng.choice(grammar.terminals, p=grammar.head_probabilities(x)))
        stack.append((-1 - head, (heads, parent)))
        stack += [(child, heads) for child in reversed(body)]
        heads += 1
    pairs = [
        (child, parent)
        for parent in range(len(nodes))
        for child in range(len(nodes))
        if nodes[child]["parent"] is not None
        and nodes[child]["parent"] == nodes[parent]["own"]
        and not any(other["symbol"] == nodes[child]["symbol"] for other in nodes[child + 1 :])
    ]
    if len(nodes) < 3 or not pairs:
        return None
    value = rng.choice(sorted({parent for _, parent in pairs}))
    key = rng.choice([child for child, parent in pairs if parent == value])
    tokens = [1, *(3 + node["symbol"] for node in nodes), 2, 3 + nodes[key]["symbol"]]
    return {"tokens": tokens, "roles": {"key": 1 + key, "value": 1 + value}, "answer": 3 + nodes[value]["symbol"]}


def cpu_microseconds(draw: Callable[[Any, int], None], task: Any, n: int) -> float:
    start = time.process_time()
    draw(task, n)
    return (time.process_time() - start) / n * 1e6


def measure(task: Any, rounds: int, few: int) -> dict[str, dict[str, float]]:
    """CPU microseconds per document of each generator, the rounds interleaved."""
    sizes = {compiled: TRAIN, twin: few, plain: few, by_numpy: few}
    for draw in sizes:
        draw(task, 10)  # compile, and fill the caches
    times: dict[str, list[float]] = {draw.__name__: [] for draw in sizes}
    for _ in range(rounds):
        for draw, n in sizes.items():
            times[draw.__name__].append(cpu_microseconds(draw, task, n))
    return {
        name: {"median": statistics.median(found), "least": min(found), "most": max(found)}
        for name, found in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--few", type=int, default=500, help="documents of the slow generators in each round")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    results = {}
    print(f"{'task':<12}{'compiled':>22}{'twin':>10}{'random':>10}{'numpy':>10}   times as fast as")
    print(f"{'':<12}{'µs a document':>22}{'µs':>10}{'µs':>10}{'µs':>10}     twin  random   numpy  floor")
    for name, floor in FLOORS.items():
        task = build_task(name)
        found = measure(task, arguments.rounds, arguments.few)
        own = found["compiled"]
        ratios = {other: found[other]["median"] / own["median"] for other in ("twin", "plain", "by_numpy")}
        results[name] = {
            "microseconds": found,
            "ratios": ratios,
            "train_bytes": task.documents(0, "train", 0, TRAIN).nbytes,
        }
        spread = f"{own['median']:.3f} ({own['least']:.3f}–{own['most']:.3f})"
        slow = "".join(f"{found[other]['median']:>10.1f}" for other in ratios)
        print(
            f"{name:<12}{spread:>22}{slow}  " + "".join(f"{ratio:>7.0f}×" for ratio in ratios.values()) + f"{floor:>6}×"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
