"""Room 2, models: where mixers are registered."""

from mecheval.registry import Registry

mixers = Registry("mixer", given=("d_model", "max_len"))
