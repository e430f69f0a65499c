"""What was measured beside the runs, as it is kept: without torch, so that a card that is there is there at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json, write_json

FILE = "examined.json"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Examined:
    """`cells`: by task, site and role, the share of the lost likelihood that is restored. `looks`: by task, layer and
    roles, the share of the weights, mean over heads and of the head that looks there most. `costs`: by architecture.
    `steps`: how often a baseline's step fits into one of the subject's, median and middle half of the rounds."""

    cells: list[Row]
    looks: list[Row]
    costs: list[Row]
    steps: list[Row]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examined(best: Mapping[str, Path], experiments: Sequence[Experiment], folder: Path) -> Examined:
    """As `examine` gives it. Kept in the folder, where it is found as long as the runs are the same."""
    of = {"runs": {task: run.name for task, run in best.items()}, "experiments": [one.key for one in experiments]}
    try:
        kept = read_json(folder / FILE)
        if kept["of"] == of:
            return Examined(**kept["found"])
    except (Damaged, KeyError, TypeError):
        pass  # it is not there yet, or not whole: it can be measured again
    from mecheval.cards.measure import examine

    found = examine(best, experiments)
    write_json(folder / FILE, {"of": of, "found": found.to_dict()})
    return found
