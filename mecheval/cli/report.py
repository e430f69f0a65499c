"""`mecheval figure`, `report` and `keep`: figures, pages and archives of finished runs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mecheval.cli.app import AllowDamaged, Json, all_of, app, print_json, say_damaged

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="a recipe's name, or N for the recipe figureN"),
]
Runs = Annotated[
    Path,
    typer.Option("--runs", metavar="DIR", help="the folder of a sweep of that recipe"),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="format by its ending: png pdf svg json csv html"),
]
Folders = Annotated[
    list[Path],
    typer.Argument(metavar="DIR", help="folders with runs, or with kept studies"),
]
Page = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE.html", help="the page; DIR/report.html if left out"),
]


@app.command(epilog="Example: mecheval figure emergence --runs runs/emergence-quick")
def figure(
    name: Name,
    runs: Runs,
    out: Out = None,
    allow_damaged: AllowDamaged = False,
    as_json: Json = False,
) -> None:
    """Draw the figure of a recipe from the runs of a sweep."""
    from mecheval.report.drawing import draw, figure_named
    from mecheval.report.files import check_ending, default_files, records, save
    from mecheval.report.study import Study

    figure_named(name)
    if out:
        check_ending(out)
    study = Study.read(runs)
    figure = draw(study, name)
    if as_json:
        print_json(records(figure.table()))
    else:
        for path in [out] if out else default_files(figure):
            save(figure, path)
            print(path)
    say_damaged(study.damaged, allow_damaged)


@app.command(epilog="Example: mecheval report runs/emergence-quick")
def report(
    folders: Folders,
    out: Page = None,
    allow_damaged: AllowDamaged = False,
    as_json: Json = False,
) -> None:
    """Write one page about folders of runs: verdicts, figures, training, data and failures.

    The page needs no network.
    """
    from mecheval.report.facts import counts
    from mecheval.report.files import write_page
    from mecheval.report.study import Study
    from mecheval.terminal import tables as terminal

    path = out or (Path() if len(folders) > 1 else folders[0]) / "report.html"
    with terminal.working("reading runs, drawing figures and documents"):
        studies = all_of(*(partial(Study.read, folder) for folder in folders))
        write_page(studies[0], path, *studies[1:])
    if as_json:
        partial_study = any(study.partial for study in studies)
        print_json({"report": str(path), "partial": partial_study, **counts(*studies)})
    else:
        print(path)
    say_damaged([line for study in studies for line in study.damaged], allow_damaged)


@app.command(epilog="Example: mecheval keep runs/emergence-quick --out kept/emergence")
def keep(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder of the tables")],
    allow_damaged: AllowDamaged = False,
    as_json: Json = False,
) -> None:
    """Archive the measurements of runs without their weights; 'figure' and 'report' read them.

    Several folders of the same sweep, archives among them, become one study, together with single
    runs of its experiments.
    """
    from mecheval.results.keep import keep

    kept = keep(folders, out)
    size = sum(file.stat().st_size for file in kept.files(out))
    runs, rows = len(kept.runs), len(kept.rows)
    if as_json:
        print_json({"out": str(out), "runs": runs, "rows": rows, "bytes": size})
    else:
        print(f"{out}: {runs} runs, {rows:,} measurements, {size / 1000:,.0f} kB")
    say_damaged(kept.damaged(), allow_damaged)
