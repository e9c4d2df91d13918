"""Makes deploy/observability/dashboards: Grafana dashboards from a table of rows, panels and Prometheus queries."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from make_slo_rules import ACTIVE

SCHEMA_VERSION: Final = 39
"""The version of Grafana 10's dashboard format. Later Grafanas convert it by themselves."""
WIDTH, HEIGHT, PER_LINE = 8, 7, 3
DATA_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SECONDS, SHARE, COUNT, PER_SECOND, BYTES = "s", "percentunit", "short", "ops", "bytes"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a dashboard. asks: (PromQL, legend) of each query. unit: Grafana's name of the unit."""

    title: str
    unit: str
    asks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    rows: tuple[Row, ...]


def rate_queries(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    """Returns the query of a counter's rate per second over 5 minutes, by labels."""
    group = f" by ({', '.join(by)})" if by else ""
    return ((f"sum{group} (rate({metric}[5m]))", " ".join(f"{{{{{label}}}}}" for label in by) or "all"),)


def quantile_queries(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    """Returns the queries of the median and the 99th percentile of a histogram, by labels."""
    group, legend = ", ".join((*by, "le")), " ".join(f" {{{{{label}}}}}" for label in by)
    quantiles = (("0.5", "half"), ("0.99", "99 %"))
    return tuple(
        (f"histogram_quantile({share}, sum by ({group}) (rate({metric}_bucket[5m])))", f"{name}{legend}")
        for share, name in quantiles
    )


def value_queries(metric: str, *by: str, how: str = "sum") -> tuple[tuple[str, str], ...]:
    """Returns the query of a metric's present value over all processes, by labels. how: the PromQL aggregation."""
    group = f" by ({', '.join(by)})" if by else ""
    return ((f"{how}{group} ({metric})", " ".join(f"{{{{{label}}}}}" for label in by) or "all"),)


def active_planner_queries(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    """Returns the query of a metric's present value in the active planner only, by labels."""
    return value_queries(f"{metric} and {ACTIVE}", *by)


def panels_with_unit(unit: str, *named: tuple[str, tuple[tuple[str, str], ...]]) -> tuple[Panel, ...]:
    return tuple(Panel(title, unit, asks) for title, asks in named)


OVERVIEW: Final = Dashboard(
    "spillway-overview",
    "Spillway: overview",
    (
        Row(
            "What is promised",
            panels_with_unit(
                SHARE,
                ("Missed of what is promised, 1 h", (("spillway:slo_missed:ratio_1h", "{{slo}}"),)),
                ("Missed of what is promised, 3 d", (("spillway:slo_missed:ratio_3d", "{{slo}}"),)),
                ("Clusters known freshly", (("spillway:clusters_fresh:ratio", "share"),)),
            )
            + panels_with_unit(
                COUNT,
                ("Active planners", value_queries("spillway_planner_active")),
                ("Workloads", active_planner_queries("spillway_workloads")),
                ("Replicas that wait for room", active_planner_queries("spillway_replicas_unplaced")),
                ("Clusters", active_planner_queries("spillway_clusters", "state")),
                ("Brakes", active_planner_queries("spillway_brakes", "kind")),
                ("Confirmations that wait", active_planner_queries("spillway_confirmations_waiting")),
            ),
        ),
        Row(
            "Calls",
            (
                Panel("Calls", PER_SECOND, rate_queries("spillway_requests_total", "verb")),
                Panel(
                    "Calls that fail", PER_SECOND, rate_queries('spillway_requests_total{code!="OK"}', "verb", "code")
                ),
                Panel("From a call to its answer", SECONDS, quantile_queries("spillway_request_seconds", "verb")),
                Panel("Being answered", COUNT, value_queries("spillway_requests_running", "instance")),
                Panel("Not let in", PER_SECOND, rate_queries("spillway_requests_denied_total", "reason")),
                Panel("Connections refused", PER_SECOND, rate_queries("spillway_connections_refused_total", "reason")),
                Panel("Parts that are not ready", COUNT, (("spillway_ready == 0", "{{instance}} {{part}}"),)),
            ),
        ),
        Row(
            "Decisions",
            (
                Panel("Decisions", PER_SECOND, rate_queries("spillway_decisions_total", "cause")),
                Panel("Waiting to be decided", SECONDS, quantile_queries("spillway_decision_wait_seconds")),
                Panel("One decision", SECONDS, quantile_queries("spillway_decision_seconds")),
                Panel("One write", SECONDS, quantile_queries("spillway_transaction_seconds")),
                Panel("Records of a write", COUNT, quantile_queries("spillway_transaction_events")),
                Panel("From a placement to its object", SECONDS, quantile_queries("spillway_placement_seconds")),
            ),
        ),
        Row(
            "The log",
            (
                Panel("Records yet to read", COUNT, value_queries("spillway_topic_lag_records", "topic", how="max")),
                Panel(
                    "Age of the newest read", SECONDS, value_queries("spillway_topic_age_seconds", "topic", how="min")
                ),
                Panel("Written", PER_SECOND, rate_queries("spillway_events_published_total", "topic")),
                Panel("To the acknowledgement", SECONDS, quantile_queries("spillway_publish_seconds")),
                Panel("Cannot be read", PER_SECOND, rate_queries("spillway_dead_letters_total", "topic")),
                Panel("Turns taken", PER_SECOND, rate_queries("spillway_turns_taken_total", "service")),
            ),
        ),
    ),
)
CLUSTERS: Final = Dashboard(
    "spillway-clusters",
    "Spillway: clusters",
    (
        Row(
            "What is known",
            (
                Panel(
                    "Age to the planner", SECONDS, value_queries("spillway_capacity_age_seconds", "cluster", how="max")
                ),
                Panel(
                    "Age at the collector", SECONDS, value_queries("spillway_probe_age_seconds", "cluster", how="max")
                ),
                Panel("Nodes", COUNT, value_queries("spillway_nodes", "cluster", how="max")),
                Panel(
                    "Pods that cannot be scheduled",
                    COUNT,
                    value_queries("spillway_pods_unschedulable", "cluster", how="max"),
                ),
                Panel("One list", SECONDS, quantile_queries("spillway_list_seconds", "resource")),
                Panel(
                    "Watches begun again",
                    PER_SECOND,
                    rate_queries("spillway_watch_restarts_total", "resource", "reason"),
                ),
                Panel("Calls that fail", PER_SECOND, rate_queries("spillway_cluster_unreachable_total", "reason")),
                Panel("Capacity records", PER_SECOND, rate_queries("spillway_capacity_records_total", "kind")),
                Panel("Size of a capacity record", BYTES, quantile_queries("spillway_capacity_bytes")),
            ),
        ),
        Row(
            "What is carried out",
            (
                Panel("Operations", PER_SECOND, rate_queries("spillway_operations_total", "verb", "outcome")),
                Panel("One operation", SECONDS, quantile_queries("spillway_operation_seconds", "verb")),
                Panel("Objects not yet as decided", COUNT, value_queries("spillway_objects_waiting", "cluster")),
                Panel("Objects left alone", COUNT, value_queries("spillway_objects_held", "state")),
                Panel("Orphans", COUNT, value_queries("spillway_orphans", "cluster")),
                Panel("Rollouts that wait", COUNT, active_planner_queries("spillway_rollouts_waiting")),
            ),
        ),
        Row(
            "What moves",
            (
                Panel("Replicas moved", PER_SECOND, rate_queries("spillway_replicas_moved_total", "cause")),
                Panel("Replicas held back", COUNT, active_planner_queries("spillway_replicas_held_back", "by")),
                Panel("Replicas taken back", PER_SECOND, rate_queries("spillway_take_backs_total", "cluster")),
            ),
        ),
    ),
)
SCALING: Final = Dashboard(
    "spillway-scaling-and-lending",
    "Spillway: scaling and lending",
    (
        Row(
            "Sizes",
            (
                Panel("Workloads with a policy", COUNT, value_queries("spillway_scale_policies", how="max")),
                Panel("Sizes decided", PER_SECOND, rate_queries("spillway_scale_decisions_total", "kind")),
                Panel("To the log", SECONDS, quantile_queries("spillway_scale_delay_seconds")),
                Panel(
                    "Queues and Prometheus asked",
                    PER_SECOND,
                    rate_queries("spillway_inputs_read_total", "kind", "outcome"),
                ),
                Panel("Input without effect", PER_SECOND, rate_queries("spillway_scale_inputs_dropped_total", "why")),
            ),
        ),
        Row(
            "Lent nodes",
            (
                Panel("Cores lent", COUNT, value_queries("spillway_cores_lent", "cluster", "supply_class")),
                Panel("Nodes by state", COUNT, value_queries("spillway_nodes_on_loan", "cluster", "state")),
                Panel("Recalled", PER_SECOND, rate_queries("spillway_recalls_total", "cause")),
                Panel("Recalled and not back", COUNT, value_queries("spillway_recalls_standing", how="max")),
                Panel("Held by a budget", COUNT, value_queries("spillway_recalls_held", how="max")),
                Panel("From a recall to the return", SECONDS, quantile_queries("spillway_return_seconds", "cluster")),
                Panel("Returns", PER_SECOND, rate_queries("spillway_returns_total", "cluster", "cause")),
                Panel("Pods told to go", PER_SECOND, rate_queries("spillway_pods_evicted_total", "cluster")),
                Panel("Work lost, cores", COUNT, rate_queries("spillway_lost_core_seconds_total", "cluster")),
            ),
        ),
    ),
)
DASHBOARDS: Final = (OVERVIEW, CLUSTERS, SCALING)


def dashboard_document(dashboard: Dashboard) -> dict[str, Any]:
    """Returns the dashboard in the JSON form that Grafana imports and provisions."""
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["spillway"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": list(_panel_documents(dashboard)),
    }


def _panel_documents(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number = top = 0
    for row in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH * PER_LINE, "h": 1},
        }
        for index, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(index, PER_LINE)
            place = {"x": column * WIDTH, "y": top + 1 + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel_document(panel, number, place)
        top += 1 + HEIGHT * -(-len(row.panels) // PER_LINE)


def _panel_document(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": DATA_SOURCE, "expr": expr, "legendFormat": legend}
        for index, (expr, legend) in enumerate(panel.asks)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def page_maker_by_path() -> dict[str, Callable[[], str]]:
    """Returns for each dashboard's file the function that makes its text."""

    def page_maker_of(dashboard: Dashboard) -> Callable[[], str]:
        return lambda: json.dumps(dashboard_document(dashboard), indent=1, ensure_ascii=False)

    return {f"deploy/observability/dashboards/{one.name}.json": page_maker_of(one) for one in DASHBOARDS}
