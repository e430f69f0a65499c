"""Options that architectures and mixers share, without torch: listing architectures must be instant."""

from typing import Annotated, Literal

from pydantic import Field

Kernel = Annotated[int, Field(ge=1, le=64)] | Literal["long"]
Backend = Literal["auto", "torch", "numba", "mamba_ssm"]
