"""Models trained to recall, half, by chance or not at all, and their kept weights.

`python -m support.trained_models [NAME …]`, in tests/, trains them again and keeps their weights
in tests/interventions/trained, in half precision: the rounded model is the one that is judged.
"""

import argparse
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from mecheval.models.architecture import Architecture
from mecheval.models.build import build_model
from mecheval.models.patterns import parse_pattern
from mecheval.models.registries import architectures, mixers
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import pack_tensors, unpack_tensors
from mecheval.runs.finished import Run
from mecheval.runs.run import run

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "interventions" / "trained"
WINDOW = TESTS / "cards" / "third_party" / "window.py"
COMMON = {
    "task": "recall:pairs=4,vocab=32",
    "model.d_model": 32,
    "model.max_len": 32,
    # with the paper's start, 0.02 for all, accuracy stays at chance for thousands of steps
    "model.init.linear": 3.0,
    "model.init.embedding": 5.0,
    "train.batch": 64,
    "train.lr": 3e-3,
    "train.steps": 2000,
    "train.stop": 0.99,
    "eval.every": 50,
    "eval.documents": 512,
    "eval.grid_documents": 320,
}
SLOW_START = {"train.lr": 1e-3, "train.batch": 128, "train.schedule": "constant"}
SLOW_START |= {"task": "recall:pairs=4,vocab=64", "train.warmup": 0.05}
ATTENTION = {**SLOW_START, "model.architecture": "attention", "model.max_len": 16}
ATTENTION |= {"model.d_model": 56, "train.steps": 1000}
TO_THE_END = {"train.stop": None}
SITUATIONS = {
    "attention": ATTENTION,
    "half learned": {**ATTENTION, "train.stop": 0.4, "eval.every": 10},
    "nearly solved": {
        **SLOW_START,
        "model.architecture": "attention",
    },
    "based": {"model.architecture": "based"},
    "4 layers": {"model.architecture": "based", "model.layers": 4},
    "delta rule": {"model.architecture": "delta_net"},
    "one layer": {"model.architecture": "delta_net", "model.layers": 1},
    "one layer of attention": {
        "model.architecture": "attention",
        "model.layers": 1,
        "train.steps": 1000,
    },
    "attention, then delta rule": {"model.architecture": "attention_delta"},
    "delta rule, then attention": {"model.architecture": "delta_attention"},
    "convolution, then attention": {"model.architecture": "conv_attention"},
    "mamba": {"model.architecture": "mamba", "train.lr": 1e-2},
    "mamba, both layers": {
        "model.architecture": "mamba",
        "model.d_model": 64,
        "model.max_len": 1024,
        "task": "recall:pairs=4,vocab=64",
        "train.batch": 128,
        "train.lr": 1e-2,
        "eval.every": 100,
    },
    "mamba without convolution": {
        "model.architecture": "mamba:d_conv=0",
        "train.lr": 1e-2,
        "train.steps": 1000,
    },
    "memoriser": {
        "model.architecture": "attention",
        "model.d_model": 48,
        "task": "recall:pairs=4,vocab=64",
        "train.documents": 64,
        "train.steps": 300,
        **TO_THE_END,
    },
    "one pair": {
        "model.architecture": "attention",
        "task": "recall:pairs=1,vocab=32",
        "train.steps": 300,
        **TO_THE_END,
    },
    "window too short": {
        "model.architecture": "window:width=4",
        "train.steps": 1000,
        **TO_THE_END,
    },
    "two queries": {"model.architecture": "attention", "task": "recall:pairs=4,queries=2,vocab=32"},
}


def attention_delta() -> Architecture:
    return Architecture(parse_pattern("attention+delta_net"), positions=True)


def delta_attention() -> Architecture:
    return Architecture(parse_pattern("delta_net+attention"), positions=True)


def conv_attention() -> Architecture:
    return Architecture(parse_pattern("base_conv+attention"))


@contextmanager
def registered() -> Iterator[None]:
    """Know the hybrids and the window for a while."""
    spec = importlib.util.spec_from_file_location("third_party_window", WINDOW)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        for registry in (mixers, architectures):
            registry.names()
            patch.setattr(registry, "_targets", dict(registry._targets))
        for hybrid in (attention_delta, delta_attention, conv_attention):
            architectures.add(hybrid.__name__, hybrid)
        mixers.add("window", module.Window)
        yield


def experiment(name: str) -> Experiment:
    """Return the experiment of a situation; call it where `registered`."""
    fields = {**COMMON, **SITUATIONS[name]}
    return Experiment.of({key: value for key, value in fields.items() if value is not None})


def train(name: str, out: Path) -> Run:
    return run(experiment(name), out)


def kept(name: str) -> torch.nn.Module:
    """Return a trained model by its kept weights."""
    made = experiment(name)
    model = build_model(made.model, made.task.vocab_size, made.seed)
    weights = unpack_tensors(_file(name).read_bytes())
    model.load_state_dict({key: weight.float() for key, weight in weights.items()})
    return model.requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train models again and keep their weights.")
    parser.add_argument("names", nargs="*", help=", ".join(SITUATIONS))
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the runs go")
    options = parser.parse_args()
    with registered():
        for name in options.names or SITUATIONS:
            finished = train(name, options.out)
            model = finished.load_model()
            weights = {key: weight.half() for key, weight in model.state_dict().items()}
            content = pack_tensors(weights)
            _file(name).write_bytes(content)
            print(f"{name}: {finished.outcome['steps']} steps, {len(content)} bytes", flush=True)
            print(f"    {finished.verdict}", flush=True)


def _file(name: str) -> Path:
    return FOLDER / f"{name.replace(',', '').replace(' ', '_')}.safetensors"


if __name__ == "__main__":
    main()
