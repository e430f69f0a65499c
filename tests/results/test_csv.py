"""A table as CSV is what pandas prints, but for text that would open a formula."""

import random

import numpy as np
import pytest
from pandas import DataFrame, Series

from mecheval.results import csv
from mecheval.results.csv import to_csv

TEXTS = ["a", "", 'q"uote', "com,ma", "new\nline", "cr\rx", ",\n", '",\n"', " é ", None, np.nan]
NUMBERS = [0.0, -0.0, 1e-5, 1e16, 5e-324, np.nan, np.inf, -1.5]
KINDS = {
    "text": (TEXTS, None),
    "float": (NUMBERS, "float64"),
    "single": (NUMBERS[:4], "float32"),
    "integer": ([-3, 0, 7], "int64"),
    "maybe integer": ([1, None], "Int64"),
    "maybe true": ([True, None], "boolean"),
    "date": (["2020-01-01", "2020-01-02 10:00", None], "datetime64[ns]"),
    "anything": ([True, None, [], [1, -2], "x,y"], "object"),
}


def drawn(rng, kind, n):
    values, dtype = KINDS[kind]
    return Series([rng.choice(values) for _ in range(n)], dtype=dtype)


@pytest.mark.parametrize("n", [0, 1, 2, 30])
@pytest.mark.parametrize("seed", range(12))
def test_a_table_without_formulas_is_what_pandas_prints(seed, n):
    rng = random.Random(seed)
    kinds = rng.sample(list(KINDS), rng.choice([1, 2, 5]))
    table = DataFrame({f"{kind}, drawn": drawn(rng, kind, n) for kind in kinds})
    assert to_csv(table) == table.to_csv(index=False)


def test_text_that_opens_a_formula_gets_an_apostrophe_and_numbers_do_not():
    columns = {"=a": ["=1", "-b", "c"], "n": [-1, 2, 3], "any": ["@x", -1, [-2]]}
    table = DataFrame({name: Series(values) for name, values in columns.items()})
    assert to_csv(table).splitlines() == ["'=a,n,any", "'=1,-1,'@x", "'-b,2,-1", "c,3,[-2]"]


def test_a_cell_that_comes_again_is_not_printed_again(monkeypatch):
    printed, safe = [], csv._safe
    monkeypatch.setattr(csv, "_safe", lambda value: printed.append(value) or safe(value))
    assert to_csv(DataFrame({"task": ["recall", "treecall"] * 500})).count("treecall") == 500
    assert printed == ["recall", "treecall", "task"]
