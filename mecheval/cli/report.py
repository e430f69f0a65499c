"""Figures and the page, from finished runs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mecheval.cli.app import Json, all_of, app, print_json

Folders = Annotated[list[Path], typer.Argument(metavar="DIR", help="folders with runs, or with kept studies")]


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
    from mecheval.report.drawing import draw, named
    from mecheval.report.files import check_ending, default_files, records, save
    from mecheval.report.parts import all_figures
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
    folders: Folders,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.html", help="the page; if left out DIR/report.html, of several report.html"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Writes one page about folders of runs: verdicts, figures, training, data, what failed. It needs no network."""
    from mecheval.report.facts import counts
    from mecheval.report.files import write_page
    from mecheval.report.study import Study
    from mecheval.terminal import tables as terminal

    path = out or (Path() if len(folders) > 1 else folders[0]) / "report.html"
    with terminal.working("reading runs, drawing figures and documents"):
        studies = all_of(*(partial(Study.read, folder) for folder in folders))
        write_page(studies[0], path, *studies[1:])
    if as_json:
        stamped = any(study.partial for study in studies)
        print_json({"report": str(path), "partial": stamped, **counts(*studies)})
    else:
        print(path)


@app.command(epilog="Example: mecheval keep runs/figure3-quick --out kept/figure3")
def keep(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where the tables will be")],
    as_json: Json = False,
) -> None:
    """Keeps what runs measured, without their weights: 'figure', 'report' and 'compare' read it.

    Several folders of the same sweep, kept studies among them, become one study; runs made one by one come to it.
    """
    from mecheval.results.archive import keep

    kept = keep(folders, out)
    size = sum(file.stat().st_size for file in kept.files(out))
    if as_json:
        print_json({"out": str(out), "runs": len(kept.runs), "rows": len(kept.rows), "bytes": size})
    else:
        print(f"{out}: {len(kept.runs)} runs, {len(kept.rows):,} measurements, {size / 1000:,.0f} kB")
