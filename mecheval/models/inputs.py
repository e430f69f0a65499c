"""Documents as tensors."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from mecheval.tasks.documents import Documents


@dataclass(frozen=True)
class Batch:
    """Documents as a model reads them: tokens, positions of the queries and their answers."""

    tokens: Int[Tensor, "batch time"]
    at: Int[Tensor, "batch reads"]
    answers: Int[Tensor, "batch reads"]

    @classmethod
    def of(cls, docs: Documents, device: torch.device | str = "cpu") -> "Batch":
        arrays = (docs.tokens, docs.queries, docs.answers)
        return cls(*(torch.from_numpy(array).long().to(device) for array in arrays))
