"""The rooms that are kept over arrays are those of room.py, whatever happens to nodes, groups and reservations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.feasibility import promises as promises_module
from planner.core.feasibility.promises import ClusterReservations
from planner.core.feasibility.reservation import NOTHING_RESERVED, Reservation
from planner.core.feasibility.room import Room
from spillway.columns import columns_of
from spillway.events import ClusterJoined
from spillway.feasibility.cluster_view import ClusterView
from spillway.model import NodeGroup, NodeRow, PodSelector, PodTerm, Quota, Shape, Spread

from .builders import make_shape, node_group, node_row
from .test_kept_fits import SHAPES, drawn_node_rows

CLUSTERS = ("a", "b", "c")
APART = make_shape(300, apart=(PodTerm(PodSelector(()), own=True),))
SPREAD = make_shape(300, spread=(Spread(PodSelector(()), 1, topology_key="zone"),))
"""Of which arrays do not tell."""

RESERVATIONS = st.builds(
    lambda free, new: Reservation(0, 0, 0, tuple(free.items()), tuple(new.items())),
    st.dictionaries(st.one_of(SHAPES, SHAPES, SHAPES, st.just(APART)), st.integers(1, 4), max_size=2),
    st.one_of(st.just({}), st.just({}), st.dictionaries(SHAPES, st.integers(1, 2), max_size=1)),
)
STEP = st.one_of(
    st.tuples(st.just("nodes"), st.sampled_from(CLUSTERS), st.lists(drawn_node_rows(), min_size=1, max_size=4)),
    st.tuples(st.just("reserve"), st.sampled_from(CLUSTERS), st.tuples(st.sampled_from("xyz"), RESERVATIONS)),
    st.tuples(st.just("reserve"), st.sampled_from(CLUSTERS), st.tuples(st.sampled_from("xyz"), RESERVATIONS)),
    st.tuples(st.just("bind"), st.sampled_from(CLUSTERS), st.sampled_from("xyz")),
    st.tuples(st.just("groups"), st.sampled_from(CLUSTERS), st.integers(0, 2)),
    st.tuples(st.just("quota"), st.sampled_from(CLUSTERS), st.booleans()),
    st.tuples(st.just("ask"), st.sampled_from(CLUSTERS), SHAPES),
)


def numbered_node_groups(count: int) -> tuple[NodeGroup, ...]:
    return tuple(node_group(f"g{index}", cpu=2000 * (index + 1), nodes_max=index + 1) for index in range(count))


def cluster_with_groups(name: str, groups: int) -> ClusterJoined:
    return ClusterJoined(name, name, "", "own", "", "", (), numbered_node_groups(groups))


def take_story_step(step: Any, views: dict[str, ClusterView], promises: ClusterReservations) -> None:
    verb, cluster, what = step
    view = views[cluster]
    match verb:
        case "nodes":
            view.nodes.upsert_nodes(columns_of(list({row.name: row for row in what}.values())), 0)
        case "reserve":
            promises.set_reservation(cluster, ("n", what[0]), what[1])
        case "bind":
            promises.set_reservation(cluster, ("n", what), NOTHING_RESERVED)
        case "groups":
            view.joined = cluster_with_groups(cluster, what)
        case "quota":
            view.quotas = {"default": (Quota("q", (("pods", 9),), ()),)} if what else {}
    view.revision += 1


@given(
    there=st.lists(drawn_node_rows(), min_size=1, max_size=12, unique_by=lambda row: row.name),
    steps=st.lists(STEP, max_size=14),
    shapes=st.lists(SHAPES, min_size=1, max_size=4),
)
def test_rooms_over_arrays_are_those_of_the_plain_functions(
    there: list[NodeRow], steps: list[Any], shapes: list[Shape]
) -> None:
    """Of one cluster, of all at once, on nodes that exist and in node groups; asked in between or only at the end."""
    promises, views = ClusterReservations(), {name: ClusterView(name) for name in CLUSTERS}
    for index, (name, view) in enumerate(views.items()):
        view.nodes.upsert_nodes(columns_of(there[: 4 * (index + 1)]), 0)
        view.joined = cluster_with_groups(name, index)
    asked, found = list(shapes), []
    for step in steps:
        take_story_step(step, views, promises)
        if step[0] == "ask":
            asked.append(step[2])
            assert_rooms_match(promises, views, step[2])
            found.append((promises.rooms_of_fleet(views, step[2]), rooms_computed_anew(promises, views, step[2])))
        for one in shapes[:2]:
            assert promises.room_in_cluster(views[step[1]], one, False) == promises.room_without_workload(
                views[step[1]], one, False
            )
    for one in (*asked, APART, SPREAD):
        assert_rooms_match(promises, views, one)
        for view in views.values():  # What is said without a look at pods holds with one.
            assert (
                not promises.has_no_fitting_node(view, one) or not promises.room_in_cluster(view, one, False).possible
            )
    for then, expected in found:  # Looked at once all has changed, they are still those of when they were found.
        assert then == expected


def assert_rooms_match(promises: ClusterReservations, views: dict[str, ClusterView], one: Shape) -> None:
    found, plain = promises.rooms_of_fleet(views, one), rooms_computed_anew(promises, views, one)
    for groups in (False, True):
        names = tuple(name for name in views if (name, groups) in plain)
        assert found.certain_by_cluster(names, groups) == {name: plain[name, groups].certain for name in names}
    assert found == plain


def rooms_computed_anew(
    promises: ClusterReservations, views: dict[str, ClusterView], one: Shape
) -> dict[tuple[str, bool], Room]:
    places = [(name, False) for name in views]
    places += [(name, True) for name, view in views.items() if view.joined is not None and view.joined.node_groups]
    return {(name, groups): promises.room_without_workload(views[name], one, groups) for name, groups in places}


def test_rooms_are_right_where_nodes_and_reservations_changed_while_only_others_were_asked_about() -> None:
    """The room of one cluster takes in what is reserved in all, where the nodes may be others by then."""
    promises, views = ClusterReservations(), {name: ClusterView(name) for name in CLUSTERS}
    for name, view in views.items():
        view.joined = cluster_with_groups(name, 0)
        take_story_step(("nodes", name, [node_row("n0", cpu=8000), node_row("n1", cpu=4000)]), views, promises)
        take_story_step(("reserve", name, ("x", Reservation(2, 0, 0, ((make_shape(700), 2),), ()))), views, promises)
    assert_rooms_match(promises, views, make_shape(500))
    take_story_step(("nodes", "a", [node_row("n0", cpu=1500), node_row("n2", cpu=900)]), views, promises)
    take_story_step(("reserve", "a", ("y", Reservation(1, 0, 0, ((make_shape(300), 1),), ()))), views, promises)
    promises.room_in_cluster(views["b"], make_shape(500), False)
    assert_rooms_match(promises, views, make_shape(500))
    assert_rooms_match(promises, views, make_shape(700))


@pytest.mark.parametrize("reserved_max", [1, 8], ids=["more than are kept", "all are kept"])
def test_rooms_are_right_when_more_shapes_are_reserved_than_are_kept(
    reserved_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then none are kept."""
    monkeypatch.setattr(promises_module, "RESERVED_MAX", reserved_max)
    promises, view = ClusterReservations(), ClusterView("a")
    view.nodes.upsert_nodes(columns_of([node_row("n0", cpu=8000), node_row("n1", cpu=4000)]), 0)
    for cpu in (300, 700, 1100):
        promises.set_reservation("a", ("n", str(cpu)), Reservation(1, 0, 0, ((make_shape(cpu), 1),), ()))
        assert promises.rooms_of_fleet({"a": view}, make_shape(500)) == {
            ("a", False): promises.room_without_workload(view, make_shape(500), False)
        }


def test_rooms_are_right_when_kinds_of_shapes_come_that_no_cluster_was_looked_at_for() -> None:
    """Of twelve kinds each asks for another node; each is reserved once all others were asked about."""
    promises, views = ClusterReservations(), {name: ClusterView(name) for name in CLUSTERS}
    kinds = [make_shape(100, node_selector=(("pool", f"p{index}"),)) for index in range(12)]
    for name, view in views.items():
        view.joined = cluster_with_groups(name, 0)
        pools = [node_row(f"n{index}", 1000, labels={"pool": f"p{index}"}) for index in range(12)]
        take_story_step(("nodes", name, pools), views, promises)
    for index, one in enumerate(kinds):
        for name in CLUSTERS:
            take_story_step(("reserve", name, (f"w{index}", Reservation(0, 0, 0, ((one, 2),), ()))), views, promises)
        assert_rooms_match(promises, views, one)
    for one in kinds:
        assert_rooms_match(promises, views, one)
