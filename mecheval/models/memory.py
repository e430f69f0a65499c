"""The memory of recurrent mixers as a site that can be recorded and edited."""

from mecheval.models.ops.recurrence import (
    Decays,
    Keys,
    Outputs,
    Queries,
    Values,
    propagate_edit,
    read_states,
    recurrence,
    recurrence_states,
)
from mecheval.models.site import Site


def memory_site() -> Site:
    """Return the site of a recurrence's memory."""
    about = "the memory after each token; later tokens continue from an edited one"
    return Site("batch time head d_key d_value", about, materialised=True)


def read_memory(
    site: Site,
    q: Queries,
    k: Keys,
    v: Values,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
) -> Outputs:
    """Return the outputs of the recurrence, whose memory passes the site if the site is used."""
    if not site.used:
        return recurrence(q, k, v, w, a, b)
    steps = k.shape[1] // q.shape[1]
    states = recurrence_states(k, v, w, a, b, steps)
    return read_states(q, propagate_edit(states, site(states), w, a, b, steps))
