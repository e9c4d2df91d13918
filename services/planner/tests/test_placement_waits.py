"""What a placement waits for, as records of this version and of older ones say it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.placement_waits import (
    NO_WAITS,
    PlacementWait,
    RolloutWait,
    encode_waits,
    full_waits_text,
    has_no_waits,
    recorded_waits,
    waits_digest,
    waits_text,
)
from spillway.addresses import PLACEMENTS
from spillway.events import PlacementDecided, PlacementWaits
from spillway.model import Generation
from spillway.wire import decode_event, encode_bounded_event, event_type

WORDS = st.text("abc -:0", min_size=1, max_size=12).map(str.strip).filter(bool)
"""None of them begins a part of an older text."""
FIGURES = st.recursive(WORDS, lambda inner: st.builds("{} ({})".format, WORDS, inner), max_leaves=3) | st.just("")


def placement_decided(waiting_for: str, waits: PlacementWaits | None) -> PlacementDecided:
    return PlacementDecided("shop", "web", Generation(1, 1), 1, (), 0, waiting_for, waits=waits)


FROZEN = "rollout 0 of 1 cluster: workload/a/b is frozen by ann: a feast"
ROLLS = "rollout 1 of 3 clusters: waits for own-1"
OLDER = {
    "": NO_WAITS,
    "room (own-1: cpu (2 nodes))": PlacementWaits(room=True),
    "held: 3 replicas kept in own-1 for x": PlacementWaits(),
    ROLLS: PlacementWaits(rollout=ROLLS, rollout_cluster="own-1"),
    f"room (x); held: y; {FROZEN}": PlacementWaits(room=True, rollout=FROZEN, rollout_frozen=True),
}


@pytest.mark.parametrize(("text", "expected"), OLDER.items())
def test_the_text_of_an_older_version_is_read(text: str, expected: PlacementWaits) -> None:
    older = placement_decided(text, None)
    found = recorded_waits(older)
    assert (found.room, found.rollout, found.rollout_frozen) == (
        *(expected.room, expected.rollout, expected.rollout_frozen),
    )
    assert found.rollout_frozen or found.rollout_cluster == expected.rollout_cluster
    assert (full_waits_text(older), bool(waits_digest(older)), has_no_waits(older)) == (text, bool(text), not text)


@given(
    st.lists(st.builds(PlacementWait, WORDS, FIGURES), max_size=3),
    WORDS | st.just(""),
    WORDS | st.just(""),
    st.booleans(),
)
def test_a_text_of_an_older_version_says_the_same_as_codes(
    room: list[PlacementWait], held: str, cluster: str, frozen: bool
) -> None:
    """So nothing is decided anew after an upgrade only because the record of a wait looks otherwise."""
    held = held and f"held: {held}"
    text = f"rollout 1 of 2 clusters: {'a is frozen by b: c' if frozen else f'waits for {cluster}'}" if cluster else ""
    rollout = RolloutWait(text, "" if frozen else cluster, frozen and text != "")
    new = placement_decided("; ".join(filter(None, (waits_text(room), held))), encode_waits(room, held, rollout))
    older = placement_decided("; ".join(filter(None, (waits_text(room), held, text))), None)
    assert full_waits_text(new) == full_waits_text(older)
    ours, theirs = recorded_waits(new), recorded_waits(older)
    assert (ours.room, ours.rollout, ours.rollout_frozen) == (theirs.room, theirs.rollout, theirs.rollout_frozen)
    assert waits_digest(new) == waits_digest(older)
    assert has_no_waits(new) == has_no_waits(older)
    assert frozen or ours.rollout_cluster == theirs.rollout_cluster


def test_other_figures_alone_are_no_other_wait() -> None:
    one, other = (
        encode_waits([PlacementWait("room", figures)], "", RolloutWait()) for figures in ("2 nodes", "3 nodes")
    )
    assert one == other
    assert one != encode_waits([PlacementWait("3 for room", "2 nodes")], "", RolloutWait())


def test_a_record_keeps_them() -> None:
    event = placement_decided("room", PlacementWaits(True, "rollout 0 of 1 cluster: waits for a", "a", True, "0123"))
    assert decode_event(PLACEMENTS.name, event_type(event), encode_bounded_event(event)) == event
