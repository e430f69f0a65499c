"""The page is whole: nothing in it asks a network, nothing from a file can act in it, and a browser is content."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from report.made import MADE, behaviour, experiment, finished, grid, planned, verdict

from mecheval.report.page import page
from mecheval.report.study import Study
from mecheval.results.workplace import Workplace

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of a sweep with a run of every outcome, and a hostile reason."""
    folder = tmp_path_factory.mktemp("page")
    every = [experiment(name) for name in ("attention", "mamba", "hyena")]
    planned(folder, "demo", every)
    rows = behaviour(0.9, 0.8) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "next_key": 0.0, "query": 0.0})
    curve = [{"step": step, "loss": 1.0, "accuracy": step / 100, "gradient_norm": 0.5} for step in (0, 50, 100)]
    finished(folder, every[0], rows, said=verdict("induction"), curve=curve)
    finished(folder, every[1], status="diverged", reason=f"step 3: {HOSTILE}")
    path = folder / "report.html"
    path.write_text(page(Study.read(folder)), encoding="utf-8")
    return path


class Links(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data", "poster")]

    def handle_data(self, data):
        self.found += re.findall(r"url\(([^)]+)\)", data) if self.lasttag == "style" else []


def outside(text: str) -> list[str]:
    """Neither in the page itself nor data."""
    return [link for link in Links(text).found if not link.startswith(("data:", "#"))]


def test_nothing_in_the_page_is_fetched(written):
    text = written.read_text(encoding="utf-8")
    assert outside(text) == []
    assert "default-src 'none'" in text
    assert outside('<style>a { b: url(c.png) }</style><img src="https://a.b/d">') == ["c.png", "https://a.b/d"]


def test_what_comes_from_files_is_escaped(written):
    text = written.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_hostile_names_of_tasks_and_models_are_escaped(tmp_path):
    one = experiment()
    finished(tmp_path, one, behaviour(0.5, 0.5), said=verdict("induction"))
    study = Study.read(tmp_path)
    for table in (study.runs, study.rows):
        table["task"] = f"recall:note={HOSTILE}"
        table["setting"] = HOSTILE
    text = page(study)
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_the_page_says_what_became_of_every_run(written):
    text = written.read_text(encoding="utf-8")
    for words in ("PARTIAL", "1 done", "1 diverged", "1 missing", "induction", "80.0 %", "by hand"):
        assert words in text, words


def test_its_numbers_can_be_saved(written):
    text = written.read_text(encoding="utf-8")
    for name in ("demo.csv", "verdicts.csv", "runs.csv.gz", "rows.csv.gz", "curves.csv.gz"):
        assert re.search(rf'download="{re.escape(name)}" href="data:', text), name


def test_a_folder_of_single_runs_has_a_page_too(tmp_path):
    finished(tmp_path, experiment(), behaviour(0.5, 0.5))
    text = page(Study.read(tmp_path))
    assert "PARTIAL" not in text
    assert "no verdict" in text


def test_a_page_is_made_where_no_run_was_finished(tmp_path):
    every = [experiment(), experiment("mamba")]
    planned(tmp_path, "figure3", every)
    finished(tmp_path, every[0], status="diverged", reason="nan")
    assert "PARTIAL" in page(Study.read(tmp_path))


def test_a_page_is_made_where_every_run_failed(tmp_path):
    every = [experiment(), experiment("mamba")]
    planned(tmp_path, "figure3", every)
    for one in every:
        fields = {"key": one.key, **one.fields()}
        Workplace(tmp_path / one.name).fail(fields, MADE, "timeout", "not finished after 3 seconds")
    text = page(Study.read(tmp_path))
    assert "PARTIAL" in text
    assert text.count("not finished after 3 seconds") >= 2


def test_torch_is_not_needed(written, tmp_path):
    code = (
        "import sys\n"
        "from mecheval.report.page import page\n"
        "from mecheval.report.study import Study\n"
        f"page(Study.read({str(written.parent)!r}))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def browsed(page: str, tmp_path) -> tuple[str, list[str]]:
    """The page after its scripts, and every line of the browser's console; no name can be looked up."""
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=30000",
            "--dump-dom",
            page,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
def test_a_browser_draws_every_figure_without_a_word_on_its_console(written, tmp_path):
    found, console = browsed(written.as_uri(), tmp_path)
    assert console == []
    assert found.count('class="figure alive"') == found.count('class="spec"') == 2
    assert len(re.findall('<svg[^>]* class="marks"', found)) == 2


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
def test_the_browser_would_have_told_of_an_error_and_of_a_request(tmp_path):
    head = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; script-src 'unsafe-inline'\">"
    page = tmp_path / "bad.html"
    page.write_text(f"{head}<img src='https://example.org/a.png'><script>console.error('broken')</script>")
    _, console = browsed(page.as_uri(), tmp_path)
    assert any("broken" in line for line in console)
    assert any("example.org" in line for line in console)
