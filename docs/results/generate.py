"""Write figure.png of each study, README.md and report.html from the tables beside this file."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mecheval.paper.claims import CLAIMS
from mecheval.report.claims import Claim, Finding, check_claims
from mecheval.report.drawing import draw, figure_of, short_name
from mecheval.report.facts import provenance
from mecheval.report.figure import Figure
from mecheval.report.files import save
from mecheval.report.numbers import NO_RUNS, SEEDS
from mecheval.report.page import page
from mecheval.report.study import Study
from mecheval.results.archive import KEPT

HERE = Path(__file__).parent
ORDER = [
    "1",
    "2",
    "3",
    "4a",
    "4b",
    "5",
    "7",
    "8",
    "9",
    "10",
    "11",
    "12",
    "13",
    "grandparent",
    "reverse",
    "emergence",
    "cost",
]
SCALES = {"small": "Small", "laptop": "At the published size"}
WHY = {"small": "why", "laptop": "why-published"}  # in words.toml
AFTERWARDS = "†"  # marks a claim whose rule was written when its runs had been seen
NOT_AT = {"small": ("positions-narrow",), "laptop": ()}  # the recipe was run, but not these widths
FACTS = (
    "mecheval",
    "torch",
    "numba",
    "python",
    "processor",
    "cores",
    "threads",
    "commit",
    "CPU time of all runs",
)


def folders() -> list[Path]:
    """Return the folders of the kept studies, in the paper's order."""
    found = [file.parent for file in HERE.glob(f"*/{KEPT}")]
    return sorted(
        found,
        key=lambda folder: (
            place(folder.name.removeprefix("figure").split("-")[0]),
            folder.name,
        ),
    )


def place(name: str) -> int:
    """Return the place of a study; those that are not of the paper come last."""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def draw_study(study: Study) -> Figure:
    name = figure_of(study.recipe)
    assert name, f"{study.folder} is of no figure"
    return draw(study, name)


def report() -> str:
    return page(*(Study.read(folder) for folder in folders()), place=HERE)


def words() -> dict[str, Any]:
    """Written by hand, without numbers."""
    return tomllib.loads((HERE / "words.toml").read_text(encoding="utf-8"))


@cache
def findings() -> dict[str, list[Finding]]:
    """Return the findings of each claim, at the scales where a number has enough seeds."""
    told = [
        found
        for found in check_claims(CLAIMS, [HERE])
        if any(number.seeds >= SEEDS for number in found.numbers)
    ]
    return {claim.name: [found for found in told if found.claim is claim] for claim in CLAIMS}


def readme() -> str:
    said = words()
    studies = {folder.name: Study.read(folder) for folder in folders()}
    parts = [said["start"].strip(), "## The answers", answers()]
    parts += ["## Claim by claim", said["rules"].strip()]
    for told in CLAIMS:
        parts += claim(told, said)
    parts += [
        "## Figures",
        *(
            part
            for name, study in studies.items()
            for part in picture(name, study, said["figures"])
        ),
    ]
    parts += [
        "## How it was made",
        made(studies),
        f"```text\n{(HERE / 'reproduce.sh').read_text().strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def answers() -> str:
    lines = ["| the paper says | where | runs | small | published size |", "|---|---|---|---|---|"]
    for told in CLAIMS:
        found = {one.scale: f"**{one.answer}**" for one in findings()[told.name]}
        cells = [
            f"[{told.says}](#{told.name}){AFTERWARDS if told.seen else ''}",
            told.where,
            f"`{told.recipe}`",
            *(found.get(scale, missing(told, scale)) for scale in SCALES),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def missing(told: Claim, scale: str) -> str:
    """Say why a claim has no answer at a scale."""
    kept = f"{told.recipe}{'-laptop' if scale == 'laptop' else ''}"
    there = kept in [folder.name for folder in folders()]
    return "one seed" if there and told.name not in NOT_AT[scale] else NO_RUNS


def claim(told: Claim, said: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield f"### {told.name}"
    after = f" {AFTERWARDS} Written when the runs had been seen." if told.seen else ""
    yield f"*{told.says}* ({told.where})\n\nRule: {told.rule}.{after}"
    if not findings()[told.name]:
        yield f"**No runs yet.** {said['missing'][told.name].strip()}"
    for found in findings()[told.name]:
        assert found.scale in SCALES
        yield f"{SCALES[found.scale]}, from `{told.recipe}` at scale `{found.scale}`:"
        lines = ["| measured | seeds, or mean [95 %] | rule | |", "|---|---|---|---|"]
        lines += [
            f"| {number.what} | {number} | {number.bound} | {number.answer} |"
            for number in found.numbers
        ]
        yield "\n".join(lines)
        reason = said[WHY[found.scale]].get(told.name, "").strip()
        yield " ".join(f"**{found.answer.capitalize()}.** {found.limits} {reason}".split())


def picture(name: str, study: Study, said: Mapping[str, str]) -> Iterator[str]:
    yield f"### {name}"
    yield f"{said.get(name, '').strip()} Runs: {study.counted}.".strip()
    yield f"![{draw_study(study).title}]({name}/figure.png)"
    recipe, folder = short_name(str(study.recipe)), f"docs/results/{name}"
    yield f"`mecheval figure {recipe} --runs {folder} --out {folder}/figure.png`"


def made(studies: dict[str, Study]) -> str:
    lines = ["| study | runs | " + " | ".join(FACTS) + " |", "|---" * (len(FACTS) + 2) + "|"]
    for name, study in studies.items():
        facts = provenance(study)
        lines.append(
            f"| {name} | {study.counted} | "
            + " | ".join(facts.get(fact, "–") for fact in FACTS)
            + " |"
        )
    return "\n".join(lines)


def main() -> None:
    for folder in folders():
        save(draw_study(Study.read(folder)), folder / "figure.png")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")
    (HERE / "report.html").write_text(report(), encoding="utf-8")


if __name__ == "__main__":
    main()
