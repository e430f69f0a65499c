"""A card agrees with its runs, whatever the mixer, and trains nothing twice."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from support.card_runs import MEAN, SOUND, THIRD_PARTY, alone, made
from support.sweep_runs import Inline, results
from support.tiny_scale import MICRO

from mecheval import Card, card
from mecheval.cards.experiments import BASELINES, SEEDS, experiments
from mecheval.cards.subject import Subject
from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.report.study import Study
from mecheval.report.verdicts import verdicts
from mecheval.runs.run import run
from mecheval.sweeps.planned import Outcome
from mecheval.sweeps.recipe import get_experiments, get_scale, scales

pytestmark = pytest.mark.slow

SIZED = replace(MICRO, seeds=SEEDS)
TESTS = Path(__file__).parents[1]
WHOLE = """
from torch import nn


class Gru(nn.Module):
    def __init__(self, vocab_size: int, d_model: int, layers: int, max_len: int):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.cells = nn.GRU(d_model, d_model, layers, batch_first=True)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        return self.head(self.cells(self.embed(tokens))[0])
"""


def stamps(folder):
    """Return the time of the last change of every file in a run folder below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent != folder]
    return {path: path.stat().st_mtime_ns for path in files}


def test_the_card_of_a_built_in_agrees_with_the_recipes(of, tmp_path):
    for one in [*get_experiments("emergence", SIZED), *SIZED.experiments("treecall")]:
        if one.model.architecture == "attention":
            run(one, tmp_path)
    found = of("attention")
    every = results(found.study.folder)
    assert results(tmp_path) == {name: every[name] for name in every if "-attention-" in name}
    said = verdicts(Study.read(tmp_path)).set_index("task")
    for line in found.facts["lines"]:
        if line["architecture"] == "attention":
            mine = said.loc[line["task"]]
            assert [line["accuracy"][name] for name in ("value", "low", "high", "n", "seeds")] == [
                mine[name] for name in ("value", "low", "high", "n", "seeds")
            ]
            assert (line["mechanism"], line["agree"], line["judged"]) == (mine["mechanism"], 3, 3)


def test_a_baseline_is_not_compared_with_itself(of):
    assert of("attention").facts["baselines"] == ["mamba"]
    assert of("Lstm").facts["baselines"] == list(BASELINES)


@pytest.mark.parametrize("name", SOUND)
def test_a_third_party_mixer_has_a_card(name, of):
    found = of(name)
    assert isinstance(found, Card)
    lines = found.facts["lines"]
    places = [(Spec.parse(line["task"]).name, line["architecture"]) for line in lines]
    assert places == list(product(("recall", "treecall"), (name, *BASELINES)))
    assert all(line["outcomes"]["done"] == 3 for line in found.facts["lines"])
    assert [cost["architecture"] for cost in found.facts["costs"]] == [name, *BASELINES]
    assert found.facts["steps"][0]["ratio"] == 1
    assert repr(found) == f"Card('{name}', 'micro', recall: unsolved, treecall: unsolved)"
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    for path, text in (
        (found.folder / "card.html", found.html),
        (found.folder / "card.md", found.markdown),
    ):
        assert path.read_text(encoding="utf-8") == text
        assert name in text
    assert found.verdicts["mechanism"].tolist() == ["unsolved"] * 6
    assert "<iframe" in found._repr_html_()


def test_a_whole_model_without_sites_has_a_card_without_a_verdict(shelf, tmp_path):
    file = tmp_path / "whole.py"
    file.write_text(WHOLE)
    found, started = made(f"{file}:Gru", shelf)
    assert {name.split("-")[1] for name in started} <= {"Gru", *BASELINES}
    assert repr(found) == "Card('Gru', 'micro', recall: no verdict, treecall: no verdict)"
    assert any("without a verdict" in caveat for caveat in found.facts["caveats"])
    assert "| Gru |" in found.markdown


def test_mixing_weights_are_on_the_card_of_a_mixer_that_defines_them(of):
    looks = of("Window").facts["looks"]
    assert {(look["layer"], look["from_role"]) for look in looks} >= {(0, "query"), (1, "query")}
    assert all(0 <= look["share"] <= look["most"] <= 1 + 1e-9 for look in looks)
    assert of("Lstm").facts["looks"] == []


def test_the_second_call_trains_nothing(of, shelf):
    found = of("Lstm")
    before = stamps(found.folder)
    again, started = made(f"{THIRD_PARTY / 'lstm.py'}:Lstm", shelf)
    assert started == []
    assert stamps(found.folder) == before
    assert (again.facts, again.html) == (found.facts, found.html)


def test_a_second_subject_reuses_the_baselines(of, shelf):
    of("Lstm")
    before = stamps(shelf / "card-baselines-micro")
    _, started = made("delta_net:d_conv=0", shelf)
    assert len(started) == 6
    assert all("-delta_net-" in name for name in started)
    assert stamps(shelf / "card-baselines-micro") == before


def test_other_options_and_a_changed_file_have_cards_of_their_own(of, shelf, tmp_path):
    file = tmp_path / "private.py"
    shutil.copy(THIRD_PARTY / "private.py", file)
    first, _ = made(f"{file}:Private", shelf)
    assert first.folder == of("Private").folder, "the same file elsewhere"
    file.write_text(file.read_text().replace("cumsum(dim=1)", "cumsum(dim=1) * 2"))
    second, started = made(f"{file}:Private", shelf)
    assert second.folder != first.folder
    assert len(started) == 6


def test_a_killed_card_resumes(of, shelf, tmp_path):
    of("Lstm")
    shutil.copytree(shelf / "card-baselines-micro", tmp_path / "card-baselines-micro")
    subject = f"{THIRD_PARTY / 'lstm.py'}:Lstm"
    call = f"card({subject!r}, MICRO, {str(tmp_path)!r}, workers=2)"
    words = f"from support.tiny_scale import MICRO; from mecheval import card; {call}"
    launcher = subprocess.Popen([sys.executable, "-c", words], cwd=TESTS, stderr=subprocess.DEVNULL)
    folder = tmp_path / of("Lstm").folder.name
    try:
        until = time.monotonic() + 300
        while not list(folder.glob("recall-Lstm-*/checksums.json")) and time.monotonic() < until:
            assert launcher.poll() is None
            time.sleep(0.02)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    finished = [path.name for path in folder.iterdir() if (path / "checksums.json").exists()]
    assert 0 < len(finished) < 6
    _, started = made(subject, tmp_path)
    assert not {*started} & {*finished}
    assert results(folder) == results(of("Lstm").folder)


def test_runs_that_diverge_are_on_the_card(shelf):
    rates = {**dict.fromkeys(BASELINES, (1e-2,)), "linear_attention": (1e-2, 1e9)}
    wild = replace(MICRO, recall=replace(MICRO.recall, rates=rates))
    found, _ = made("linear_attention", shelf, wild)
    assert [(run["status"], run["train.lr"], run["seed"]) for run in found.facts["unfinished"]] == [
        ("diverged", 1e9, SEEDS[0])  # the other seeds are trained at the best rate alone
    ]
    assert found.failures == [], "which is a result, not a failure"
    line = found.facts["lines"][0]
    assert line["outcomes"] == {"done": 4, "diverged": 1, "failed": 0, "missing": 0}
    states = {rate["rate"]: rate["state"] for rate in line["rates"]}
    assert len(states) == 3, "the best of those given is at the edge, so one beyond it was tried"
    assert (states.pop(1e9), *states.values()) == ("diverged", "measured", "measured")
    assert any("of 5 runs, 1 diverged" in caveat for caveat in found.facts["caveats"])
    for text in (found.html, found.markdown):
        assert "diverged" in text


def test_a_subject_all_of_whose_runs_diverge_has_a_card_that_says_so(shelf):
    rates = {**dict.fromkeys(BASELINES, (1e-2,)), "linear_attention": (1e9,)}
    size = replace(MICRO.recall, rates=rates)
    wild = replace(MICRO, recall=size, treecall=replace(size, options=MICRO.treecall.options))
    found, _ = made("linear_attention:feature_dim=4", shelf, wild)
    assert found.verdicts["accuracy"].isna().tolist() == [True, False, False] * 2
    assert repr(found).endswith("recall: diverged, treecall: diverged)")
    assert found.html.count("diverged") > 6


def test_failed_runs_are_listed_and_the_card_is_partial(shelf, of, monkeypatch):
    class Unlucky(Inline):
        def start(self, job):
            if job.record["seed"] == 1:
                self._outcomes.append((job, Outcome("error", "no <luck>")))
            else:
                super().start(job)

    of("attention")
    with alone():
        monkeypatch.setattr("mecheval.sweeps.local.Local", Unlucky)
        found = card("hyena", MICRO, shelf, workers=1)
    assert [line.rpartition(": ")[2] for line in found.failures] == ["no <luck>"] * 2
    assert "PARTIAL" in found.html
    assert "no &lt;luck&gt;" in found.html
    assert "no <luck>" not in found.html + found.markdown


def test_a_class_that_is_in_no_file_is_trained_in_this_process(shelf):
    def defined(factor):
        from torch import nn

        class Scaled(nn.Module):
            def __init__(self, d_model, max_len):
                super().__init__()
                self.proj = nn.Linear(d_model, d_model)

            def forward(self, x):
                return self.proj(x).cumsum(dim=1) * (2.0 if factor else 1.0)

        if factor:
            Scaled.forward = lambda self, x: self.proj(x).cumsum(dim=1) * 3.0
        return Scaled

    first, started = made(defined(0), shelf)
    assert started == [], "no worker was asked"
    assert first.facts["in_this_process"]
    assert "is not defined in a file" in first.html
    assert [line["outcomes"]["done"] for line in first.facts["lines"]] == [3] * 6
    before = stamps(first.folder)
    assert made(defined(0), shelf)[0].facts == first.facts
    assert stamps(first.folder) == before
    with alone():
        first, second = Subject.of(defined(0)).folder, Subject.of(defined(1)).folder
    assert first != second, "a changed class is another subject"


def test_a_class_in_a_file_is_the_same_as_its_name(of, shelf, monkeypatch):
    monkeypatch.syspath_prepend(THIRD_PARTY)
    import lstm

    named = of("Lstm")
    found, started = made(lstm.Lstm, shelf)
    assert (found.folder, started) == (named.folder, [])


def test_a_script_that_its_workers_would_run_again_is_refused(tmp_path):
    script = tmp_path / "script.py"
    mixer = (THIRD_PARTY / "lstm.py").read_text()
    script.write_text(f"{mixer}\nimport mecheval\nmecheval.card(Lstm)\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "script.py must stand below \"if __name__ == '__main__':\"" in last
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["script.py"]


@pytest.mark.parametrize("scale", scales.names())
def test_a_card_has_three_seeds_of_the_widest_models_and_grids_on_one_task(scale):
    every = experiments(get_scale(scale), BASELINES)
    assert {one.seed for one in every} == {0, 1, 2}
    assert len({one.model.d_model for one in every}) == 1
    assert len({one.key for one in every}) == len(every)
    for one in every:
        watched = one.task_spec.startswith("recall")
        evaluations, every_so_many = one.train.total // one.eval.every, one.eval.grid_every
        grids = evaluations // every_so_many if every_so_many else 0
        assert (20 <= grids <= 39) if watched else grids == 0


def test_a_pattern_is_as_deep_as_it_is_long_and_its_baselines_have_two_layers(shelf):
    pattern = "hybrid:mamba*2+attention"
    found, _ = made(pattern, shelf)
    depths = found.study.runs.groupby("model.architecture")["model.layers"].unique()
    assert {name: list(layers) for name, layers in depths.items()} == {
        pattern: [3],
        **{name: [2] for name in BASELINES},
    }
    assert "2 and 3 layers" in found.markdown


def test_nothing_is_begun_where_another_mixer_has_the_name(tmp_path):
    (tmp_path / "other.py").write_text((THIRD_PARTY / "bad.py").read_text())
    with alone():
        Subject.of(MEAN)
        with pytest.raises(InvalidInput, match="is taken by another"):
            card(f"{tmp_path / 'other.py'}:Mean", MICRO, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
