"""The learning rate of every step: linear warm-up, then decay (§4.1: 10 % warm-up, cosine to 0)."""

import math

from mecheval.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """Return the rate of step 0 … total−1; the first is above 0, a step more would have 0."""
    warm = round(config.warmup * config.total)
    if step < warm:
        return config.lr * (step + 1) / warm
    if config.schedule == "constant":
        return config.lr
    done = (step - warm) / (config.total - warm)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    return config.lr * (1 + math.cos(math.pi * done)) / 2
