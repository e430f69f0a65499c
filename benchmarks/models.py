"""How fast a model trains, as ratios to its plain form in the same run: all logits, and every op by its `*_ref` twin.

A train step is forward, backward and fused AdamW at batch 32 on AR with 32 pairs and a vocabulary of 8,192; one thread.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.measure import milliseconds
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.mixers.attention import attention_weights
from mecheval.models.ops.delta_rule import delta_rule, delta_rule_ref
from mecheval.models.ops.long_conv import long_conv_ref
from mecheval.models.ops.selective_scan import selective_scan, selective_scan_ref
from mecheval.models.ops.short_conv import short_conv_ref
from mecheval.tasks.recall import Recall

FLOORS = {"attention": 10, "mamba": 30}
BATCH = 32


def attention_ref(q: Any, k: Any, v: Any, seen: None = None) -> Any:
    return torch.einsum("bhts,bshd->bthd", attention_weights(q, k), v)


def published_scan(x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any) -> torch.Tensor:
    """The sequential reference as state-spaces/mamba publishes it: channels before time, exp(dt A) and dt B x of all
    tokens first, then a loop over their slices. The gradient of each slice is as large as the table."""
    x, dt, B, C = (tensor.transpose(1, 2) for tensor in (x, dt, B, C))
    decay = torch.exp(torch.einsum("bdt,dn->bdtn", dt, A))
    written = torch.einsum("bdt,bnt,bdt->bdtn", dt, B, x)
    state, outputs = torch.zeros_like(written[:, :, 0]), []
    for t in range(x.shape[2]):
        state = decay[:, :, t] * state + written[:, :, t]
        outputs.append(torch.einsum("bdn,bn->bd", state, C[:, :, t]))
    return (torch.stack(outputs, dim=2) + D[:, None] * x).transpose(1, 2)


# where each op is called, and its plain form
PLAIN = {
    "mecheval.models.layers": {"short_conv": short_conv_ref},
    "mecheval.models.mixers.attention": {"_attention": attention_ref},
    "mecheval.models.mixers.base_conv": {"long_conv": long_conv_ref},
    "mecheval.models.mixers.delta_net": {"delta_rule": lambda q, k, v, beta, backend: delta_rule_ref(q, k, v, beta)},
    "mecheval.models.mixers.h3": {"long_conv": long_conv_ref},
    "mecheval.models.mixers.hyena": {"long_conv": long_conv_ref},
    "mecheval.models.mixers.mamba": {
        "selective_scan": lambda x, dt, A, B, C, D, backend: selective_scan_ref(x, dt, A, B, C, D)
    },
}


PUBLISHED = {
    "mecheval.models.mixers.mamba": {
        "selective_scan": lambda x, dt, A, B, C, D, backend: published_scan(x, dt, A, B, C, D)
    }
}


@contextmanager
def replaced(by: Mapping[str, Mapping[str, Callable[..., Any]]]) -> Iterator[None]:
    """Other ops, for a while, in the modules that call them."""
    modules = {name: import_module(name) for name in by}
    fast = {(name, op): getattr(modules[name], op) for name, ops in by.items() for op in ops}
    try:
        for name, ops in by.items():
            for op, plain in ops.items():
                setattr(modules[name], op, plain)
        yield
    finally:
        for (name, op), original in fast.items():
            setattr(modules[name], op, original)


def train_steps(architecture: str, d_model: int) -> dict[str, Callable[[], object]]:
    """Our step, the plain one, and for mamba the plain one with the published reference scan, on the same documents."""
    task = Recall()
    docs = task.documents(0, "train", 0, BATCH)
    tokens = torch.from_numpy(docs.tokens).long()
    at, answers = torch.from_numpy(docs.queries).long(), torch.from_numpy(docs.answer).long()
    model = LanguageModel(ModelConfig(architecture=architecture, d_model=d_model), task.vocab_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)

    def step(logits: torch.Tensor) -> None:
        optimiser.zero_grad()
        F.cross_entropy(logits, answers).backward()
        optimiser.step()

    def ours() -> None:
        step(model(tokens, at)[:, 0])

    def plain() -> None:
        with replaced(PLAIN):
            step(model(tokens)[torch.arange(BATCH), at[:, 0]])

    def published() -> None:
        with replaced(PLAIN | PUBLISHED):
            step(model(tokens)[torch.arange(BATCH), at[:, 0]])

    return {"ours": ours, "plain": plain} | ({"published": published} if architecture == "mamba" else {})


def scan_contestants() -> dict[str, Callable[[], object]]:
    """Forward and backward at (batch 32, time 68, d_inner 128, d_state 16)."""
    generator = torch.Generator().manual_seed(0)
    x, dt = (torch.randn(32, 68, 128, generator=generator) for _ in range(2))
    B, C = (torch.randn(32, 68, 16, generator=generator) for _ in range(2))
    inputs = [x, F.softplus(dt - 3), -torch.arange(1.0, 17).repeat(128, 1), B, C, torch.ones(128)]
    inputs = [tensor.requires_grad_() for tensor in inputs]

    def both(scan: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(scan(*inputs).sum(), inputs)

    found = {"ours": both(selective_scan), "ref": both(selective_scan_ref), "published": both(published_scan)}
    try:
        from mambapy.pscan import pscan
    except ImportError:
        return found

    def mambapy(x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any) -> Any:
        states = pscan(torch.exp(dt[..., None] * A), dt[..., None] * B[:, :, None] * x[..., None])
        return (states @ C[..., None]).squeeze(-1) + D * x

    return {**found, "mambapy": both(mambapy)}


def delta_contestants() -> dict[str, Callable[[], object]]:
    """Forward and backward at (batch 32, time 68, one head of 64)."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(32, 68, 1, 64, generator=generator) for _ in range(3))
    beta = torch.rand(32, 68, 1, generator=generator)
    inputs = [tensor.requires_grad_() for tensor in (q, F.normalize(k, dim=-1), v, beta)]

    def both(rule: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(rule(*inputs).sum(), inputs)

    return {"ours": both(delta_rule), "ref": both(delta_rule_ref)}


def gemm_peak() -> float:
    """GFLOP/s of a large matrix product in float32, the machine's limit for one thread."""
    a = torch.randn(1024, 1024)
    found = milliseconds({"gemm": lambda: a @ a}, rounds=9)["gemm"]["least"]
    return 2 * 1024**3 / found / 1e6


def gflops(architecture: str, d_model: int, step_ms: float) -> float:
    """Matrix products of our train step, counted, over the time it took."""
    from torch.utils.flop_counter import FlopCounterMode

    steps = train_steps(architecture, d_model)
    with FlopCounterMode(display=False) as counter:
        steps["ours"]()
    return counter.get_total_flops() / step_ms / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[64])
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    peak = gemm_peak()
    results: dict[str, Any] = {"gemm_peak_gflops": peak}
    print(f"GEMM peak of one thread: {peak:.0f} GFLOP/s")
    print(f"{'':<28}{'ours ms':>22}{'theirs ms':>11}{'times':>8}{'floor':>7}{'GFLOP/s':>10}")
    for name in ("attention", "base_conv", "based", "delta_net", "h3", "hyena", "mamba"):
        for d_model in arguments.widths:
            found = milliseconds(train_steps(name, d_model), arguments.rounds)
            rate = gflops(name, d_model, found["ours"]["median"])
            floors = {"plain": FLOORS.get(name), "published": FLOORS.get(name)} if d_model == 64 else {}
            results[f"step {name} {d_model}"] = {**found, "gflops": rate}
            _print_ratios(f"{name} d={d_model}", found, floors, f"{rate:.1f}")
    for title, contestants, floors in (
        ("selective scan", scan_contestants(), {"ref": 50, "published": 50, "mambapy": 5}),
        ("delta rule", delta_contestants(), {"ref": 10}),
    ):
        results[title] = found = milliseconds(contestants, arguments.rounds)
        _print_ratios(title, found, floors)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def _print_ratios(title: str, found: Mapping[str, Any], floors: Mapping[str, int | None], rate: str = "") -> None:
    ours = found["ours"]
    for other in [name for name in found if name != "ours"]:
        theirs, floor = found[other]["median"], floors.get(other)
        asked = f"{floor}×" if floor else ""
        print(f"{title + ' / ' + other:<28}{_spread(ours):>22}{theirs:>11.1f}{theirs / ours['median']:>7.1f}×", end="")
        print(f"{asked:>7}{rate:>10}")


def _spread(found: dict[str, float]) -> str:
    return f"{found['median']:.1f} ({found['least']:.1f}–{found['most']:.1f})"


if __name__ == "__main__":
    main()
