"""Whether the compiled kernels can take some tensors."""

from torch import Tensor


def not_compiled(*inputs: Tensor) -> str:
    """What keeps these from the kernels, if anything does."""
    kinds = {f"{tensor.dtype} on {tensor.device}".removeprefix("torch.") for tensor in inputs}
    return "" if kinds in ({"float32 on cpu"}, {"float64 on cpu"}) else ", ".join(sorted(kinds))
