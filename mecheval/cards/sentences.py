"""What the numbers say, in words that are worked out from them."""

from collections.abc import Mapping, Sequence
from typing import Any

from mecheval.cards.facts import Emerged, Line
from mecheval.interventions.grid import layer_of
from mecheval.interventions.verdict import Thresholds
from mecheval.report import labels as names

Row = Mapping[str, Any]
HOLDS = Thresholds().holds  # the share from which a verdict, too, says that a token holds the information
JOINED = ("value", "next_key")  # where a short convolution can have taken the key


def did(line: Line) -> str:
    """How well it recalls one task, and how."""
    task = names.task(line.task)
    if line.accuracy is None:
        return f"On {task}: no number, since it is {line.state}."
    right = f"On {task} it answers {line.accuracy.value:.1%} right"
    if not line.mechanism:
        return f"{right}; no interventions were measured."
    if not line.solved:
        return f"{right}: not solved, so that there is no mechanism to name."
    seeds = names.seed_count(line.agree, line.judged)
    return f"{right}, by {line.mechanism} ({seeds}): it {line.meaning}."


def located(cells: Sequence[Row]) -> str:
    """Which token holds the key's information, from layer to layer."""
    stream = [site for site in _sites(cells) if site.endswith("block_in") or site == "final_in"]
    said = [f"{_place(site)}, {_held(_at(cells, site))}" for site in stream]
    return f"Where the key's information is: {'; '.join(said)}." if said else ""


def convolved(cells: Sequence[Row]) -> list[str]:
    """What restoring behind each short convolution brings back, and at which token."""
    return [_convolved(site, _at(cells, site)) for site in _sites(cells) if site.endswith("conv_out")]


def emerged(found: Sequence[Emerged]) -> str:
    """When it came about."""
    said = [f"seed {one.seed} at step {one.step:,} ({one.role.replace('_', ' ')})" for one in found]
    return f"Half of the lost likelihood first comes back at the last layer's input: {', '.join(said)}." if said else ""


def _place(site: str) -> str:
    """Of an input of a block, or of what is behind the last."""
    return f"at the input of layer {site.split('.')[1]}" if site.startswith("blocks.") else "behind the last layer"


def _convolved(site: str, shares: Mapping[str, float]) -> str:
    best = max(JOINED, key=lambda role: shares.get(role, 0.0))
    share, at_key = shares.get(best, 0.0), shares.get("key", 0.0)
    place = f"restoring {site.rpartition('.')[2]} at the {_word(best)}"
    said = f"Layer {layer_of(site)}: {place} brings {_percent(share)} back, at the key itself {_percent(at_key)}"
    if share >= HOLDS:
        return f"{said}: recall depends on the short convolution, which has brought the key to the {_word(best)}."
    return f"{said}: no sign that the key is carried on by the short convolution."


def _held(shares: Mapping[str, float]) -> str:
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    holders = [f"the {_word(role)} ({_percent(share)})" for role, share in ordered if share >= HOLDS]
    return " and ".join(holders) or f"no one token (most the {_word(ordered[0][0])}, {_percent(ordered[0][1])})"


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # no −0


def _at(cells: Sequence[Row], site: str) -> dict[str, float]:
    return {cell["role"]: cell["value"] for cell in cells if cell["site"] == site}


def _sites(cells: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(cell["site"] for cell in cells))


def _word(role: str) -> str:
    return role.replace("_", " ")
