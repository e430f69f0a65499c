"""The page is self-contained: it requests nothing, runs nothing from a file and has no errors."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from support.browser import CHROMIUM
from support.made_runs import (
    MADE,
    PROVENANCE,
    behaviour,
    experiment,
    finished,
    grid,
    planned,
    sweep,
    verdict,
)

from mecheval.core.errors import InvalidInput
from mecheval.report.facts import provenance
from mecheval.report.files import write_page
from mecheval.report.page import page
from mecheval.report.study import Study
from mecheval.results.keep import keep
from mecheval.runs.pending import PendingRun
from mecheval.sweeps.recipe import recipe_names

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of a sweep with a run of every outcome, and a hostile reason."""
    folder = tmp_path_factory.mktemp("page")
    every = [experiment(name) for name in ("attention", "mamba", "hyena")]
    planned(folder, "demo", every)
    rows = behaviour(0.9, 0.8) + grid(
        0.8, 0.1, {"key": 0.0, "value": 1.0, "next_key": 0.0, "query": 0.0}
    )
    curve = [
        {"step": step, "loss": 1.0, "accuracy": step / 100, "gradient_norm": 0.5}
        for step in (0, 50, 100)
    ]
    finished(folder, every[0], rows, said=verdict("induction"), curve=curve)
    finished(folder, every[1], status="diverged", reason=f"step 3: {HOSTILE}")
    path = folder / "report.html"
    path.write_text(page(Study.read(folder)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bound(written, tmp_path_factory):
    """A page of that sweep, of one with the same experiment, and of one without run folders."""
    root = tmp_path_factory.mktemp("bound")
    one, other = experiment(), experiment(task="recall:pairs=5,vocab=64")
    rows = behaviour(0.9, 0.8) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0})
    sweep(root / "tenth", "figure10", [one], lambda _: rows)
    sweep(root / "runs", "figure3", [one, other], lambda _: rows)
    keep([root / "runs"], root / "kept" / "third")
    first, *others = map(Study.read, (written.parent, root / "tenth", root / "kept" / "third"))
    return write_page(first, root / "report.html", *others)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_a_sweep_in_which_nothing_was_finished_has_its_page(recipe, tmp_path):
    planned(tmp_path, recipe, [experiment()])
    finished(tmp_path, experiment(), status="diverged")
    found = page(Study.read(tmp_path))
    assert "1 diverged" in found
    specs = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', found, re.DOTALL)
    assert specs
    for spec in specs:
        json.loads(
            spec, parse_constant=pytest.fail
        )  # of NaN a browser would say that it is no JSON


class Links(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [
            value
            for name, value in attrs
            if name in ("src", "href", "srcset", "action", "data", "poster")
        ]

    def handle_data(self, data):
        self.found += re.findall(r"url\(([^)]+)\)", data) if self.lasttag == "style" else []


def outside(text: str) -> list[str]:
    """Neither in the page itself nor data."""
    return [link for link in Links(text).found if not link.startswith(("data:", "#"))]


@pytest.mark.slow
def test_nothing_in_the_page_is_fetched(written, bound):
    text = written.read_text(encoding="utf-8")
    assert outside(text) == outside(bound.read_text(encoding="utf-8")) == []
    assert "default-src 'none'" in text
    assert outside('<style>a { b: url(c.png) }</style><img src="https://a.b/d">') == [
        "c.png",
        "https://a.b/d",
    ]


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
        fields = one.record()
        PendingRun(tmp_path / one.name).fail(
            fields, MADE, "timeout", "not finished after 3 seconds"
        )
    text = page(Study.read(tmp_path))
    assert "PARTIAL" in text
    assert text.count("not finished after 3 seconds") >= 2


def test_several_studies_are_in_the_papers_order_whatever_was_given_first(bound):
    contents = bound.read_text(encoding="utf-8").partition("<main>")[0]
    found = re.findall(r'<a href="#(s-\d)">([^<]+)</a>', contents)
    assert found == [
        ("s-1", "figure3 · quick"),
        ("s-2", "figure10 · quick"),
        ("s-3", "demo · quick"),
    ]


def test_every_link_of_a_page_leads_to_one_place_in_it(written, bound):
    for path in (written, bound):
        text = path.read_text(encoding="utf-8")
        places = re.findall(r'\bid="([^"]+)"', text)
        assert len(places) == len(set(places))
        assert {link[1:] for link in Links(text).found if link.startswith("#")} <= set(places)


def test_each_study_has_its_own_stamp_and_the_page_the_sum(bound):
    text = bound.read_text(encoding="utf-8")
    third, tenth, demo = (found.partition("</article>")[0] for found in text.split("<article ")[1:])
    assert [part.count("PARTIAL") for part in (third, tenth, demo)] == [0, 0, 1]
    assert ["step 3" in part for part in (third, tenth, demo)] == [False, False, True]
    header = text.partition("</header>")[0]
    assert "Of 6 planned runs, 0 failed and 1 are missing" in header
    assert all(words in header for words in ("3 studies", "4 done", "2 done", "1 missing"))


def test_what_holds_for_all_studies_is_said_once(bound):
    text = bound.read_text(encoding="utf-8")
    for words in (
        "/*! Vega",
        "<code>recall:pairs=4,vocab=64</code>",
        "<code>recall:pairs=5,vocab=64</code>",
        "Seeds that agree: those",
    ):
        assert text.count(words) == 1, words


def test_training_is_shown_where_a_study_is_alone(written, bound):
    titles = [
        re.findall("<h2>([^<]*)</h2>", path.read_text(encoding="utf-8"))
        for path in (written, bound)
    ]
    assert ["Training at the chosen rates" in found for found in titles] == [True, False]


def test_of_several_studies_the_kept_tables_stay_where_they_are(bound):
    text = bound.read_text(encoding="utf-8")
    assert "<code>kept/third/rows.parquet</code>" in text
    saved = re.findall(r'download="([^"]+)" href="data:', text)
    assert saved[:2] == ["figure3-quick-figure3.csv", "figure3-quick-verdicts.csv"]
    assert [saved[2], saved[5]] == ["figure10-quick-figure10.csv", "figure10-quick-rows.csv.gz"]


def test_studies_that_nobody_could_tell_apart_are_refused(tmp_path):
    for name in ("a", "b"):
        sweep(tmp_path / name, "figure3", [experiment()], lambda _: behaviour(0.9, 0.8))
    with pytest.raises(InvalidInput, match=r"a' and DIR='.*b' are both 'figure3 · quick'"):
        page(Study.read(tmp_path / "a"), Study.read(tmp_path / "b"))


def test_a_run_that_a_second_sweep_took_over_was_paid_for_once(tmp_path):
    one, other = experiment(), experiment(seed=1)
    for name, spent in (
        ("first", PROVENANCE),
        ("second", PROVENANCE),
        ("third", {**PROVENANCE, "cpu_seconds": 62.0}),
    ):
        finished(tmp_path / name, one, provenance=spent)
    finished(tmp_path / "first", other)
    found = provenance(*(Study.read(tmp_path / name) for name in ("first", "second", "third")))
    assert found["CPU time of all runs"] == f"{(58 + 58 + 62) / 60:.1f} minutes"


@pytest.mark.slow
def test_torch_is_not_needed(written, tmp_path):
    code = (
        "import sys\n"
        "from mecheval.report.page import page\n"
        "from mecheval.report.study import Study\n"
        f"page(Study.read({str(written.parent)!r}))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def browsed(page: str, tmp_path) -> tuple[str, list[str]]:
    """Return the page after its scripts ran and the lines of the console; DNS is switched off."""
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
def test_a_browser_draws_every_figure_without_a_word_on_its_console(written, bound, tmp_path):
    for path, figures in ((written, 2), (bound, 3)):
        found, console = browsed(path.as_uri(), tmp_path)
        assert console == []
        assert found.count('class="figure alive"') == found.count('class="spec"') == figures
        assert len(re.findall('<svg[^>]* class="marks"', found)) == figures


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
def test_the_browser_would_have_told_of_an_error_and_of_a_request(tmp_path):
    policy = "default-src 'none'; script-src 'unsafe-inline'"
    head = f"<meta http-equiv='Content-Security-Policy' content=\"{policy}\">"
    page = tmp_path / "bad.html"
    page.write_text(
        f"{head}<img src='https://example.org/a.png'><script>console.error('broken')</script>"
    )
    _, console = browsed(page.as_uri(), tmp_path)
    assert any("broken" in line for line in console)
    assert any("example.org" in line for line in console)
