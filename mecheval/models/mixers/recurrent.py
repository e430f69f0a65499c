"""Mixers around the linear recurrence share their forward pass, single reads and token mixing.

Each mixer says what it writes, where it reads and what it returns. The memory S_t and what is read
from it, o_t = S_tᵀ q_t, are computed in `mecheval.models.ops.recurrence`.
"""

from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models.layers import ShortConv
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.recurrence import (
    Outputs,
    Queries,
    ReadOutputs,
    ReadQueries,
    Writes,
    propagate_edit,
    read_states,
    recurrence,
    recurrence_read,
    recurrence_states,
    recurrence_weights,
)
from mecheval.models.site import Site


class Recurrent(nn.Module):
    """A mixer around the linear recurrence."""

    state: Site
    head_out: Site

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        """Return where the memory is read, at every position or at some."""
        raise NotImplementedError

    def writes(self, x: Stream) -> Writes:
        """Return what every step does to the memory."""
        raise NotImplementedError

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        """Return what the block adds to the stream x at positions where o is read."""
        raise NotImplementedError

    def add_memory_sites(self) -> None:
        about = "the memory after each token; later tokens continue from an edited one"
        self.state = Site("batch time head d_key d_value", about, materialised=True)
        self.head_out = Site("batch time head d_value", "what each head reads from the memory")

    def forward(self, x: Stream) -> Stream:
        return self.output(self.head_out(self._recur(self.queries(x), self.writes(x))), x)

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions: no memory is computed, and queries only there."""
        o = recurrence_read(self.queries(x, at), self.writes(x), at)
        return self.output(o, gather_reads(x, at))

    def mixing(self, x: Stream) -> Mixed:
        """Return how much of each written value is in what is read, and the values.

        Their product passes `head_out`.
        """
        writes = self.writes(x)
        if writes.steps > 1:
            problem = f"has no one weight between two tokens: a token is written {writes.steps}"
            raise InvalidInput(f"{type(self).__name__} {problem} times")
        return recurrence_weights(self.queries(x), writes), writes.v

    def conv_state_size(self) -> int:
        """Return how many numbers its short convolutions keep."""
        convs = [module for module in self.modules() if isinstance(module, ShortConv)]
        return sum(conv.in_channels * (conv.kernel_size[0] - 1) for conv in convs)

    def _recur(self, q: Queries, writes: Writes) -> Outputs:
        """Return what is read; the memory passes its site if that is used."""
        if not self.state.used:
            return recurrence(q, writes)
        states = recurrence_states(writes)
        return read_states(q, propagate_edit(states, self.state(states), writes))
