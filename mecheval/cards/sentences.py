"""The sentences of a card, computed from its numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from mecheval.cards.facts import EmergenceStep, Line
from mecheval.interventions.grid import layer_of
from mecheval.interventions.sentence import layer_name
from mecheval.interventions.verdict import Thresholds
from mecheval.report import labels

Row = Mapping[str, Any]
HOLDS = Thresholds().holds  # a verdict, too, says from this share on that a token holds the key
ALL = 1.005  # a share that is shown as more than 100 %
MORE = (
    "the document with the restored token gives the right answer more likelihood than the clean "
    "document does; shares are not parts of a whole"
)
JOINED = ("value", "next_key")  # tokens to which a short convolution can carry the key


def summary(line: Line) -> str:
    """Say how well one task is solved, and how."""
    task = labels.task(line.task)
    if line.accuracy is None:
        return f"On {task} there is no accuracy: it is {line.state}."
    accuracy = f"On {task} it answers {line.accuracy.value:.1%} of the documents correctly"
    if not line.mechanism:
        return f"{accuracy}; no interventions were measured."
    if not line.solved:
        return f"{accuracy}; {line.heading}: {line.meaning}."
    return f"{accuracy}, by {line.heading}: {line.meaning}."


def location(cells: Sequence[Row], kinds: Sequence[str] = ()) -> str:
    """Say which token holds the key's information at the input of each layer.

    `kinds` are the mixers of the layers, where these differ.
    """
    places = []
    for site, shares in _by_site(cells).items():
        if site.startswith("blocks.") and site.endswith("block_in"):
            layer = layer_name(layer_of(site), kinds)
            places.append(f"at the input of {layer} by {_holders(shares)}")
        elif site.endswith("block_in") or site == "final_in":
            places.append(f"after the last layer by {_holders(shares)}")
    return f"The key's information is held {'; '.join(places)}." if places else ""


def above_all(cells: Sequence[Row]) -> str:
    """Explain shares above 100 %, if there are any."""
    shares = [cell["value"] for cell in cells if cell["value"] > ALL]
    if not shares:
        return ""
    most = f"A share above 100 % (here up to {_percent(max(shares))})"
    return f"{most} means that {MORE}."


def convolutions(cells: Sequence[Row], kinds: Sequence[str] = ()) -> list[str]:
    """Say what restoring the output of each short convolution brings back, and at which token.

    `kinds` are the mixers of the layers, where these differ.
    """
    sites = _by_site(cells)
    return [_convolution(site, sites, kinds) for site in sites if site.endswith("conv_out")]


def emergence(steps: Sequence[EmergenceStep]) -> str:
    """Say when the mechanism emerged in each seed."""
    seeds = [f"seed {step.seed} at step {step.step:,} ({_word(step.role)})" for step in steps]
    if not seeds:
        return ""
    start = "The input of the last layer first restores half of the lost likelihood in"
    return f"{start} {', '.join(seeds)}."


def _convolution(site: str, sites: Mapping[str, Mapping[str, float]], kinds: Sequence[str]) -> str:
    shares, layer = sites[site], layer_of(site)
    role = max(JOINED, key=lambda role: shares.get(role, 0.0))
    share, at_key = shares.get(role, 0.0), shares.get("key", 0.0)
    place = f"restoring {site.rpartition('.')[2]} at the {_word(role)}"
    amounts = f"brings back {_percent(share)}, at the key itself {_percent(at_key)}"
    result = f"{layer_name(layer, kinds).replace('layer', 'Layer', 1)}: {place} {amounts}"
    before = sites.get(f"blocks.{layer}.block_in", {}).get(role, 0.0)
    if share < HOLDS:
        return f"{result}. Nothing shows that the short convolution carries the key on."
    if before >= HOLDS:
        there = f"the layer's input there brings back {_percent(before)}"
        return f"{result}. The key was there before the short convolution: {there}."
    enough = f"has carried the key to the {_word(role)}, and that is enough for most of the answer"
    return f"{result}. The short convolution {enough}."


def _holders(shares: Mapping[str, float]) -> str:
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    holders = [f"the {_word(role)} ({_percent(x)})" for role, x in ordered if x >= HOLDS]
    role, most = ordered[0]
    return " and ".join(holders) or f"no single token (most by the {_word(role)}, {_percent(most)})"


def _by_site(cells: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the restored share by site and role."""
    shares: dict[str, dict[str, float]] = {}
    for cell in cells:
        shares.setdefault(cell["site"], {})[cell["role"]] = cell["value"]
    return shares


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # adding 0.0 turns −0 into 0


def _word(role: str) -> str:
    return role.replace("_", " ")
