"""What a plan looks at only when something of it changed is what is there, whatever happens in between."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core.explaining.supposing import SupposedState
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, ClusterLeft

from .builders import Fleet, cluster, group, node, shape

NAMES = ("own-1", "own-2", "cloud-1")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "beat", "report", "phase", "groups", "leave", "wait", "server"]),
        st.sampled_from(NAMES),
        st.integers(0, 4),
    ),
    max_size=10,
)


def take(fleet: Fleet, verb: str, name: str, number: int) -> None:
    if verb == "wait":
        fleet.now += 4 * number
        return
    joined = fleet.state.clusters[name].joined if name in fleet.state.clusters else None
    if joined is None:
        fleet.join(cluster(name), [node("a")])
        return
    match verb:
        case "change":
            fleet.change(name, [node("a", used=1000 * number), node(f"b{number}")])
        case "beat":
            fleet.change(name, age_ms=3000 * number)
        case "report":
            fleet.report(name, [node("a"), node("b", cpu=1000 * number)])
        case "phase":
            fleet.state.apply(replace(joined, phase=PHASE_CORDONED if number % 2 else PHASE_ACTIVE), fleet.now)
        case "groups":
            fleet.state.apply(replace(joined, node_groups=(group(nodes_max=number),) if number else ()), fleet.now)
        case "leave":
            fleet.state.apply(ClusterLeft(name), fleet.now)
            fleet.sequences.pop(name)
        case "server":
            fleet.report(name, [node("a")], api_server=f"server-{number % 2}")


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_what_is_looked_at_again_only_when_it_changed_is_what_is_there(steps: list[Any]) -> None:
    fleet, wanted = Fleet(own_1=[node("a")], own_2=[node("a", 8000)], cloud_1=[node("a")]), shape(500)
    for verb, name, number in steps:
        take(fleet, verb, name, number)
        anew = SupposedState(fleet.state)  # It has looked at nothing yet, and looks at all each time.
        assert fleet.state.all_rooms(wanted, fleet.now) == anew.all_rooms(wanted, fleet.now)
        assert fleet.state.joined() == anew.joined()
        assert fleet.state.ages_ms(fleet.now) == anew.ages_ms(fleet.now)
