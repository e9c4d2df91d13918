"""Dashboards ask for metrics that there are, and lie on Grafana's grid without covering each other."""

from itertools import combinations
from typing import Any

import make_dashboards
import pytest
from make_dashboards import DASHBOARDS, Dashboard

from .known import faults_in_expression

ASKED = [
    (dashboard.name, panel.title, expr, legend)
    for dashboard in DASHBOARDS
    for row in dashboard.rows
    for panel in row.panels
    for expr, legend in panel.asks
]


@pytest.mark.parametrize(("name", "title", "expr", "legend"), ASKED, ids=lambda value: str(value)[:60])
def test_a_panel_asks_for_metrics_labels_and_values_that_there_are(
    name: str, title: str, expr: str, legend: str
) -> None:
    assert faults_in_expression(expr) == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_panels_have_ids_of_their_own_and_do_not_cover_each_other(dashboard: Dashboard) -> None:
    panels: list[dict[str, Any]] = make_dashboards.dashboard_document(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [pair for pair in combinations(places, 2) if _is_overlapping(*pair)]


def _is_overlapping(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)
