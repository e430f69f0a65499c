"""BaseConv (Arora et al. 2024a): y = conv(x) ∘ (W x + b) + x.

The convolution is short, or long with an implicit filter; the long one adds its input, k * x + x.
The mixer has a residual of its own, in addition to the block's.
"""

from torch import nn

from mecheval.models.layers import ImplicitFilter, ShortConv
from mecheval.models.mixer_options.paper import BaseConvOptions
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.long_conv import long_conv, long_read
from mecheval.models.site import Site


class BaseConv(BaseConvOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, kernel = self.d_model, self.kernel
        self.filter = ImplicitFilter(d_model, self.max_len) if kernel == "long" else None
        self.conv = None if kernel == "long" else ShortConv(d_model, int(kernel))
        self.projection = nn.Linear(d_model, d_model)
        if kernel == "long":
            self.long_out = Site("batch time d_model", "the long convolution's output")
        else:
            self.conv_out = Site("batch time d_model", "the short convolution's output")
        about = "convolution times projection, before the mixer's own residual"
        self.gate_out = Site("batch time d_model", about)

    def forward(self, x: Stream) -> Stream:
        return self.gate_out(self._convolve(x) * self.projection(x)) + x

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions."""
        here = gather_reads(x, at)
        if self.filter is not None:
            convolved = long_read(x, self.filter(x.shape[1]), at) + here
        else:
            assert self.conv is not None
            convolved = self.conv.read(x, at)
        return convolved * self.projection(here) + here

    def state_size(self, time: int) -> int:
        width = time if self.conv is None else self.conv.kernel_size[0] - 1
        return self.projection.in_features * width

    def _convolve(self, x: Stream) -> Stream:
        if self.filter is not None:
            return self.long_out(long_conv(x, self.filter(x.shape[1])) + x)
        assert self.conv is not None
        return self.conv_out(self.conv(x))
