"""Mixers side by side in one block, as in Falcon-H1: their outputs add up."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.site import Site


class Parallel(nn.Module):
    """The sum of several mixers; what each adds is a site, `attention_out` of `attention`."""

    def __init__(self, mixers: Sequence[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.names: list[str] = []
        for place, (name, mixer) in enumerate(mixers):
            alike = [given for given, _ in mixers[:place] if given == name]
            self.names.append(f"{name}_{len(alike) + 1}" if alike else name)
            self.add_module(self.names[-1], mixer)
            about = f"what {self.names[-1]} adds to the stream"
            self.add_module(f"{self.names[-1]}_out", Site("batch time d_model", about))

    @property
    def mixers(self) -> list[nn.Module]:
        return [self.get_submodule(name) for name in self.names]

    def forward(self, x: Stream) -> Stream:
        outputs = [self.get_submodule(f"{name}_out")(mixer(x)) for name, mixer in self._named()]
        return sum(outputs[1:], start=outputs[0])

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions."""
        outputs = [_read(mixer, x, at) for mixer in self.mixers]
        return sum(outputs[1:], start=outputs[0])

    @property
    def state_size(self) -> Callable[[int], int] | None:
        """A function of the length, if every mixer has one."""
        sizes = [getattr(mixer, "state_size", None) for mixer in self.mixers]
        known = [size for size in sizes if size is not None]
        return (lambda time: sum(size(time) for size in known)) if known == sizes else None

    def _named(self) -> Iterator[tuple[str, nn.Module]]:
        return zip(self.names, self.mixers, strict=True)


def _read(mixer: Any, x: Stream, at: Reads) -> Output:
    return mixer.read(x, at) if hasattr(mixer, "read") else gather_reads(mixer(x), at)
