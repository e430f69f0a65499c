"""Train a model, intervene on it and print how it recalls. It takes about a minute.

python examples/ten_lines.py
"""
# ruff: noqa: T201

from mecheval import Experiment, ModelConfig, Recall, TrainConfig, run

experiment = Experiment(
    task=Recall(pairs=4, vocab=64),
    model=ModelConfig("attention", init_linear=3.0, init_embedding=5.0),
    train=TrainConfig(lr=1e-3, batch=128, steps=2000, stop=0.99),
)
finished = run(experiment, "runs")  # trains, measures and saves; run again, it opens the result
print(finished.verdict)
grid = finished.intervene(["blocks.1.block_in", "blocks.1.mixer_out"])
print(grid.verdict())
