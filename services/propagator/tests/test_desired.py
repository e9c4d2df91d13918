"""What the log wants: the newest of each, in whatever order it is read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from propagator.core.desired import UNTOUCHED, DesiredState, PartTarget, TouchedTargets, is_from_former_turn
from spillway.addresses import CLUSTERS, DEPENDENCIES, PLACEMENTS, WORKLOAD_STATUS, WORKLOADS, address_of_event
from spillway.events import (
    ClusterJoined,
    ClusterLeft,
    DependencyDeclared,
    Event,
    PlacementDecided,
    ShapeAdmitted,
    WorkloadDeclared,
    WorkloadObserved,
)
from spillway.model import EarlierTemplate, Generation, ObjectReference, Part, Policy

OWN, CLOUD = PartTarget("own-1", "shop", "web"), PartTarget("cloud-1", "shop", "web")
DECLARED = WorkloadDeclared("shop", "web", "Deployment", 3, 1, b"{}", 4, Policy((), (), "Wait"), (), (), (), False)
CONFIG = DependencyDeclared("ConfigMap", "shop", "c", "shop/web", 2, b"{}")
WITH_CONFIG = replace(DECLARED, dependencies=(ObjectReference("ConfigMap", "shop", "c"),))


EARLIER = replace(DECLARED, template_generation=2, earlier_templates=(EarlierTemplate(1, b"{}"),))


def placement_decided(sequence: int, *clusters: str, generation: int = 3, template: int = 0) -> PlacementDecided:
    version = Generation(5, sequence)
    parts = tuple(Part(cluster, version, sequence, 0, sequence, False, template) for cluster in clusters)
    return PlacementDecided("shop", "web", version, generation, parts, 0, "")


def workload_observed(epoch: int, sequence: int, state: str = "Present") -> WorkloadObserved:
    return WorkloadObserved("shop", "web", "own-1", epoch, sequence, Generation(5, 1), state, "", 1, 1, 1, 1, 1)


def state_after_events(*events: Event) -> DesiredState:
    desired = DesiredState()
    for event in events:
        apply_event(desired, event)
    return desired


def apply_event(desired: DesiredState, event: Event) -> TouchedTargets:
    address = address_of_event(event)
    return desired.apply_record(address.topic.name, address.key, event)


HELD = {
    "no declaration": ((placement_decided(1, "own-1"),), "the declaration of generation 3 (known: none)"),
    "an older declaration": (
        (replace(DECLARED, generation=2), placement_decided(1, "own-1")),
        "the declaration of generation 3 (known: 2)",
    ),
    "a dependency not read": (
        (WITH_CONFIG, placement_decided(1, "own-1")),
        "ConfigMap shop/c, which the declaration lists",
    ),
    "a dependency of another workload": (
        (WITH_CONFIG, replace(CONFIG, workload="shop/api"), placement_decided(1, "own-1")),
        "ConfigMap shop/c, which the declaration lists",
    ),
    "a dependency of a declaration that is still to come": (
        (replace(CONFIG, workload_generation=4), WITH_CONFIG, placement_decided(1, "own-1")),
        "the declaration of generation 4, which changed ConfigMap",
    ),
    "a dependency that was not listed before, and is again": (
        (replace(CONFIG, manifest=b""), WITH_CONFIG, placement_decided(1, "own-1")),
        "ConfigMap shop/c, which the declaration lists",
    ),
    "a dependency that another workload gave up, as is read first": (
        (
            replace(CONFIG, workload="shop/api", workload_generation=9, manifest=b""),
            WITH_CONFIG,
            CONFIG,
            placement_decided(1, "own-1"),
        ),
        "",
    ),
    "a dependency that another workload gave up, as is read last": (
        (
            WITH_CONFIG,
            CONFIG,
            replace(CONFIG, workload="shop/api", workload_generation=9, manifest=b""),
            placement_decided(1, "own-1"),
        ),
        "",
    ),
    "an earlier template": ((EARLIER, placement_decided(1, "own-1", template=1)), ""),
    "an earlier template that the declaration does not have": (
        (replace(EARLIER, earlier_templates=()), placement_decided(1, "own-1", template=1)),
        "the template of generation 1, which the declaration does not have",
    ),
    "the newest template by its number": ((EARLIER, placement_decided(1, "own-1", template=2)), ""),
    "all there": ((WITH_CONFIG, CONFIG, placement_decided(1, "own-1")), ""),
    "all there, placement first": ((placement_decided(1, "own-1"), CONFIG, WITH_CONFIG), ""),
    "a newer declaration than was placed": ((replace(DECLARED, generation=9), placement_decided(1, "own-1")), ""),
}


@pytest.mark.parametrize(("events", "lacking"), HELD.values(), ids=HELD.keys())
def test_held_until_all_that_it_names_is_read(events: tuple[Event, ...], lacking: str) -> None:
    wanted = state_after_events(*events).wanted_state(OWN)
    assert wanted is not None
    assert wanted.lacking == lacking


def test_what_is_not_placed_is_not_wanted() -> None:
    assert state_after_events(DECLARED).wanted_state(OWN) is None
    assert state_after_events(DECLARED, placement_decided(1, "cloud-1")).wanted_state(OWN) is None


def test_a_placement_touches_the_clusters_that_it_lists_and_listed() -> None:
    desired = state_after_events(placement_decided(1, "own-1"))
    assert apply_event(desired, placement_decided(2, "cloud-1")).targets == {OWN, CLOUD}
    assert desired.targets_in_cluster("own-1") == frozenset()
    assert desired.targets_in_cluster("cloud-1") == {CLOUD}


def test_declarations_and_dependencies_touch_what_is_placed() -> None:
    desired = state_after_events(placement_decided(1, "own-1", "cloud-1"))
    assert apply_event(desired, WITH_CONFIG).targets == {OWN, CLOUD}
    assert apply_event(desired, CONFIG).targets == {OWN, CLOUD}
    assert apply_event(desired, CONFIG) == UNTOUCHED


OLDER = {
    "placement": ((placement_decided(2, "own-1"),), placement_decided(1, "cloud-1")),
    "placement again": ((placement_decided(2, "own-1"),), placement_decided(2, "own-1")),
    "declaration": ((placement_decided(1, "own-1"), DECLARED), replace(DECLARED, generation=2)),
    "dependency": ((placement_decided(1, "own-1"), CONFIG), replace(CONFIG, workload_generation=1)),
}


@pytest.mark.parametrize(("events", "late"), OLDER.values(), ids=OLDER.keys())
def test_what_is_older_than_known_is_dropped(events: tuple[Event, ...], late: Event) -> None:
    desired = state_after_events(*events)
    before = desired.wanted_state(OWN)
    assert apply_event(desired, late) == UNTOUCHED
    assert desired.wanted_state(OWN) == before


def test_a_tombstone_of_a_placement_forgets_it() -> None:
    desired = state_after_events(DECLARED, placement_decided(1, "own-1"), workload_observed(7, 1))
    assert desired.targets_of_obsolete_statuses() == frozenset()
    assert desired.apply_record(PLACEMENTS.name, "shop/web", None).targets == {OWN}
    assert (desired.wanted_state(OWN), desired.is_target_listed(OWN), desired.has_no_placements) == (None, False, True)
    assert desired.targets_of_obsolete_statuses() == {OWN}
    desired.apply_record(WORKLOAD_STATUS.name, "shop/web/own-1", None)
    assert desired.targets_of_obsolete_statuses() == frozenset()


def test_after_a_tombstone_generations_may_begin_again() -> None:
    desired = state_after_events(DECLARED, CONFIG, placement_decided(2, "own-1"))
    for topic, key in ((WORKLOADS, "shop/web"), (DEPENDENCIES, "ConfigMap/shop/c"), (PLACEMENTS, "shop/web")):
        desired.apply_record(topic.name, key, None)
    apply_event(desired, replace(DECLARED, generation=1))
    apply_event(desired, placement_decided(1, "own-1", generation=1))
    wanted = desired.wanted_state(OWN)
    assert wanted is not None
    assert wanted.lacking == ""


def test_a_tombstone_of_a_declaration_holds_what_is_placed() -> None:
    desired = state_after_events(DECLARED, placement_decided(1, "own-1"))
    assert desired.apply_record(WORKLOADS.name, "shop/web", None).targets == {OWN}
    wanted = desired.wanted_state(OWN)
    assert wanted is not None
    assert wanted.lacking


def test_a_status_of_a_lower_epoch_behind_a_higher_is_dropped() -> None:
    desired = state_after_events(workload_observed(7, 3))
    assert apply_event(desired, workload_observed(6, 9, "Refused")) == UNTOUCHED
    assert apply_event(desired, workload_observed(7, 4)) == UNTOUCHED
    assert apply_event(desired, workload_observed(7, 2, "Refused")) == UNTOUCHED
    assert desired.logged_status(OWN) == workload_observed(7, 4)


def test_clusters_join_and_leave() -> None:
    joined = ClusterJoined("own-1", "own-1", "https://own-1", "own", "", "", (), ())
    desired = DesiredState()
    assert apply_event(desired, joined).clusters
    assert not apply_event(desired, joined).clusters
    assert desired.clusters == {"own-1": joined}
    assert apply_event(desired, ClusterLeft("own-1")).clusters
    assert not apply_event(desired, ClusterLeft("own-1")).clusters
    apply_event(desired, joined)
    assert desired.apply_record(CLUSTERS.name, "own-1", None).clusters
    assert desired.clusters == {}


@pytest.mark.parametrize(
    ("event", "former"),
    [
        pytest.param(workload_observed(6, 9), True, id="a status of the turn before"),
        pytest.param(workload_observed(-1, 9), True, id="a status of before all turns"),
        pytest.param(workload_observed(7, 1), False, id="a status of the present turn"),
        pytest.param(workload_observed(8, 1), False, id="a status of a later turn"),
        pytest.param(
            ShapeAdmitted("d", "own-1", 6, 9, "shop", "Admitted", "", None), True, id="a shape of the turn before"
        ),
        pytest.param(
            ShapeAdmitted("d", "own-1", 7, 1, "shop", "Admitted", "", None), False, id="a shape of the present turn"
        ),
        pytest.param(
            ShapeAdmitted("d", "own-1", 8, 1, "shop", "Admitted", "", None), False, id="a shape of a later turn"
        ),
    ],
)
def test_which_records_a_writer_without_the_turn_wrote(event: WorkloadObserved | ShapeAdmitted, former: bool) -> None:
    assert is_from_former_turn(event, 7) is former


RECORDS = st.sampled_from(
    [
        *(placement_decided(sequence, *clusters) for sequence in (1, 2, 3) for clusters in (("own-1",),)),
        *(replace(WITH_CONFIG, generation=generation) for generation in (2, 3, 4)),
        *(replace(CONFIG, workload_generation=generation) for generation in (2, 3)),
        *(workload_observed(epoch, sequence) for epoch in (6, 7) for sequence in (1, 2)),
    ]
)


@given(st.lists(RECORDS, max_size=12), st.randoms())
def test_order_and_repetition_across_keys_do_not_matter(events: list[Event], random: object) -> None:
    other = [*events, *events]
    random.shuffle(other)  # type: ignore[attr-defined]
    one, two = state_after_events(*events), state_after_events(*other)
    assert one.wanted_state(OWN) == two.wanted_state(OWN)
    assert one.logged_status(OWN) == two.logged_status(OWN)
