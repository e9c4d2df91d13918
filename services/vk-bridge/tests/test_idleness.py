"""No node is called idle that was not: whatever comes late, twice, in another order, or after a restart."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_bridge.core.selection.idleness import Idleness, SeenPod


def seen_pod(uid: str, version: int, node: str = "n", *, holds: bool = True, excused: bool = False) -> SeenPod:
    return SeenPod(uid, version, node, holds, excused)


@pytest.fixture
def idleness() -> Idleness:
    made = Idleness()
    made.add_node("n", "uid-1", 100.0)
    return made


def test_idle_time_advances_with_the_watermark_alone(idleness: Idleness) -> None:
    assert idleness.idle_seconds("n") == 0
    idleness.advance_watermark(150.0)
    assert idleness.idle_seconds("n") == 50
    idleness.advance_watermark(120.0)
    assert idleness.idle_seconds("n") == 50


def test_a_pod_makes_its_node_busy_until_it_is_heard_to_be_gone(idleness: Idleness) -> None:
    idleness.apply_pod(seen_pod("a", 1), 110)
    idleness.advance_watermark(300)
    assert idleness.idle_seconds("n") == 0
    idleness.remove_pod(seen_pod("a", 2), 310)
    idleness.advance_watermark(320)
    assert idleness.idle_seconds("n") == 10


@pytest.mark.parametrize(
    "excused",
    [seen_pod("d", 1, excused=True), seen_pod("e", 1, holds=False, excused=True)],
    ids=["a daemon or the pool's", "one that has ended"],
)
def test_some_pods_do_not_count(idleness: Idleness, excused: SeenPod) -> None:
    idleness.apply_pod(excused, 190)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 100


def test_a_pod_that_has_ended_was_there_until_now(idleness: Idleness) -> None:
    idleness.apply_pod(seen_pod("a", 1), 110)
    idleness.apply_pod(seen_pod("a", 2, holds=False), 150)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 50


def test_what_is_told_again_changes_nothing(idleness: Idleness) -> None:
    idleness.apply_pod(seen_pod("a", 1), 110)
    idleness.remove_pod(seen_pod("a", 2), 120)
    for again in (seen_pod("a", 1), seen_pod("a", 2)):
        idleness.apply_pod(again, 190)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 80


def test_a_pod_that_is_gone_does_not_come_back(idleness: Idleness) -> None:
    """Deleted is final for a uid, whatever version comes after; it is remembered until nothing older can come."""
    idleness.apply_pod(seen_pod("a", 1), 110)
    idleness.remove_pod(seen_pod("a", 1), 120)
    idleness.apply_pod(seen_pod("a", 5), 130)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 80
    idleness.apply_pod(seen_pod("d", 1, excused=True), 130)
    idleness.forget_gone()
    assert list(idleness._pods) == ["d"]


@pytest.mark.parametrize("goes", [False, True])
def test_a_daemon_that_is_orphaned_and_adopted_again_keeps_its_node_busy_meanwhile_alone(
    idleness: Idleness, goes: bool
) -> None:
    idleness.apply_pod(seen_pod("d", 1, excused=True), 110)
    idleness.apply_pod(seen_pod("d", 2), 120)
    idleness.advance_watermark(130)
    assert idleness.idle_seconds("n") == 0
    adopted = seen_pod("d", 3, excused=True)
    (idleness.remove_pod if goes else idleness.apply_pod)(adopted, 140)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 60


def test_a_list_from_the_beginning_begins_idle_time_anew(idleness: Idleness) -> None:
    """A pod may have come and gone unheard."""
    idleness.begin_new_list(180)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 20


def test_another_node_of_an_old_name_was_not_idle_before(idleness: Idleness) -> None:
    idleness.add_node("n", "uid-1", 150)
    idleness.add_node("n", "uid-2", 190)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 10


def test_pods_may_be_heard_of_before_their_node(idleness: Idleness) -> None:
    idleness.apply_pod(seen_pod("a", 1, "later"), 110)
    idleness.add_node("later", "uid-3", 120)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("later") == 0
    idleness.remove_pod(seen_pod("a", 2, "later"), 210)
    idleness.advance_watermark(220)
    assert idleness.idle_seconds("later") == 10


def test_a_node_that_goes_and_comes_back_keeps_its_pods(idleness: Idleness) -> None:
    idleness.apply_pod(seen_pod("a", 1), 110)
    idleness.remove_node("n")
    idleness.add_node("n", "uid-2", 130)
    idleness.advance_watermark(200)
    assert idleness.idle_seconds("n") == 0


class Stay(NamedTuple):
    """A pod was on the node from begin to end, and three changes told of it: it came, it changed, it went."""

    uid: str
    begin: int
    end: int


class Told(NamedTuple):
    at: float
    pod: SeenPod
    gone: bool
    happened: int


@st.composite
def pod_histories(draw: st.DrawFn) -> tuple[list[Stay], list[Told], set[int]]:
    """Each change is heard when it happened or later, perhaps again; the order among those that are late is any."""
    stays, told = [], []
    for number in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, 50))
        stay = Stay(f"pod-{number}", begin, begin + draw(st.integers(0, 30)))
        stays.append(stay)
        middle = (stay.begin + stay.end) // 2
        for step, happened in enumerate((stay.begin, middle, stay.end)):
            for _ in range(draw(st.integers(1, 2))):
                late = draw(st.sampled_from([0, 0, 3, 20, 60]))
                told.append(Told(happened + late, seen_pod(stay.uid, 1 + step), step == 2, happened))
    restarts = draw(st.sets(st.integers(1, 120), max_size=2))
    return stays, sorted(told, key=lambda one: one.at), restarts


@given(pod_histories())
def test_false_idle_marks_are_none(history: tuple[list[Stay], list[Told], set[int]]) -> None:
    """At each second: what is called idle had no pod for so long up to the watermark, by what truly happened."""
    stays, told, restarts = history
    idleness = Idleness()
    idleness.add_node("n", "uid-1", 0.0)
    for now in range(130):
        if now in restarts:
            idleness = Idleness()
            idleness.add_node("n", "uid-1", now)
            for stay in stays:  # A whole list as it is now.
                if stay.begin <= now < stay.end:
                    idleness.apply_pod(seen_pod(stay.uid, 1), now)
            told = [one for one in told if one.happened > now]
        for one in [one for one in told if now <= one.at < now + 1]:
            (idleness.remove_pod if one.gone else idleness.apply_pod)(one.pod, one.at)
        # The watermark is sure only of what was heard: nothing that happened before it is still to come.
        heard = {one.pod for one in told if one.at < now + 1}
        idleness.advance_watermark(min([now, *(one.happened for one in told if one.pod not in heard)]))
        idle = idleness.idle_seconds("n")
        sure = idleness._watermark
        busy = [stay for stay in stays if stay.begin < sure and stay.end > sure - idle and stay.begin != stay.end]
        assert not (idle and busy), f"at {now} idle for {idle} up to {sure}, but {busy}"
