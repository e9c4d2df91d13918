"""What the capacity streams say of a cluster: epochs, gaps, ages, facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.columns import NO_NODES, columns_of
from spillway.events import PodsScheduled, PodsUnschedulable
from spillway.feasibility.cluster_view import NEVER, ClusterView
from spillway.model import Generation, NodeRow, WorkloadFacts
from spillway.troubles import TroubleCode

from .builders import (
    NO_COLUMNS,
    capacity_changed,
    capacity_reported,
    joined_cluster,
    make_shape,
    node_group,
    node_row,
    workload_facts,
)

AGE_MAX = 30.0
V1 = Generation(9, 1)
WEB = ("default", "web")


class Stream:
    """Feeds a view."""

    def __init__(self) -> None:
        self.view = ClusterView("a")
        self.now = 100.0

    def feed_full_block(self, *rows: NodeRow, **more: int) -> None:
        self.view.apply_capacity_reported(capacity_reported("a", rows, **more), columns_of(rows))  # type: ignore[arg-type]

    def feed_change(self, sequence: int, *rows: NodeRow, **more: object) -> None:
        self.view.apply_capacity_changed(capacity_changed("a", sequence, **more), columns_of(rows), self.now, sequence)  # type: ignore[arg-type]

    def total_fit(self) -> int:
        return self.view.fit_of_shape(make_shape(1000)).total

    def staleness_reason(self) -> str:
        return self.view.staleness_reason(self.now, AGE_MAX)


@pytest.fixture
def stream() -> Stream:
    stream = Stream()
    stream.feed_full_block(node_row("n", 4000))
    stream.feed_change(1)
    return stream


def test_nothing_is_placed_on_what_was_never_heard() -> None:
    assert Stream().staleness_reason() == "no capacity heard yet"


def test_a_full_block_alone_has_no_age() -> None:
    stream = Stream()
    stream.feed_full_block(node_row("n"))
    assert (stream.total_fit(), stream.staleness_reason()) == (4, "no capacity heard yet")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TroubleCode.UNREACHABLE, "the cluster does not answer"),
        (TroubleCode.NOT_ALLOWED, "no credential that the cluster accepts, or a right is missing"),
        (TroubleCode.UNWRITABLE, "no record holds what the cluster has"),
        (TroubleCode.NODES_DOUBTED, "the cluster lists far fewer nodes than before"),
        (99, "the cluster cannot be followed"),
    ],
)
def test_why_a_cluster_is_not_fresh_names_no_file_and_no_address(code: int, said: str) -> None:
    stream = Stream()
    stream.feed_full_block(node_row("n"))
    detail = "probe: connection: GET https://10.1.2.3:6443/api: /etc/spillway/own-1.kubeconfig"
    stream.feed_change(1, age_ms=-1, trouble=detail, trouble_code=code)
    assert stream.staleness_reason() == f"no capacity heard yet ({said})"
    assert stream.view.trouble == detail, "for those who may see it"


def test_a_heartbeat_makes_it_fresh(stream: Stream) -> None:
    assert stream.staleness_reason() == ""
    assert stream.view.age_seconds(stream.now) == 0


def test_its_age_grows_from_what_the_collector_said(stream: Stream) -> None:
    stream.feed_change(2, age_ms=20_000)
    stream.now += 8
    assert stream.view.age_seconds(stream.now) == pytest.approx(28)
    assert stream.staleness_reason() == ""
    stream.now += 3
    assert stream.staleness_reason() == "capacity is 31 s old"


def test_a_heartbeat_without_an_age_leaves_the_age(stream: Stream) -> None:
    stream.now += 8
    stream.feed_change(2, age_ms=-1, trouble="401")
    assert (stream.view.age_seconds(stream.now), stream.view.trouble) == (8, "401")


def test_a_heartbeat_that_comes_twice_does_not_make_it_younger(stream: Stream) -> None:
    stream.now += 50
    stream.feed_change(1)
    assert stream.staleness_reason() == "capacity is 50 s old"


@pytest.mark.parametrize(
    ("code", "trouble", "is_lost"),
    [
        (TroubleCode.UNREACHABLE, "nodes: unauthorized: so it says", True),
        (TroubleCode.NODES_DOUBTED, "some words", True),
        (TroubleCode.NOT_ALLOWED, "some words", False),
        (TroubleCode.UNWRITABLE, "some words", False),
        (9, "of a newer version: timeout: no answer", False),
        (0, "nodes: timeout: no answer", True),
        (0, "the list of nodes lost 5 of 6; not believed yet", True),
        (0, "nodes: unauthorized: no", False),
        (0, "connect: credential: no such file", False),
        (0, "capacity: unwritable: CapacityReported a/0: 3000000 bytes", False),
        (0, "nodes: garbage: unwritable: so it says", True),
    ],
)
def test_a_cluster_is_lost_by_the_code_of_its_trouble_alone(
    stream: Stream, code: int, trouble: str, is_lost: bool
) -> None:
    """One that has more than a record holds, or does not let us in, runs on. A record of before codes has its text."""
    for seconds in range(2, 60):
        stream.now += 1
        stream.feed_change(seconds, age_ms=seconds * 1000, trouble=trouble, trouble_code=code)
    assert stream.staleness_reason()
    assert (stream.view.lost_seconds(stream.now, AGE_MAX) is not None) == is_lost


def test_rows_of_a_change_are_in_the_view(stream: Stream) -> None:
    stream.feed_change(2, node_row("n", 2000), node_row("m", 1000))
    assert stream.total_fit() == 3


def test_removed_nodes_are_gone(stream: Stream) -> None:
    stream.feed_change(2, removed=("n",))
    assert stream.total_fit() == 0


def test_a_lower_epoch_is_dropped(stream: Stream) -> None:
    stream.feed_full_block(node_row("n", 9000), epoch=6)
    stream.feed_change(2, node_row("n", 9000), epoch=6)
    assert stream.total_fit() == 4


def test_an_older_full_block_is_dropped(stream: Stream) -> None:
    stream.feed_full_block(node_row("n", 9000), sequence=0)
    assert stream.total_fit() == 4


def test_a_full_block_removes_what_it_does_not_list(stream: Stream) -> None:
    stream.feed_full_block(node_row("m", 1000), sequence=5)
    assert stream.total_fit() == 1


def test_a_new_epoch_takes_effect_when_all_its_blocks_are_there(stream: Stream) -> None:
    stream.feed_full_block(node_row("x", 1000), epoch=8, index=0, count=2)
    assert (stream.total_fit(), stream.view.epoch) == (4, 7)
    stream.feed_full_block(node_row("y", 1000), epoch=8, index=1, count=2)
    assert (stream.total_fit(), stream.view.epoch) == (2, 8)


def test_changes_of_a_new_epoch_wait_for_its_blocks(stream: Stream) -> None:
    stream.feed_change(1, node_row("x", 3000), epoch=8)
    assert stream.total_fit() == 4
    stream.feed_full_block(node_row("x", 1000), epoch=8)
    assert stream.total_fit() == 3


def test_a_new_owner_that_has_not_listed_yet_does_not_make_ours_younger(stream: Stream) -> None:
    stream.now += 40
    stream.feed_change(1, epoch=8)
    assert stream.staleness_reason() == "capacity is 40 s old"


def test_an_epoch_that_never_became_complete_is_passed_over(stream: Stream) -> None:
    stream.feed_full_block(node_row("x", 1000), epoch=8, count=2)
    stream.feed_full_block(node_row("z", 2000), epoch=9)
    stream.feed_full_block(node_row("y", 1000), epoch=8, index=1, count=2)
    assert (stream.total_fit(), stream.view.epoch) == (2, 9)


def test_after_a_gap_it_is_stale_until_the_next_full_block(stream: Stream) -> None:
    stream.feed_change(3, node_row("n", 1000))
    assert (stream.total_fit(), stream.staleness_reason()) == (4, "a change of its capacity is missing")
    stream.feed_change(4)
    assert stream.staleness_reason() == "a change of its capacity is missing"
    stream.feed_full_block(node_row("n", 3000), sequence=4)
    assert (stream.total_fit(), stream.staleness_reason()) == (3, "")


def test_changes_after_a_gap_that_the_full_block_does_not_contain_are_applied_on_it(stream: Stream) -> None:
    stream.feed_change(3, node_row("n", 1000))
    stream.feed_change(4, node_row("m", 1000))
    stream.feed_full_block(node_row("n", 3000), sequence=3)
    assert (stream.total_fit(), stream.staleness_reason()) == (4, "")


def test_a_gap_that_the_full_block_does_not_close_stays(stream: Stream) -> None:
    stream.feed_change(5, node_row("n", 1000))
    stream.feed_full_block(node_row("n", 3000), sequence=3)
    assert stream.staleness_reason() == "a change of its capacity is missing"


def test_blocks_have_their_own_sequences() -> None:
    stream = Stream()
    stream.feed_full_block(node_row("n"), index=0, count=2)
    stream.feed_full_block(node_row("m"), index=1, count=2)
    stream.feed_change(1)
    stream.feed_change(1, node_row("m", 1000), index=1)
    assert (stream.total_fit(), stream.staleness_reason()) == (5, "")


def test_facts_come_with_the_nodes_that_they_were_counted_with(stream: Stream) -> None:
    stream.feed_change(2, shown=(workload_facts(V1, 3),))
    assert stream.view.facts[WEB].counted == (("h0", 3),)
    stream.feed_change(3, facts_removed=(WEB,))
    assert not stream.view.facts


def test_a_full_block_replaces_all_facts(stream: Stream) -> None:
    stream.feed_change(2, shown=(workload_facts(V1, 3),))
    keys = stream.view.apply_capacity_reported(
        capacity_reported("a", (), sequence=3, shown=(workload_facts(V1, 1, name="api"),)), NO_COLUMNS
    )
    assert (set(stream.view.facts), keys) == ({("default", "api")}, {WEB, ("default", "api")})


def test_a_full_block_of_other_nodes_leaves_what_is_true_of_the_cluster_as_a_whole(stream: Stream) -> None:
    """Else what is bound would be held a second time, for an hour, whenever another block is written again."""
    whole = capacity_reported("a", (), epoch=8, count=2, shown=(workload_facts(V1, 3),), api_server="uid-1")
    stream.view.apply_capacity_reported(whole, NO_COLUMNS)
    stream.feed_full_block(node_row("m"), epoch=8, index=1, count=2)
    stream.feed_full_block(node_row("m", 1000), epoch=8, index=1, count=2, sequence=1)
    assert (set(stream.view.facts), stream.view.api_server, stream.total_fit()) == ({WEB}, "uid-1", 1)


def test_a_bind_is_noted(stream: Stream) -> None:
    stream.feed_change(2, shown=(workload_facts(V1, 3),))
    stream.now += 5
    stream.feed_change(3, shown=(workload_facts(V1, 2),))
    assert stream.view.bound_at == 100.0
    stream.feed_change(4, shown=(workload_facts(V1, 4),))
    assert stream.view.bound_at == 105.0


def test_pods_that_do_not_schedule_are_known_until_they_do() -> None:
    view = ClusterView("a")
    waits = PodsUnschedulable("a", "default/web", 7, 5, "default/web", 3, "cpu")
    view.apply_pending_pods(waits)
    view.apply_pending_pods(PodsUnschedulable("a", "default/web", 6, 9, "default/web", 9, "of an owner that woke"))
    assert view.pending == {"default/web": waits}
    view.apply_pending_pods(PodsScheduled("a", "default/web", 6, 10))
    assert view.pending == {"default/web": waits}
    view.apply_pending_pods(PodsScheduled("a", "default/web", 7, 6))
    assert not view.pending


def test_the_nodes_of_a_group_are_counted() -> None:
    stream = Stream()
    stream.view.apply_cluster_joined(joined_cluster("a", node_groups=(node_group(),)))
    stream.feed_full_block(node_row("n", labels={"group": "burst"}), node_row("m"))
    assert [count for _, count in stream.view.node_groups()] == [1]


CHANGES = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.booleans(), st.integers(0, 5)), min_size=1, max_size=12
)


def apply_step(view: ClusterView, step: int, entry: tuple[str, int, bool, int]) -> None:
    name, cpu, removed, bound = entry
    rows = () if removed else (node_row(name, cpu * 1000),)
    shown: tuple[WorkloadFacts, ...] = (workload_facts(V1, bound),)
    event = capacity_changed("a", step, removed=(name,) if removed else (), shown=shown)
    view.apply_capacity_changed(event, columns_of(rows), 100.0 + step, step)


def visible_state(view: ClusterView) -> object:
    live = {
        name: int(view.fit_of_shape(make_shape(1000)).per_node[row])
        for row, name in enumerate(view.nodes.names)
        if name
    }
    return live, view.facts, view.epoch, view.staleness_reason(120.0, AGE_MAX), view.age_seconds(120.0), view.bound_at


@given(CHANGES, st.data())
def test_duplicates_and_repeated_prefixes_change_nothing(
    entries: list[tuple[str, int, bool, int]], data: st.DataObject
) -> None:
    once, again = ClusterView("a"), ClusterView("a")
    rows = (node_row("x"),)
    repeat = data.draw(st.integers(0, len(entries)))
    for view in (once, again):
        view.apply_capacity_reported(capacity_reported("a", rows), columns_of(rows))
        for step, entry in enumerate(entries, 1):
            apply_step(view, step, entry)
            if view is again:
                apply_step(view, step, entry)
    again.apply_capacity_reported(capacity_reported("a", rows), columns_of(rows))
    for step, entry in enumerate(entries[:repeat], 1):
        apply_step(again, step, entry)
    assert visible_state(again) == visible_state(once)


def test_a_heartbeat_from_before_the_reader_began_makes_nothing_fresh() -> None:
    """What a restart reads from the log is of unknown age."""
    view = ClusterView("own-1")
    view.apply_capacity_reported(capacity_reported("own-1", [node_row("a")], sequence=0), columns_of([node_row("a")]))
    view.apply_capacity_changed(capacity_changed("own-1", 1), NO_NODES, NEVER, 1)
    assert view.age_seconds(50.0) is None
    view.apply_capacity_changed(capacity_changed("own-1", 2), NO_NODES, 50.0, 2)
    assert view.age_seconds(50.0) == 0


def test_who_collected_before_speaks_of_no_pods_of_which_nobody_spoke() -> None:
    """The owner since has said of all pods that wait: of others there are none."""
    view = ClusterView("a")
    view.apply_pending_pods(PodsUnschedulable("a", "default/web", 7, 5, "default/web", 3, "cpu"))
    view.apply_pending_pods(PodsUnschedulable("a", "default/api", 6, 9, "default/api", 9, "of an owner that woke"))
    assert list(view.pending) == ["default/web"]


def test_behind_the_claim_of_another_collector_the_one_before_says_nothing(stream: Stream) -> None:
    """Seed 856637: a collector woke up after its turn, and wrote an age of before it froze."""
    stream.now += 60
    stream.view.apply_turn_claim(stream.view.epoch + 5)
    stream.feed_change(2, node_row("m", 8000))
    assert (stream.total_fit(), stream.view.age_seconds(stream.now)) == (4, 60)


def test_a_claim_takes_nothing_from_what_was_said_before_it(stream: Stream) -> None:
    stream.view.apply_turn_claim(stream.view.epoch + 5)
    assert (stream.total_fit(), stream.staleness_reason()) == (4, "")
