"""The end of a sweep: write its figure and its report, print its verdicts."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mecheval.report.study import Study


def write_report(folder: Path) -> "tuple[Study, list[Path]] | None":
    """Write report and figure into the folder of a sweep; return the study and the paths.

    The report is the first path. Return None if no run is finished.
    """
    from mecheval.report.drawing import NothingToDraw, draw, figure_of
    from mecheval.report.files import default_files, save, write_page
    from mecheval.report.study import Study
    from mecheval.results.plan import FINISHED
    from mecheval.results.table import Results
    from mecheval.terminal.tables import working

    if not any(run["status"] in FINISHED for run in Results(folder).runs()):
        return None
    figures: list[Path] = []
    with working("drawing the figure and the report"):
        study = Study.read(folder)
        if name := figure_of(study.recipe):
            with suppress(NothingToDraw):
                sheet = draw(study, name)
                figures = [folder / path.name for path in default_files(sheet)]
                for path in figures:
                    save(sheet, path)
        return study, [write_page(study, folder / "report.html"), *figures]


def print_report(study: "Study", paths: list[Path]) -> None:
    """Print the table of verdicts and the paths of report and figure."""
    from mecheval.report.verdicts import verdicts
    from mecheval.terminal.sweep_view import study_verdicts
    from mecheval.terminal.tables import console

    screen = console()
    screen.print("", study_verdicts(verdicts(study).to_dict("records")), "", sep="\n")
    if study.partial:
        screen.print(f"partial: {study.counted}")
    for path in paths:
        screen.print(str(path), soft_wrap=True)
