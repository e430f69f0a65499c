"""Small models of transformers with a tokenizer, built in a moment."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from mecheval.models.hf.model import HubModel
from support.lexicons import SEPARATOR, tokenizer

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}


def llama(vocab_size: int, layers: int = 3, **options: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=vocab_size, num_hidden_layers=layers, **SIZES, **options)
    return LlamaForCausalLM(config).eval()


@cache
def fast_tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer("byte_level"), bos_token=SEPARATOR)


def with_words(layers: int = 2) -> HubModel:
    """Return an untrained model that has words."""
    size = len(fast_tokenizer()) + 4  # as models are padded
    return HubModel(llama(size, layers, num_key_value_heads=2), "tiny", fast_tokenizer())


def save(folder: Path, layers: int = 2) -> str:
    """Write such a model with its tokenizer, and return its name on the command line."""
    llama(len(fast_tokenizer()) + 4, layers).save_pretrained(folder)
    fast_tokenizer().save_pretrained(folder)
    return f"hf:{folder}"
