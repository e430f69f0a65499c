import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.interventions.grid import Grid
from mecheval.interventions.restoration import THRESHOLD, shares
from mecheval.metrics.statistics import interval

METRICS = ("likelihood", "accuracy", "logit", "kl")
CELL = ("restored", "blocks.1.block_in", "value")
ABLATED = ("ablated", "blocks.0.mixer_out", "query")


def grid_of(clean, corrupt, cells):
    """Make a grid from likelihoods; the other metrics are some function of them."""

    def values(likelihood):
        likelihood = np.asarray(likelihood, float)
        right = np.where(np.isnan(likelihood), np.nan, (likelihood > 0.5).astype(float))
        return {
            "likelihood": likelihood,
            "accuracy": right,
            "logit": 3 * likelihood,
            "kl": 1 - likelihood,
        }

    return Grid(
        "key",
        "test",
        values(clean),
        values(corrupt),
        {cell: values(found) for cell, found in cells.items()},
        2,
    )


def drawn(n, seed=0):
    """Documents whose restored and ablated likelihoods lie somewhere between clean and corrupt."""
    rng = np.random.default_rng(seed)
    clean, corrupt = 0.5 + rng.random(n) / 2, rng.random(n) / 4
    mixed = rng.random(n) * (clean - corrupt) + corrupt
    return grid_of(clean, corrupt, {CELL: mixed, ABLATED: mixed[::-1].copy()})


def share_rows(grid):
    return {
        (row.condition, row.site, row.role): row for row in grid.rows() if row.metric == "share"
    }


def test_the_restored_share_is_what_came_back_of_what_was_lost():
    grid = grid_of([1.0, 0.6], [0.2, 0.0], {CELL: [0.6, 0.3], ABLATED: [0.6, 0.3]})
    # clean 0.8, corrupt 0.1, restored and ablated 0.45
    assert shares(grid)[CELL][0] == pytest.approx((0.45 - 0.1) / (0.8 - 0.1))
    assert shares(grid)[ABLATED][0] == pytest.approx((0.8 - 0.45) / (0.8 - 0.1))


@pytest.mark.parametrize(
    ("likelihood", "restored", "ablated"), [([0.9, 0.7], 1, 0), ([0.1, 0.3], 0, 1)]
)
def test_all_is_one_and_nothing_is_zero(likelihood, restored, ablated):
    grid = grid_of([0.9, 0.7], [0.1, 0.3], {CELL: likelihood, ABLATED: likelihood})
    assert shares(grid)[CELL][0] == pytest.approx(restored)
    assert shares(grid)[ABLATED][0] == pytest.approx(ablated)


def test_more_than_all_and_less_than_nothing_are_not_cut_off():
    grid = grid_of([0.6, 0.6], [0.2, 0.2], {CELL: [0.8, 0.8], ABLATED: [0.7, 0.7]})
    assert shares(grid)[CELL][0] == pytest.approx(1.5)
    assert shares(grid)[ABLATED][0] == pytest.approx(-0.25)


def test_there_is_no_share_where_clean_and_corrupt_are_near():
    for lost, there in (
        (THRESHOLD * 0.99, False),
        (THRESHOLD * 1.01, True),
        (-0.5, False),
        (0.0, False),
    ):
        grid = grid_of([0.6, 0.6], [0.6 - lost, 0.6 - lost], {CELL: [0.5, 0.6]})
        assert bool(shares(grid)) == bool(share_rows(grid)) == there, lost


def test_a_cell_is_compared_with_the_same_documents_clean_and_corrupt():
    grid = grid_of(
        [1.0, 0.5, 0.9], [0.0, 0.1, 0.1], {CELL: [np.nan, 0.3, np.nan], ABLATED: [0.5, np.nan, 0.5]}
    )
    assert shares(grid)[CELL][0] == pytest.approx((0.3 - 0.1) / (0.5 - 0.1))
    assert shares(grid)[ABLATED][0] == pytest.approx((0.95 - 0.5) / (0.95 - 0.05))
    found = share_rows(grid)
    assert (found[CELL].n, found[ABLATED].n) == (1, 2)


def test_the_interval_of_a_share_is_over_the_same_documents_too():
    """Ten of twenty documents have the token, all alike: the others add no uncertainty."""
    there, others = np.arange(20) < 10, np.random.default_rng(0).random(20)
    grid = grid_of(
        np.where(there, 0.9, others), np.full(20, 0.1), {CELL: np.where(there, 0.5, np.nan)}
    )
    row = share_rows(grid)[CELL]
    assert (row.value, row.low, row.high) == pytest.approx((0.5, 0.5, 0.5))


def test_there_is_no_share_where_little_was_lost_though_some_documents_lost_much():
    grid = grid_of([1.0, *[0.5] * 19], [0.0, *[0.5] * 19], {CELL: [0.5, *[np.nan] * 19]})
    assert shares(grid) == {}


def test_a_cell_whose_own_documents_lost_nothing_has_no_share():
    grid = grid_of(
        [1.0, 1.0, 0.5], [0.0, 0.0, 0.5], {CELL: [np.nan, np.nan, 0.5], ABLATED: [0.5, 0.5, 0.5]}
    )
    assert set(shares(grid)) == {ABLATED}


def test_a_cell_without_documents_has_rows_without_numbers_and_no_share():
    grid = grid_of([1.0, 1.0], [0.0, 0.0], {CELL: [np.nan, np.nan]})
    assert shares(grid) == {}
    cells = [row for row in grid.rows() if row.site]
    assert len(cells) == len(METRICS)
    for row in cells:
        assert row.n == 0
        assert np.isnan([row.value, row.low, row.high]).all()


def test_a_row_says_what_it_is_of():
    grid, found = drawn(30), {}
    for row in grid.rows(step=7):
        found[row.metric, row.condition, row.site, row.role] = row
        assert (row.split, row.step, row.n) == ("test", 7, 30)
        assert row.corrupted == "key"
        assert row.low <= row.value <= row.high
        layer = {"blocks.1.block_in": 1, "blocks.0.mixer_out": 0, None: None}[row.site]
        assert row.layer == layer
    ends = [(condition, None, None) for condition in ("clean", "corrupt")]
    expected = {(metric, *place) for metric in METRICS for place in [*ends, CELL, ABLATED]}
    assert set(found) == expected | {("share", *CELL), ("share", *ABLATED)}
    for metric in METRICS:
        for (condition, *_), values in {("clean",): grid.clean, ("corrupt",): grid.corrupt}.items():
            assert found[metric, condition, None, None].value == pytest.approx(
                values[metric].mean(), rel=1e-14
            )
        values = grid.cells[CELL][metric]
        row = found[metric, *CELL]
        assert row.value == pytest.approx(values.mean(), rel=1e-14)
        assert (row.low, row.high) == interval(values)


def test_only_the_metrics_asked_for_have_rows():
    grid = drawn(8)
    assert {row.metric for row in grid.rows(metrics=["kl"])} == {"kl"}
    shares = grid.rows(metrics=["share"])
    assert shares
    assert shares == [row for row in grid.rows() if row.metric == "share"]
    with pytest.raises(InvalidInput, match=r"no metric 'shares'; did you mean 'share'\?"):
        grid.rows(metrics=["shares"])


def test_documents_without_the_token_are_left_out_of_a_row():
    grid = drawn(40)
    values = grid.cells[CELL]
    gone = np.arange(40) % 3 == 0
    for metric in METRICS:
        values[metric][gone] = np.nan
    for row in grid.rows():
        if (row.condition, row.site, row.role) == CELL:
            assert row.n == 26
            assert np.isfinite([row.value, row.low, row.high]).all()
            if row.metric != "share":
                assert row.value == pytest.approx(values[row.metric][~gone].mean())


def off_scipy(row_of, data_of, statistic):
    """Return how far both ends are from scipy's bootstrap, in standard errors, over many sizes.

    One end of 1,000 resamples is off by about 0.09; the average of twelve by 0.03. A 90 % interval
    would be off by 0.3.
    """
    ends = []
    for n in range(60, 360, 25):
        found = stats.bootstrap(
            data_of(n),
            statistic,
            paired=True,
            n_resamples=5000,
            method="percentile",
            rng=np.random.default_rng(n),
        )
        row, wanted = row_of(n), found.confidence_interval
        ends.append(
            [
                (row.low - wanted.low) / found.standard_error,
                (row.high - wanted.high) / found.standard_error,
            ]
        )
    return np.abs(np.mean(ends, axis=0)).max()


@pytest.mark.parametrize("metric", ["likelihood", "logit", "kl"])
def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap(metric):
    def row_of(n):
        return next(
            row
            for row in drawn(n, seed=n).rows()
            if (row.metric, row.condition) == (metric, "restored")
        )

    assert off_scipy(row_of, lambda n: (drawn(n, seed=n).cells[CELL][metric],), np.mean) < 0.1


@pytest.mark.parametrize("cell", [CELL, ABLATED])
def test_the_interval_of_a_share_is_that_of_scipys_bootstrap_over_documents(cell):
    """All three means of a quotient are over the same documents drawn again."""

    def share(here, clean, corrupt, axis):
        here, clean, corrupt = (x.mean(axis=axis) for x in (here, clean, corrupt))
        return (here - corrupt if cell is CELL else clean - here) / (clean - corrupt)

    def data_of(n):
        grid = drawn(n, seed=n)
        return grid.cells[cell]["likelihood"], grid.clean["likelihood"], grid.corrupt["likelihood"]

    assert off_scipy(lambda n: share_rows(drawn(n, seed=n))[cell], data_of, share) < 0.1


@pytest.mark.parametrize(
    ("clean", "corrupt", "found"),
    [
        ([0.9], [0.1], [0.5]),
        ([0.9], [0.1], [0.9]),
        ([1.0, 0.0], [0.0, 0.0], [0.7, 0.0]),
        ([1.0, 0.3], [0.0, 0.6], [0.7, 0.3]),
        ([1.0, 0.2, 0.2], [0.0, 0.2, 0.2], [0.4, 0.2, 0.2]),
        ([0.9, 0.8], [0.1, 0.1], [0.5, np.nan]),
        ([0.9, 0.8, 0.7], [0.1, 0.1, 0.1], [np.nan, np.nan, 0.3]),
    ],
    ids=[
        "one",
        "one restored",
        "lost in one",
        "won in one",
        "lost in one of three",
        "there in one",
        "in one of three",
    ],
)
def test_few_documents_have_rows_too(clean, corrupt, found):
    grid = grid_of(clean, corrupt, {CELL: found, ABLATED: found})
    given = grid.rows()
    assert {row.metric for row in given} == {*METRICS, "share"}
    for row in given:
        assert np.isfinite([row.value, row.low, row.high]).all(), row
        assert row.low - 1e-12 <= row.value <= row.high + 1e-12, row


def test_a_share_lies_in_its_interval_whatever_the_documents():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 30))
        clean, corrupt = rng.random(n), 0.5 * rng.random(n)
        cells = {CELL: rng.random(n), ABLATED: np.where(rng.random(n) < 0.3, np.nan, rng.random(n))}
        for row in grid_of(clean, corrupt, cells).rows():
            if row.n:
                assert row.low - 1e-12 <= row.value <= row.high + 1e-12, (seed, row)


def test_more_documents_make_a_share_surer():
    widths = [
        share_rows(drawn(n))[CELL].high - share_rows(drawn(n))[CELL].low for n in (16, 256, 4096)
    ]
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
