"""A page fits telephones and desks alike; its tables sort and filter."""

import pytest
from report.test_page import bound, written  # noqa: F401, fixtures
from support.browser import CHROMIUM, LAYOUT, measure_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with"),
]
VERDICTS = """
const table = page.querySelector("#verdicts table");
const shown = () => table.querySelectorAll("tbody tr:not(.group):not([hidden]) th");
const names = () => [...shown()].map(name => name.textContent.trim());
"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["written", "bound"])
def test_nothing_is_cut_and_letters_in_charts_have_eleven_pixels(name, width, request, tmp_path):
    page = request.getfixturevalue(name).read_text(encoding="utf-8")
    layout = measure_page(page, width, LAYOUT, tmp_path)
    assert layout["beyond"] == []
    assert layout["scroll"] == 0, "the page itself does not scroll sideways"
    assert layout["smallest"] >= 10.99  # a scaled letter is not quite whole
    for drawn, room, _ in layout["charts"]:
        assert drawn >= 0.85 * room, "charts take the width of the page"


def test_a_chart_wider_than_a_telephone_would_have_been_noticed(written, tmp_path):  # noqa: F811
    page = written.read_text(encoding="utf-8")
    wide = page.replace("<main>", '<main><p style="width: 500px">wide</p>')
    layout = measure_page(wide, 390, LAYOUT, tmp_path)
    assert layout["beyond"] == ["P."]
    assert layout["scroll"] > 0


def test_a_heading_sorts_and_a_text_filters(written, tmp_path):  # noqa: F811
    script = """
const heading = table.querySelector("thead button"), orders = [names()];
for (const _ of [0, 1]) { heading.click(); orders.push(names()); }
const sorted = heading.parentNode.getAttribute("aria-sort");
const box = page.querySelector("#verdicts .filter");
box.value = "mAM";
box.dispatchEvent(new Event("input"));
return {orders, sorted, kept: names(), focusable: heading.tabIndex};
"""
    page = written.read_text(encoding="utf-8")
    answer = measure_page(page, 1280, VERDICTS + script, tmp_path)
    _, up, down = answer["orders"]
    assert up == sorted(up)
    assert down == up[::-1]
    assert len(up) == 3
    assert answer["sorted"] == "descending"
    assert answer["kept"] == ["Mamba"]
    assert answer["focusable"] == 0, "a heading is reached by the keyboard"
