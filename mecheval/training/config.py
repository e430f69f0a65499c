"""The settings of training, without torch: validated before anything heavy is imported."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Field, settle

Schedule = Literal["cosine", "linear", "constant"]
Row = dict[str, int | float]  # a line of the curve: the step and its metrics
EPOCHS = 16  # §4.1, Associative Recall


def _enough_documents(documents: int, batch: int) -> str | None:
    if documents and documents < batch:
        allowed = f"0 (fresh ones for every step) or at least batch={batch}"
        return f"documents={documents} must be {allowed}"
    return None


def _one_length(epochs: int | None, steps: int | None) -> str | None:
    if epochs is not None and steps is not None:
        return f"epochs={epochs} and steps={steps} exclude each other; give one of them"
    return None


def _fresh_needs_steps(documents: int, steps: int | None) -> str | None:
    if documents == 0 and steps is None:
        return "documents=0 must come with steps: fresh documents have no epochs"
    return None


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training with AdamW (§4.1); `warmup` is the share of steps until the rate reaches `lr`.

    Parameters
    ----------
    documents
        Documents of the training set; 0 draws fresh ones for every step.
    epochs
        Passes over the training set, 16 unless `steps` is given.
    steps
        Number of steps, instead of epochs.
    batch
        Documents of a step.
    bucket
        Batches that are sorted by length together.
    lr
        Highest learning rate.
    schedule
        `cosine`, `linear` or `constant`.
    warmup
        Share of the steps until the rate is highest.
    stop
        Accuracy on dev at which training ends early.

    Examples
    --------
    >>> from mecheval import TrainConfig
    >>> TrainConfig(documents=64, epochs=2, batch=16).total
    8
    """

    documents: Annotated[
        int, Field(ge=0, le=2**24, description="documents of the training set; 0: always fresh")
    ] = 100_032
    epochs: Annotated[
        int | None, Field(ge=1, le=10**6, description="passes over the training set; default 16")
    ] = None
    steps: Annotated[int | None, Field(ge=1, le=10**9, description="instead of epochs")] = None
    batch: Annotated[int, Field(ge=1, le=2**16, description="documents of a step")] = 32
    bucket: Annotated[
        int,
        Field(ge=1, le=2**16, description="batches that are sorted by length together; 1: none"),
    ] = 1
    lr: Annotated[float, Field(gt=0, le=1e9, description="highest learning rate")] = 1e-3
    schedule: Annotated[Schedule, Field(description="decay of the rate after warm-up")] = "cosine"
    warmup: Annotated[float, Field(ge=0, le=1, description="share of the steps of warm-up")] = 0.1
    stop: Annotated[
        float | None, Field(gt=0, le=1, description="dev accuracy at which training stops early")
    ] = None
    constraints: ClassVar = (_enough_documents, _one_length, _fresh_needs_steps)

    def __post_init__(self) -> None:
        settle(self)
        if self.epochs == EPOCHS:  # the default, so that both spellings have one key
            object.__setattr__(self, "epochs", None)

    @property
    def total(self) -> int:
        """The number of steps; an incomplete batch at the end of an epoch is dropped."""
        return self.steps or (self.epochs or EPOCHS) * (self.documents // self.batch)
