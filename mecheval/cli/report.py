"""Figures and the page, from finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from mecheval.cli.app import Json, app, print_json
from mecheval.cli.run import Folder


@app.command(epilog="Example: mecheval figure 3 --runs runs/figure3-quick")
def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="3 to 13 as in the paper, or cost, demo, emergence, …")],
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="the folder of the sweep it is drawn from")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="its ending says what: png pdf svg json csv html")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draws a figure of the paper, or one beyond it, from the runs of its recipe."""
    from mecheval.report.figures import all_figures
    from mecheval.report.figures.drawing import draw, named
    from mecheval.report.files import check_ending, default_files, records, save
    from mecheval.report.study import Study

    all_figures()
    named(name)
    if out:
        check_ending(out)
    sheet = draw(Study.read(runs), name)
    if as_json:
        print_json(records(sheet.table()))
        return
    for path in [out] if out else default_files(sheet):
        save(sheet, path)
        print(path)


@app.command(epilog="Example: mecheval report runs/figure3-quick")
def report(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="the page; DIR/report.html if left out")
    ] = None,
    as_json: Json = False,
) -> None:
    """Writes one page about a folder of runs: verdicts, figures, training, data, what failed. It needs no network."""
    from mecheval.report.files import write_page
    from mecheval.report.study import Study

    study = Study.read(folder)
    path = write_page(study, out or folder / "report.html")
    if as_json:
        print_json({"report": str(path), "partial": study.partial, **study.counts})
    else:
        print(path)
