"""What metrics show of the planner's state."""

from math import inf

from prometheus_client import REGISTRY

from planner.core.background import aftermath
from planner.core.requests import decisions
from planner.metrics import age_seconds_by_cluster, hide_gauges, show_brakes, show_state
from spillway.api import ApplyRequest

from .builders import Fleet, deployment, joined_cluster, manifest_texts, node_row


def test_what_is_known_and_what_waits_is_shown() -> None:
    fleet = Fleet(own_1=[node_row("a", 4000)], own_2=[node_row("b", 3000)])
    for name, replicas in (("web", 5), ("api", 9)):
        decided = decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(replicas, name))), fleet.next_moment()
        )
        for event in decided.events:
            fleet.state.apply_event(event, fleet.now)
    fleet.now += 100
    fleet.send_heartbeats("own-1")
    aftermath.update_progress_timers(fleet.state, fleet.now)
    show_state(fleet.state)
    shown = {
        "spillway_workloads": {},
        "spillway_replicas_unplaced": {},
        "spillway_clusters": {"state": "fresh"},
        "spillway_rollouts_waiting": {},
    }
    values = [REGISTRY.get_sample_value(name, labels) for name, labels in shown.items()]
    assert values == [2, 7, 1, 0]
    assert REGISTRY.get_sample_value("spillway_clusters", {"state": "stale"}) == 1


def test_after_the_turn_nothing_of_it_is_shown() -> None:
    """Else a sum over instances, or an alert on any, would count what one said long ago."""
    fleet = Fleet(own_1=[node_row("a", 1000)])
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(5))), fleet.next_moment())
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    shown = ("workloads", "replicas_unplaced", "clusters", "brakes", "replicas_held_back", "confirmations_waiting")

    def value_by_metric() -> dict[str, float]:
        found = (one for family in REGISTRY.collect() for one in family.samples)
        return {one.name: one.value for one in found if one.name.removeprefix("spillway_") in shown}

    show_state(fleet.state)
    show_brakes(fleet.state.brakes)
    assert value_by_metric().keys() == {f"spillway_{name}" for name in shown}
    hide_gauges()
    assert value_by_metric() == {
        f"spillway_{name}": 0 for name in ("workloads", "replicas_unplaced", "confirmations_waiting")
    }


def test_the_age_of_what_is_known_is_told_of_each_cluster_of_the_fleet() -> None:
    fleet = Fleet(own_1=[node_row("a")], own_2=[node_row("b")])
    fleet.state.apply_event(joined_cluster("own-3"), fleet.now)
    fleet.now += 7
    fleet.send_heartbeats("own-2")
    assert age_seconds_by_cluster(fleet.state, fleet.now) == {"own-1": 7.0, "own-2": 0.0, "own-3": inf}
