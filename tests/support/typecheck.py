"""The type checker of the test run, for every annotation with two exceptions.

The checks of a function inside a function would be compiled again at every call of the outer one.
Configurations validate their own fields: what they refuse must reach them.
"""

from typing import Any

from beartype import beartype

VALIDATED = ("ModelConfig", "TrainConfig", "EvalConfig", "GridOptions", "Experiment", "Settings")


def checked(function: Any) -> Any:
    name = function.__qualname__
    validated = name in [f"{config}.__init__" for config in VALIDATED]
    return function if "<locals>" in name or validated else beartype(function)
