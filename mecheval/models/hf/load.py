"""Loads a model of `transformers` from a folder, a GGUF file or the local cache."""

from typing import Any

from mecheval.core.errors import InvalidInput


def import_transformers() -> Any:
    """Return the package `transformers`, or raise InvalidInput if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        install = "install it with: pip install 'mecheval[hf]'"
        raise InvalidInput(f"transformers is not installed; {install}") from error
    transformers.utils.logging.set_verbosity_error()  # that fast kernels are missing is expected
    return transformers
