"""Loads a model of `transformers` from a folder, a GGUF file or the local cache."""

import io
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from typing import Any

import torch

from mecheval.core.errors import InvalidInput, describe_error
from mecheval.core.spec import HUB
from mecheval.models.hf.locate import Located, import_transformers, locate, read_json
from mecheval.models.hf.model import HubModel

DTYPES = ("float32", "float64", "bfloat16", "float16")
COMPUTED = "rotary_emb.inv_freq"  # which older versions of transformers saved
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_hf(
    text: str, *, dtype: str = "float32", device: str = "cpu", download: bool = False
) -> HubModel:
    """Load a causal language model of `transformers`, with sites.

    Weights are read from safetensors, which are mapped into memory, or from a GGUF file. Pickled
    weights and models with code of their own are refused.

    Parameters
    ----------
    text
        A folder with `config.json`, a GGUF file, or a name that is looked up in the local cache of
        the hub; with or without `hf:` in front.
    dtype
        Type of the weights: float32, float64, bfloat16 or float16.
    device
        Where the model is: cpu, cuda or mps.
    download
        Fetch a name that is not in the local cache. Nothing else uses the network.

    Returns
    -------
    HubModel
        With `tokenizer`, `kinds`, `name`, `vocab_size`, `max_len`, `dtype`, `device` and `notes`.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from mecheval import load_hf
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    >>> module = LlamaForCausalLM(LlamaConfig(vocab_size=12, num_hidden_layers=2, **sizes))
    >>> module.save_pretrained("small")
    >>> model = load_hf("hf:small")
    >>> model.name, model.depth, model.layer_kinds
    ('small', 2, ('attention', 'attention'))
    """
    _check(dtype, device)
    found = locate(text, download)
    transformers = import_transformers()
    name = text.removeprefix(HUB)
    module = _load_module(transformers, found, name, getattr(torch, dtype))
    tokenizer = _load_tokenizer(transformers, found, name)
    vocab_size = module.config.vocab_size
    if tokenizer is not None and len(tokenizer) > vocab_size:
        problem = f"the tokenizer of {name} has {len(tokenizer)} tokens, the model {vocab_size}"
        raise InvalidInput(f"{problem}; give the model its own tokenizer")
    return HubModel(module.to(device), name, tokenizer)


def _check(dtype: str, device: str) -> None:
    problems = []
    if dtype not in DTYPES:
        problems.append(f"dtype={dtype!r} must be one of {', '.join(DTYPES)}")
    if device not in ("cpu", "cuda", "mps"):
        problems.append(f"device={device!r} must be cpu, cuda or mps")
    elif device != "cpu" and not getattr(torch, device).is_available():
        problems.append(f"device {device!r} is not available; use --device cpu")
    if problems:
        raise InvalidInput(problems)


def _load_module(transformers: Any, found: Located, name: str, dtype: torch.dtype) -> Any:
    """Return the model; refuse weights that are damaged, or not all that it has."""
    load = transformers.AutoModelForCausalLM.from_pretrained
    # torch notes once what a device context redirects, and transformers replaces linspace meanwhile
    with torch.device("meta"):
        torch.empty(0)
    try:
        with _quiet():
            module, facts = load(
                found.folder, dtype=dtype, output_loading_info=True, **found.weights
            )
    except Exception as error:  # whatever a configuration or a damaged file leads to
        raise InvalidInput(f"{name} cannot be loaded: {describe_error(error)}") from error
    if lacking := sorted(facts["missing_keys"]):
        raise InvalidInput(f"the weights of {name} lack {_several(lacking)} of it")
    if differing := sorted(str(key) for key in facts["mismatched_keys"]):
        raise InvalidInput(f"the weights of {name} have other sizes than it: {_several(differing)}")
    unused = sorted(key for key in facts["unexpected_keys"] if not key.endswith(COMPUTED))
    if unused and not found.gguf:
        problem = f"the weights of {name} have {_several(unused)} that its config.json does not use"
        raise InvalidInput(f"{problem}; give the configuration that belongs to them")
    return module


def _several(names: Sequence[str]) -> str:
    return f"{len(names)} tensors ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


def _quiet() -> AbstractContextManager[Any]:
    """Leave out the progress of reading a GGUF file where nobody watches."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def _load_tokenizer(transformers: Any, found: Located, name: str) -> Any:
    """Return the tokenizer; None if there is none."""
    if not found.gguf and not any((found.folder / file).is_file() for file in TOKENIZERS):
        return None
    config = found.folder / "tokenizer_config.json"
    if not found.gguf and config.is_file() and "auto_map" in read_json(config):
        raise InvalidInput(f"{config} is refused: it names code of its own (auto_map)")
    try:
        return transformers.AutoTokenizer.from_pretrained(found.folder, **found.options)
    except Exception as error:
        raise InvalidInput(f"the tokenizer of {name} cannot be loaded: {error!r}") from error
