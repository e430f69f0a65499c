"""Trained models as classes of transformers: the same logits, in the format that others read.

    here                                                         there
    attention                                                    GPT-2
    transformer:final_norm=rms                                   Llama
    mamba:final_norm=rms                                         Mamba
    mamba2:final_norm=rms                                        Mamba-2
    hybrid:gated_delta_net,final_norm=rms,mlp=false,norm=rms     Qwen3-Next

All but GPT-2 end in an RMSNorm, ours in a LayerNorm unless told otherwise. Qwen3-Next has a gated
MLP, so that our blocks with an MLP have no twin there; it gets an MLP that adds nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

import torch

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import print_scalar
from mecheval.models.build import Model, ours
from mecheval.models.config import build_architecture
from mecheval.models.hf.locate import require
from mecheval.models.hf.twins import TWINS, Twin
from mecheval.models.language_model import LanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NO_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


@torch.no_grad()
def to_transformers(model: Model) -> "PreTrainedModel":
    """Return a model of transformers with the same weights and logits.

    Parameters
    ----------
    model
        One of our models whose architecture transformers has, too.

    Returns
    -------
    PreTrainedModel
        In evaluation mode, in the precision of the model; `save_pretrained` writes a folder.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig, to_transformers
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, max_len=16), vocab_size=12)
    >>> tokens = torch.randint(12, (2, 5))
    >>> there = to_transformers(model)
    >>> type(there).__name__, torch.allclose(there(tokens).logits, model(tokens), atol=1e-5)
    ('GPT2LMHeadModel', True)
    """
    model = ours(model, "only its weights have names that are known")
    twin = _twin_of(model)
    require("transformers")
    transformers: Any = importlib.import_module("transformers")
    sizes = {"vocab_size": model.vocab_size, "num_hidden_layers": len(model.blocks)}
    config = getattr(transformers, f"{twin.name}Config")(
        **sizes, **NO_TOKENS, use_cache=False, tie_word_embeddings=True,
        **twin.config(model, model.get_submodule("blocks.0.mixer")),
    )  # fmt: skip
    weights = twin.outside(model)
    for layer, block in enumerate(model.blocks):
        weights |= {f"{twin.blocks}.{layer}.{n}": w for n, w in twin.weights(block).items()}
    with torch.random.fork_rng(devices=[]):
        theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    theirs.to(model.embedding.weight)
    differing = theirs.load_state_dict(weights, strict=False)
    assert {*differing.missing_keys} <= {"lm_head.weight"}, differing
    assert not differing.unexpected_keys, differing
    theirs.tie_weights()
    return theirs.eval()


def _twin_of(model: LanguageModel) -> Twin:
    """Return the twin of a model, or say what stands in the way."""
    name, architecture = model.config.architecture, build_architecture(model.config.architecture)
    problem = f"model={name} has no twin in transformers"
    kinds = {mixer.name for mixer in architecture.mixers}
    if len({*architecture.pattern}) > 1 or len(architecture.mixers) > 1 or not kinds <= {*TWINS}:
        known = ", ".join(name for name in TWINS if name != "transformer")
        raise InvalidInput(f"{problem}; its layers must all have one mixer of {known}")
    mixer = model.get_submodule("blocks.0.mixer")
    (kind,) = kinds
    twin = TWINS["transformer" if getattr(mixer, "rotary", False) else kind]
    problems = [
        f"{problem}: {option}={print_scalar(getattr(owner, option))}; "
        f"{twin.name} has {option}={print_scalar(needed)}"
        for owner, needs in ((architecture, twin.block_needs), (mixer, twin.mixer_needs))
        for option, needed in needs.items()
        if getattr(owner, option) != needed
    ]
    if problems:
        raise InvalidInput(problems)
    return twin
