"""A model of one's own trained, looked into and judged, in Python: no experiment, no folder. It takes some seconds.

python examples/ten_lines.py
"""
# ruff: noqa: T201

import torch
from model import Small

from mecheval import ExternalModel, Recall, check_model, fit, interchange, verdict

task = Recall(pairs=4, vocab=32)
torch.manual_seed(0)
model = ExternalModel(Small(task.vocab_size, d_model=64, layers=2, max_len=task.max_len))  # a copy, with sites
check_model(model, task.vocab_size, task.max_len)  # it must not see the future, …
for row in fit(model, task, steps=1000, lr=3e-3, batch=64, stop=0.99):
    print(f"step {row['step']}: accuracy {row['accuracy']:.2f}")
grid = interchange(model, task)  # a key corrupted, then each site restored at each role
found = verdict(grid, layers=2)
print(found.mechanism, found.confidence, found.evidence)
