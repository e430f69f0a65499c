"""The state mixer of a block: W₂ gelu(W₁ x)."""

from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.ops.mlp import mlp


class MLP(nn.Module):
    def __init__(self, d_model: int, expand: int = 4) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, expand * d_model)
        self.fc2 = nn.Linear(expand * d_model, d_model)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        return mlp(x, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)
