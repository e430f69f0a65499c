"""Draws each figure of a page once, however many damaged folders show it."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.torture_room import copy


def draw_once(template: Path) -> None:
    """Let children draw no figure a second time: that takes most of the time of a page.

    This process draws what most of them will: the runs without the damaged one.
    """
    from mecheval.cli import main
    from mecheval.report import page

    drawn: dict[Any, Any] = {}
    draw = page.embed

    def embed(figure: Any) -> Any:
        key = repr([_content(part) for part in figure.parts])
        key += repr((figure.name, figure.title, figure.counted, figure.partial, figure.scale))
        if any("$" in note for note in figure.notes):  # else notes are text, and cannot fail
            key += repr(figure.notes)
        if key not in drawn:
            drawn[key] = draw(figure)
        return {**drawn[key], "figure": figure}

    page.embed = embed
    for folder in ("runs", "sweep"):
        for run in sorted(path for path in (template / folder).iterdir() if path.is_dir()):
            with TemporaryDirectory() as place:
                copy(template / folder, Path(place) / folder)
                (Path(place) / folder / run.name / "rows.jsonl").unlink()
                quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
                with quiet[0], quiet[1]:
                    main(["report", f"{place}/{folder}", "--out", f"{place}/page.html"])


def _content(part: Any) -> list[tuple[str, object]]:
    """Return the fields of a part of a figure, tables as text."""
    fields = vars(part).items()
    return [(name, v.to_csv() if hasattr(v, "to_csv") else v) for name, v in fields]
