"""Which number is shown: chosen on dev, read on test, counted whatever became of it."""

import math

import pytest
from support.made_runs import behaviour, experiment, finished, grid, planned, row, verdict

from mecheval.core.errors import InvalidInput
from mecheval.metrics.statistics import proportion_interval, seed_interval
from mecheval.report.study import Study
from mecheval.report.tables import Reading, choice, chosen, read
from mecheval.report.tables import behaviour as reading
from mecheval.report.verdicts import verdicts

RATES = (1e-3, 1e-2)


def study_of(folder, numbers, **fields):
    """`numbers` by rate and seed: accuracy on dev and on test, or None for a run that diverged."""
    every = {place: experiment(lr=place[0], seed=place[1], **fields) for place in numbers}
    planned(folder, "figure3", list(every.values()))
    for place, found in numbers.items():
        if found is None:
            finished(folder, every[place], status="diverged", reason="the loss is nan")
        else:
            finished(folder, every[place], behaviour(*found))
    return Study.read(folder)


def test_the_rate_is_chosen_on_dev_and_test_is_never_asked(tmp_path):
    numbers = {(1e-3, 0): (0.9, 0.2), (1e-2, 0): (0.5, 1.0)}
    line = read(study_of(tmp_path, numbers), [reading()]).iloc[0]
    assert line["train.lr"] == 1e-3
    assert line["value"] == 0.2


def test_a_note_says_that_a_rate_was_chosen_only_where_there_was_a_choice(tmp_path):
    both = {(1e-3, 0): (0.9, 0.9), (1e-2, 0): (0.5, 0.5)}
    assert choice(study_of(tmp_path / "both", both)) == "The rate of each number was chosen on dev."
    one = {(1e-3, 0): (0.9, 0.9), (1e-3, 1): (0.5, 0.5)}
    assert choice(study_of(tmp_path / "one", one)) == "One rate was tried in each cell."


def test_the_rate_is_chosen_by_the_mean_over_seeds(tmp_path):
    numbers = {
        (1e-3, 0): (1.0, 1.0),
        (1e-3, 1): (0.2, 0.2),
        (1e-2, 0): (0.7, 0.7),
        (1e-2, 1): (0.7, 0.7),
    }
    assert chosen(study_of(tmp_path, numbers))["train.lr"].tolist() == [1e-2]


def test_a_diverged_seed_counts_as_nothing_when_the_rate_is_chosen_and_is_no_number(tmp_path):
    numbers = {(1e-3, 0): (0.9, 0.9), (1e-3, 1): None, (1e-2, 0): (0.5, 0.5), (1e-2, 1): (0.5, 0.5)}
    line = read(study_of(tmp_path, numbers), [reading()]).iloc[0]
    assert (line["train.lr"], line["value"], line["seeds"]) == (1e-2, 0.5, 2)
    assert (line["done"], line["diverged"]) == (3, 1)


def test_equal_accuracies_are_decided_by_the_loss_and_then_by_the_rate(tmp_path):
    every = [experiment(lr=rate) for rate in (1e-2, 1e-3, 1e-4)]
    planned(tmp_path, "figure3", every)
    for one, loss in zip(every, (0.1, 0.3, 0.1), strict=True):
        finished(
            tmp_path,
            one,
            [row("accuracy", 1.0, "dev"), row("loss", loss, "dev"), row("accuracy", 1.0)],
        )
    assert chosen(Study.read(tmp_path))["train.lr"].tolist() == [1e-4]


def test_the_number_is_the_mean_over_seeds_with_documents_seeds_and_an_interval_around_it(tmp_path):
    numbers = {(1e-3, seed): (0.5, test) for seed, test in enumerate((0.3, 0.5, 0.7))}
    line = read(study_of(tmp_path, numbers), [reading()]).iloc[0]
    assert (line["value"], line["n"], line["seeds"]) == (pytest.approx(0.5), 320, 3)
    assert (line["low"], line["high"]) == pytest.approx(seed_interval([0.3, 0.5, 0.7], (0.0, 1.0)))
    assert sorted(line["seed_values"]) == [0.3, 0.5, 0.7]


def test_with_one_seed_the_interval_is_the_one_over_its_documents(tmp_path):
    line = read(study_of(tmp_path, {(1e-3, 0): (0.5, 0.7)}), [reading()]).iloc[0]
    assert (line["low"], line["high"]) == pytest.approx((0.68, 0.72))


@pytest.mark.parametrize(("metric", "ends"), [("accuracy", (0.0, 1.0)), ("loss", (0.0, None))])
def test_an_interval_is_cut_to_what_is_possible_for_the_metric(tmp_path, metric, ends):
    for seed, value in enumerate((0.02, 0.5, 0.98)):
        finished(tmp_path, experiment(seed=seed), [row(metric, value), *behaviour(0.5, 0.5)[:1]])
    line = read(Study.read(tmp_path), [reading(metric)]).iloc[0]
    uncut = seed_interval([0.02, 0.5, 0.98])
    assert uncut[0] < 0 < 1 < uncut[1]
    assert (line["low"], line["high"]) == (ends[0], pytest.approx(ends[1] or uncut[1]))


def test_a_share_is_bounded_by_what_a_likelihood_can_restore(tmp_path):
    """The likelihood of 0.04 is lost below the corrupt one, and 0.08 can be won above the clean."""
    for seed, share in enumerate((0.0, 1.0, 1.0)):
        rows = behaviour(0.9, 0.9) + grid(0.92, 0.04, {"query": share})
        finished(tmp_path, experiment(seed=seed), rows)
    place = {"condition": "restored", "site": "blocks.1.block_in", "role": "query"}
    line = read(Study.read(tmp_path), [Reading(panel="", metric="share", **place)]).iloc[0]
    assert line["value"] == pytest.approx(2 / 3)
    assert line["low"] == pytest.approx(-0.04 / 0.88)
    assert line["high"] == pytest.approx(0.96 / 0.88)


def test_a_cell_that_came_to_nothing_is_there_and_says_why(tmp_path):
    every = [experiment(name) for name in ("attention", "mamba", "hyena")]
    planned(tmp_path, "figure3", every)
    finished(tmp_path, every[0], behaviour(0.5, 0.5))
    finished(tmp_path, every[1], status="diverged", reason="nan")
    table = read(Study.read(tmp_path), [reading()]).set_index("model.architecture")
    assert table["state"].to_dict() == {
        "attention": "measured",
        "mamba": "diverged",
        "hyena": "missing",
    }
    assert math.isnan(table.loc["mamba", "value"])
    assert table.loc["hyena", "missing"] == 1


def test_numbers_of_grids_on_the_way_are_not_taken_for_the_last(tmp_path):
    one = experiment()
    planned(tmp_path, "emergence", [one])
    rows = behaviour(0.9, 0.9) + grid(0.9, 0.1, {"value": 0.2}, split="dev", step=50)
    finished(tmp_path, one, rows + grid(0.9, 0.1, {"value": 0.8}, split="dev"))
    wanted = Reading(
        panel="",
        metric="share",
        condition="restored",
        site="blocks.1.block_in",
        role="value",
        split="dev",
    )
    assert read(Study.read(tmp_path), [wanted])["value"].tolist() == [0.8]


def test_runs_that_differ_in_more_than_rate_and_seed_are_not_averaged(tmp_path):
    for steps, found in ((100, 0.2), (200, 0.8)):
        finished(tmp_path, experiment(train__steps=steps), behaviour(found, found))
    table = read(Study.read(tmp_path), [reading()])
    assert dict(zip(table["setting"], table["value"], strict=True)) == {
        "steps=100": 0.2,
        "steps=200": 0.8,
    }


def test_a_verdict_is_that_of_most_seeds_at_the_chosen_rate(tmp_path):
    every = [experiment(seed=seed) for seed in range(3)] + [experiment(lr=1e-2)]
    planned(tmp_path, "demo", every)
    for one, said in zip(
        every, ("induction", "mixed", "induction", "direct retrieval"), strict=True
    ):
        dev = 0.1 if one.train.lr == 1e-2 else 0.9
        finished(tmp_path, one, behaviour(dev, 0.9), said=verdict(said))
    line = verdicts(Study.read(tmp_path)).iloc[0]
    assert (line["mechanism"], line["agree"], line["judged"]) == ("induction", 2, 3)
    assert (line["agree_low"], line["agree_high"]) == pytest.approx(proportion_interval(2, 3))


def test_over_seeds_a_token_holds_the_information_in_so_many_of_them(tmp_path):
    for seed, share in enumerate((0.02, 0.97, 1.01)):
        rows = behaviour(0.9, 0.9) + grid(0.9, 0.1, {"query": share})
        finished(tmp_path, experiment(seed=seed), rows, said=verdict())
    line = verdicts(Study.read(tmp_path)).iloc[0]
    assert (line["holds_query"], line["seeds_query"]) == (2, 3)
    assert line["at_query"] == pytest.approx(2 / 3)


def test_a_folder_without_runs_or_with_runs_of_another_sweep_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="has no runs"):
        Study.read(tmp_path)
    planned(tmp_path, "figure3", [experiment()])
    finished(tmp_path, experiment("mamba"), behaviour(0.5, 0.5))
    with pytest.raises(InvalidInput, match="not of its sweep figure3"):
        Study.read(tmp_path)


@pytest.mark.filterwarnings("ignore::mecheval.core.errors.DamagedRunWarning")
def test_a_damaged_run_is_counted_as_failed(tmp_path):
    one = experiment()
    planned(tmp_path, "figure3", [one])
    finished(tmp_path, one, behaviour(0.5, 0.5))
    (tmp_path / one.name / "rows.jsonl").write_text("nothing")
    study = Study.read(tmp_path)
    assert study.counts == {"done": 0, "diverged": 0, "failed": 1, "missing": 0}
    assert "checksum" in study.runs["reason"].iloc[0]
