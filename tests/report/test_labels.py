"""What an architecture looks like."""

from mecheval.report.labels import MARKERS, looks

FILLED = {
    "circle",
    "square",
    "cross",
    "diamond",
    "triangle-up",
    "triangle-down",
}  # vega's shapes that have an area


def test_every_marker_has_an_area_that_a_live_chart_can_fill():
    assert all(shape in FILLED or shape.endswith("Z") for shape in MARKERS.values())


def test_known_architectures_and_their_ablations_look_the_same_and_others_differ():
    found = looks(["attention", "attention:heads=2", "mamba", "stranger", "another"])
    assert found["attention"] == found["attention:heads=2"]
    assert len(set(found.values())) == 4
    assert {marker for _, marker in found.values()} <= set(MARKERS)
