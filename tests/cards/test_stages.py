"""A card has a first answer early, is refined, and can be stopped and resumed at any time."""

import json
from dataclasses import replace

import pytest
from support.card_runs import THIRD_PARTY, alone
from support.tiny_scale import MICRO, as_quick

from mecheval import card
from mecheval.cards.experiments import BASELINES
from mecheval.core.spec import Spec
from mecheval.runs.files import read_json

pytestmark = pytest.mark.slow

LSTM = f"{THIRD_PARTY / 'lstm.py'}:Lstm"
RATES = {**dict.fromkeys(BASELINES, (1e-2,)), "Lstm": (1e-3, 3e-3, 1e-2)}
SEVERAL = replace(MICRO, name="several", recall=replace(MICRO.recall, rates=RATES))


class Stop(Exception):
    """Ends a card between two stages."""


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Stop a card after its first stage, then resume it; return facts, runs started and folder."""
    out, seen = tmp_path_factory.mktemp("stages"), []

    def stop_at_first(one, seconds):
        seen.append(one)
        assert seconds > 0
        raise Stop

    with alone() as first, pytest.raises(Stop):
        card(LSTM, SEVERAL, out, workers=1, on_stage=stop_at_first)
    with alone() as second:
        card(LSTM, SEVERAL, out, workers=1, on_stage=lambda one, seconds: seen.append(one))
    return seen, list(first), list(second), out


def test_the_first_answer_is_one_task_and_one_seed(story):
    first = story[0][0]
    assert first.stage == "stage 1 of 5: AR, one seed"
    assert [Spec.parse(line["task"]).name for line in first.facts["lines"]] == ["recall"]
    assert first.facts["lines"][0]["accuracy"]["seeds"] == 1
    assert "NOT COMPLETE" in first.html
    assert "**Not complete.** Still to come: AR, every rate;" in first.markdown
    assert repr(first).endswith("stage 1 of 5: AR, one seed)")


def test_what_the_search_stopped_is_not_called_failed(story):
    first = story[0][0]
    assert len(first.facts["stopped"]) == 2
    assert first.facts["unfinished"] == []
    assert first.failures == []
    states = [rate["state"] for rate in first.facts["lines"][0]["rates"]]
    assert sorted(state.partition(" (")[0] for state in states) == [
        "measured",
        "stopped at step 2",
        "stopped at step 2",
    ]
    for text in (first.html, first.markdown):
        assert text.count("is not a failure") == 2
        assert "PARTIAL" not in text


def test_a_stopped_card_is_valid_and_the_same_command_resumes(story):
    seen, first, second, out = story
    assert json.loads(json.dumps(seen[0].facts)) == seen[0].facts
    assert [one.facts["stage"]["number"] for one in seen] == [1, 2, 3, 4, 5]
    assert len(first) == 4, "three rates for a part of the steps, the best to its end"
    finished = max(first, key=first.count)
    assert first.count(finished) == 2
    assert finished not in second, "nothing is trained twice"
    kept = read_json(seen[-1].folder / "card.json")
    assert kept == seen[-1].facts
    assert kept["stage"]["last"]
    assert "NOT COMPLETE" not in seen[-1].html
    assert not list(out.rglob("*.partial")), "what was stopped was resumed: the task is unsolved"


def test_the_best_rate_has_every_seed_and_others_have_one(story):
    line = story[0][-1].facts["lines"][0]
    tried = len(line["rates"])
    assert 3 <= tried <= 5, "at most two beyond the edge"
    assert line["accuracy"]["seeds"] == 3
    assert tried + 2 <= line["outcomes"]["done"] <= 3 * tried


def test_a_complete_card_trains_nothing_and_stays_as_it_is(story):
    complete, out = story[0][-1], story[3]
    with alone() as started:
        again = card(LSTM, SEVERAL, out, workers=1)
    assert started == []
    assert again.facts == complete.facts


def test_an_unsolved_card_is_diagnosed_on_the_page_in_markdown_and_in_json(story):
    complete = story[0][-1]
    rows = complete.facts["diagnoses"]
    assert [Spec.parse(row["task"]).name for row in rows] == ["recall", "treecall"]
    for row in rows:
        assert row["next"]
        for name in ("test", "train", "from_document", "farther"):
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
            assert row[name]["n"] > 0
        assert all(row[name] for name in ("by_distance", "by_position", "reach"))
    assert [one["pairs"] for one in rows[0]["by_pairs"]] == [2, 3, 4, 8]
    assert rows[1]["by_pairs"] == []
    for text in (complete.html, complete.markdown):
        assert "What to try next" in text
        assert "has no pairs whose number could vary" in text


def test_the_subject_is_first_in_its_own_figures(story):
    from mecheval.report.training_figures import training
    from mecheval.report.verdict_figure import demo

    complete = story[0][-1]
    labels = list(demo(complete.study, "Lstm").table()["label"])
    assert labels[0].startswith("Lstm, AR (3 pairs, 16 symbols)")
    assert labels[3].startswith("Lstm, ATR (at most 32 tokens)")
    (part,) = training(complete.study, "Lstm").parts
    assert next(iter(part.colours)) == "Lstm"


def test_a_large_scale_begins_with_the_answer_of_quick_and_does_not_train_it_twice(
    tmp_path, monkeypatch
):
    as_quick(monkeypatch)
    fields = {**MICRO.recall.fields, "train.steps": 8}
    large = replace(MICRO, name="large", recall=replace(MICRO.recall, fields=fields))
    seen = []
    with alone() as first, pytest.raises(Stop):
        card(LSTM, large, tmp_path, workers=1, on_stage=stop_after(seen, 1))
    assert len(first) == 1, "of the scale quick alone"
    assert seen[0].stage == "stage 1 of 6: AR, one seed, at scale micro"
    assert seen[0].facts["stage"]["coming"][0] == "AR, one seed"
    assert seen[0].folder.name.endswith("-large"), "the page is where the card will be"
    assert {path.parent.name[-6:] for path in tmp_path.rglob(first[0])} == {"-micro"}
    with alone() as second:
        card(LSTM, large, tmp_path, workers=1, on_stage=lambda one, seconds: seen.append(one))
    assert first[0] not in second
    numbers, last = [one.facts["stage"]["number"] for one in seen], seen[-1].facts
    assert numbers == [1, 2, 3, 4, 5, 6] or numbers == [1, 2, 4, 5, 6]
    assert (last["stage"]["last"], last["scale"]) == (True, "large")
    with alone() as third:
        card(LSTM, MICRO, tmp_path, workers=1, on_stage=lambda one, seconds: None)
    assert first[0] not in third, "the quick card has its answer already"


def test_runs_of_another_size_are_not_on_the_card(tmp_path):
    fields = {**MICRO.recall.fields, "train.steps": 6}
    changed = replace(MICRO, recall=replace(MICRO.recall, fields=fields))
    seen = []
    for scale in (MICRO, changed):
        with alone(), pytest.raises(Stop):
            card(LSTM, scale, tmp_path, workers=1, on_stage=stop_after(seen, 1))
    assert [len(one.facts["lines"]) for one in seen] == [1, 1]
    assert [row["curve"]["total"] for row in seen[1].facts["diagnoses"]] == [6]


def stop_after(seen, number):
    def on_stage(one, seconds):
        seen.append(one)
        if one.facts["stage"]["number"] == number:
            raise Stop

    return on_stage
