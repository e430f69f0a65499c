"""AdamW is torch's own, to the bit, and what has no gradient does not move."""

import subprocess
import sys

import pytest
import torch

from mecheval.training.adamw import AdamW


def drawn(dtype):
    rng = torch.Generator().manual_seed(0)
    return [
        torch.randn(size, generator=rng, dtype=dtype).requires_grad_()
        for size in ((3, 5), (7,), (2, 2))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torch_s_also_while_the_rate_changes(dtype):
    ours, theirs = drawn(dtype), drawn(dtype)
    mine, other = AdamW(ours, 0.1), torch.optim.AdamW(theirs, lr=0.1, weight_decay=0.0, fused=True)
    for step in range(5):
        mine.lr = other.param_groups[0]["lr"] = 0.1 / (step + 1)
        for a, b in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
            a.grad = b.grad = (a.detach() * (step - 1.5)).sin()
        mine.step()
        other.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert torch.equal(ours[2], drawn(dtype)[2])
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        assert mine.state[a].keys() == other.state[b].keys()
        assert all(torch.equal(mine.state[a][name], other.state[b][name]) for name in mine.state[a])


@pytest.mark.slow
def test_a_step_does_not_import_torch_s_compiler():
    code = (
        "import sys, torch; from mecheval.training.adamw import AdamW; "
        "w = torch.ones(2, requires_grad=True); "
        "w.sum().backward(); AdamW([w], 0.1).step(); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
