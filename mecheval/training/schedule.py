"""The learning rate of every step: up in a line, then down as the schedule says (§4.1: 10 % warm-up, cosine to 0)."""

import math

from mecheval.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """The rate of step 0 … total−1; the first is above 0, and the one after the last would be 0."""
    warm = round(config.warmup * config.total)
    if step < warm:
        return config.lr * (step + 1) / warm
    if config.schedule == "constant":
        return config.lr
    done = (step - warm) / (config.total - warm)
    return config.lr * (1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)
