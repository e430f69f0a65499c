"""The steps at which shares first reach one half."""

from mecheval.interventions.emergence import crossings


def row(step, value, *, role="value", split="dev", metric="share", condition="restored"):
    site = {"site": "blocks.1.block_in", "role": role}
    return {
        "step": step,
        "value": value,
        "split": split,
        "metric": metric,
        "condition": condition,
        **site,
    }


def test_it_is_the_first_step_at_or_above_one_half_in_whatever_order_the_rows_are():
    rows = [row(300, 0.9), row(100, 0.1), row(200, 0.5), row(300, 0.2, role="key")]
    assert crossings(rows) == {"blocks.1.block_in": {"value": 200}}


def test_a_mechanism_that_goes_again_was_there():
    assert crossings([row(100, 0.8), row(200, 0.1)]) == {"blocks.1.block_in": {"value": 100}}


def test_other_metrics_conditions_and_test_documents_are_no_part_of_it():
    others = [
        row(1, 0.9, metric="likelihood"),
        row(1, 0.9, condition="ablated"),
        row(1, 0.9, split="test"),
    ]
    assert crossings(others) == {}
    assert crossings([*others, row(1, 0.1), row(2, 0.6)]) == {"blocks.1.block_in": {"value": 2}}


def test_a_single_grid_says_nothing_about_when():
    assert crossings([row(100, 0.9), row(100, 0.9, role="key")]) == {}


def test_what_counts_as_half_is_an_argument():
    assert crossings([row(1, 0.3), row(2, 0.7)], half=0.25) == {"blocks.1.block_in": {"value": 1}}
