"""The places in a block where a short convolution can stand, as in Canon layers and Inkling.

Canon layers (Allen-Zhu 2025) are A, B, C and D, where B is q, k and v; Inkling's are k, v, O and M.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field

PLACES = {
    "A": "on the mixer's input",
    "q": "on its queries",
    "k": "on its keys",
    "v": "on its values",
    "O": "on the mixer's output",
    "C": "on the MLP's input",
    "D": "inside the MLP",
    "M": "on the MLP's output",
}
CANON = {"A": "A", "B": "qkv", "C": "C", "D": "D"}
AFTER_MIXER = "CDM"  # behind these, a position depends on earlier ones

_ALL = ", ".join(f"{place} {about}" for place, about in PLACES.items())
Sconv = Annotated[str, Field(description=f"short convolutions added to their inputs: {_ALL}")]
Taps = Annotated[int, Field(ge=2, le=4, description="taps of each of them")]


def places_of(sconv: str) -> str:
    """Return the places in their order, or raise InvalidInput for one that does not exist."""
    unknown = [place for place in sconv if place not in PLACES]
    if unknown or len(set(sconv)) < len(sconv):
        wrong = f"has no place {unknown[0]!r}" if unknown else "names a place twice"
        raise InvalidInput(f"sconv={sconv} {wrong} (known: {_ALL})")
    return "".join(place for place in PLACES if place in sconv)


def places_of_canon(canon: str) -> str:
    """Return the places of Canon layers, as "ABCD"."""
    unknown = [layer for layer in canon if layer not in CANON]
    if unknown or len(set(canon)) < len(canon):
        raise InvalidInput(f"canon={canon} must name some of A, B, C and D, each once")
    return places_of("".join(CANON[layer] for layer in canon))


def missing_part(places: str, mlp: bool, projections: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what an architecture lacks for these places, if it does."""
    for place in places:
        if place in "CDM" and not mlp:
            return f"has no MLP, so {place} ({PLACES[place]}) cannot be there"
        if place in "qkv" and not any(place in known for known in projections):
            return f"has no projection to convolve for {place} ({PLACES[place]})"
    return None
