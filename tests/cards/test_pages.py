"""The card as a page and as Markdown is complete, safe, and agrees with its numbers."""

import re
from dataclasses import replace

import pytest
from report.test_page import browsed, outside
from support.browser import CHROMIUM, LAYOUT, measure_page
from support.card_runs import MEAN, made
from support.made_runs import behaviour, experiment, finished, grid, verdict

from mecheval.cards.facts import EmergenceStep, emergence_steps
from mecheval.report.study import Study
from mecheval.report.training_figures import emergence

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>|`*"


@pytest.fixture(scope="module")
def hostile(shelf):
    """Make the card of a mixer whose name is markup."""
    return made(f'{MEAN}:note="{HOSTILE}"', shelf)[0]


@pytest.fixture(scope="module")
def solved(of):
    """Make a card with the cells of a model that recalls."""
    found = of("Window")
    tasks = list(found.facts["where"])
    shares = {"key": 0.1, "value": 0.875, "next_key": -0.25, "divider": 0.0, "query": 1.1}
    place = {"layer": 1, "n": 320, "low": 0.0, "high": 1.0}
    sites = ("embed_out", "blocks.0.block_in", "blocks.0.mixer.conv_out", "final_in")
    cells = [
        {"task": task, "site": site, "role": role, "value": share, **place}
        for task in tasks
        for site in sites
        for role, share in shares.items()
    ]
    where = dict.fromkeys(tasks, "It is here.")
    return replace(found, facts={**found.facts, "cells": cells, "where": where})


@pytest.mark.slow
def test_nothing_on_the_page_is_fetched(hostile, solved):
    for card in (hostile, solved):
        assert outside(card.html) == []
        assert "default-src 'none'" in card.html


def test_a_name_cannot_act_on_the_page(hostile):
    for text in (hostile.html, hostile._repr_html_()):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in hostile.html
    assert hostile._repr_html_().count("<") == 2, "a frame with everything in an attribute"


def test_a_name_cannot_act_in_markdown(hostile):
    assert "<" not in hostile.markdown
    assert r"onerror=alert(2)&gt;\|\`\*" in hostile.markdown
    rows = [line for line in hostile.markdown.splitlines() if line.startswith("| AR")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {9, 5}, "a name ends no cell"


def test_the_heat_map_is_on_the_page_and_in_markdown(solved):
    assert "Where each step happens" in solved.html
    assert solved.html.count("It is here.") == solved.markdown.count("It is here.") == 2
    row = "| blocks.0.mixer.conv_out | 10 % | 88 % | -25 % | 0 % | 110 % |"
    assert solved.markdown.count(row) == 2


def test_tables_of_the_markdown_are_tables(solved, hostile):
    for text in (solved.markdown, hostile.markdown):
        lines = text.splitlines()
        for i, line in enumerate(lines):
            if re.fullmatch(r"(\|-+:?)+\|", line):
                columns = line.count("|")
                assert len(re.findall(r"(?<!\\)\|", lines[i - 1])) == columns
                assert len(re.findall(r"(?<!\\)\|", lines[i + 1])) == columns, "rows follow at once"


def test_the_card_says_how_its_rate_was_chosen(of):
    found = of("Window")
    for text in (found.html, found.markdown):
        assert "The learning rate is chosen on dev, reported on test." in text
        assert all(caveat.replace("<", "&lt;") in text for caveat in found.facts["caveats"])


def test_the_emergence_of_a_model_that_learned_is_drawn(tmp_path):
    one = experiment()
    shares = {"key": 0.1, "value": 0.9, "next_key": 0.0, "divider": 0.0, "query": 0.2}
    rows = behaviour(0.9, 0.8)
    for step in (50, 100):
        rows += grid(0.8, 0.1, shares, split="dev", step=step)
    point = {"loss": 1.0, "accuracy": 0.5, "gradient_norm": 0.5}
    curve = [{"step": step, **point} for step in (50, 100)]
    finished(tmp_path, one, rows, said=verdict(), curve=curve)
    study = Study.read(tmp_path)
    assert emergence_steps(study, "attention") == [EmergenceStep(seed=0, role="value", step=50)]
    sheet = emergence(study)
    assert set(sheet.table()["series"]) == {"key", "value", "next key", "query", "training"}
    sheet.picture()
    sheet.spec()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
def test_a_browser_draws_every_figure_without_a_word_on_its_console(solved, tmp_path):
    page = tmp_path / "card.html"
    page.write_text(solved.html, encoding="utf-8")
    found, console = browsed(page.as_uri(), tmp_path)
    assert console == []
    assert found.count('class="figure alive"') == found.count('class="spec"') == 5


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_at_any_width(solved, width, tmp_path):
    layout = measure_page(solved.html, width, LAYOUT, tmp_path)
    assert layout["beyond"] == []
    assert layout["scroll"] == 0
    assert layout["smallest"] >= 10.99  # a scaled letter is not quite whole
