"""Named tensors as bytes in the safetensors format: nothing in it can run."""

from collections.abc import Mapping

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mecheval.runs.files import Damaged


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """The same bytes for the same tensors."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())})


def unpacked(content: bytes) -> dict[str, Tensor]:
    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # a dtype torch does not have is a KeyError
        raise Damaged(f"these are no safetensors: {error}") from error
