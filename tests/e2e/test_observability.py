"""What alerts, promises and dashboards ask for is what running processes export."""

import make_dashboards
from prometheus_client.parser import text_string_to_metric_families

from planner.log.intake import WHOLE
from spillway.api import ApplyRequest
from spillway_local.fleet_plan import deployment
from tests.observability.known import all_rules
from tests.observability.promql import selectors_in

from .running import NAMES, NAMESPACE, SERVICES, Platform, wait_until

PARTS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
Samples = dict[tuple[str, str], float]
"""By name and the one label that is looked at."""


async def scrape_metrics(platform: Platform, name: str, label: str = "") -> tuple[set[str], Samples]:
    """The series that a process has, or would have once it counts, and the samples by one of their labels."""
    _, text = await platform.get_health_page(name, "/metrics")
    families = list(text_string_to_metric_families(text))
    names = {one.name + end for one in families for end in PARTS.get(one.type, ("",))}
    return names, {(one.name, one.labels.get(label, "")): one.value for each in families for one in each.samples}


async def test_every_metric_that_is_asked_for_is_exported_by_some_process(platform: Platform) -> None:
    panels = (panel for dashboard in make_dashboards.DASHBOARDS for row in dashboard.rows for panel in row.panels)
    texts = [rule["expr"] for rule in all_rules()] + [expr for panel in panels for expr, _ in panel.asks]
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    asked = {one.name for text in texts for one in selectors_in(text)} - recorded - {"up"}
    exported = set[str]().union(*[(await scrape_metrics(platform, name))[0] for name in SERVICES])
    assert len(asked) > 20
    assert asked - exported == set()


async def test_rates_durations_lags_ages_and_latencies_are_told_of_what_was_just_done(
    platform: Platform,
) -> None:
    await platform.planner.apply(ApplyRequest((deployment("seen", NAMESPACE, 3),)))
    await platform.wait_until_running("seen", 3)
    active = await platform.active_planner()
    _, by_verb = await scrape_metrics(platform, active, "verb")
    assert by_verb["spillway_requests_total", "apply"] > 0
    assert by_verb["spillway_request_seconds_count", "apply"] > 0
    for metric in ("decision_wait_seconds", "decision_seconds", "transaction_seconds"):
        assert by_verb[f"spillway_{metric}_count", ""] > 0
    _, by_topic = await scrape_metrics(platform, active, "topic")
    for metric in ("spillway_topic_lag_records", "spillway_topic_age_seconds"):
        told = {topic for name, topic in by_topic if name == metric}
        assert len(told & {topic.name for topic in WHOLE if topic.emitter != "planner"}) > 1
    ages: dict[str, float] = {}

    async def are_all_fresh() -> bool:
        _, by_cluster = await scrape_metrics(platform, active, "cluster")
        ages.update({key: by_cluster["spillway_capacity_age_seconds", key] for key in NAMES})
        return all(age < 30 for age in ages.values())

    await wait_until(
        "the planner tells of each cluster how old what it knows of it is", are_all_fresh, 60, lambda: ages
    )
    propagators = [(await scrape_metrics(platform, name))[1] for name in ("propagator-1", "propagator-2")]
    assert sum(one["spillway_placement_seconds_count", ""] for one in propagators) > 0
    collectors = [(await scrape_metrics(platform, name, "cluster"))[1] for name in ("snapshot-1", "snapshot-2")]
    probed = {cluster for one in collectors for name, cluster in one if name == "spillway_probe_age_seconds"}
    assert probed == set(NAMES)
