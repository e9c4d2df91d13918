"""An hour's use of a node adds up, and nothing is told of time that nobody saw."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spillway.amounts import INT64_MAX, INT64_MIN
from spillway.dead_letters import outgoing_record
from spillway.events_lending import NodeUsed
from spillway.model import Generation
from vk_bridge.core.node.usage import HOUR_MS, ClusterUsage, NodeUse

QUIET_MS = 300_000
MINUTE_MS = 60_000
IDLE = NodeUse("idle", {"cpu": 8000}, {}, 0, lent=False)
BUSY = replace(IDLE, requested={"cpu": 3000}, own_pods=2)


def note_use_by_minute(usage: ClusterUsage, uses: list[NodeUse | None], first: int = 0) -> None:
    """One use a minute; None: nothing is heard in that minute."""
    for minute, use in enumerate(uses, first):
        if use is not None:
            usage.note_use("n1", use, minute * MINUTE_MS)


def take_usage_records(usage: ClusterUsage, at_ms: int) -> list[NodeUsed]:
    return usage.take_hours("own-1", at_ms, lambda: Generation(7, 1))


def test_an_hour_is_told_when_it_is_over() -> None:
    usage = ClusterUsage(QUIET_MS)
    note_use_by_minute(usage, [*[IDLE] * 20, *[BUSY] * 10, *[replace(IDLE, lent=True)] * 30])
    assert take_usage_records(usage, HOUR_MS - 1) == []
    (told,) = take_usage_records(usage, HOUR_MS)
    assert (told.from_ms, told.until_ms, told.rule, told.node) == (0, HOUR_MS, "idle", "n1")
    assert (told.idle_ms, told.lent_ms) == (50 * MINUTE_MS, 30 * MINUTE_MS)
    assert (told.pods_max, told.requested_max, told.last_pod_ms) == (2, (("cpu", 3000),), 30 * MINUTE_MS)
    assert (told.used_average, told.used_max) == ((), ())
    assert take_usage_records(usage, HOUR_MS) == []


def test_the_next_hour_begins_where_the_last_one_ended() -> None:
    usage = ClusterUsage(QUIET_MS)
    note_use_by_minute(usage, [BUSY] * 121)
    assert [(one.from_ms, one.until_ms) for one in take_usage_records(usage, 2 * HOUR_MS)] == [
        (0, HOUR_MS),
        (HOUR_MS, 2 * HOUR_MS),
    ]


def test_usage_is_averaged_over_the_time_for_which_it_is_known() -> None:
    usage = ClusterUsage(QUIET_MS)
    note_use_by_minute(
        usage, [*[IDLE] * 30, *[replace(IDLE, used={"cpu": 100})] * 10, *[replace(IDLE, used={"cpu": 400})] * 20]
    )
    (told,) = take_usage_records(usage, HOUR_MS)
    assert (told.used_average, told.used_max) == ((("cpu", 300),), (("cpu", 400),))


def test_time_that_nobody_saw_is_no_idle_time() -> None:
    usage = ClusterUsage(QUIET_MS)
    note_use_by_minute(usage, [IDLE] * 10)
    (told,) = take_usage_records(usage, HOUR_MS)
    assert (told.until_ms, told.idle_ms) == (14 * MINUTE_MS, 14 * MINUTE_MS)
    note_use_by_minute(usage, [IDLE] * 10, first=70)
    assert take_usage_records(usage, HOUR_MS + 1) == []
    (later,) = take_usage_records(usage, 2 * HOUR_MS)
    assert (later.from_ms, later.idle_ms) == (70 * MINUTE_MS, 14 * MINUTE_MS)


def test_a_node_that_is_gone_is_told_of_no_more() -> None:
    usage = ClusterUsage(QUIET_MS)
    note_use_by_minute(usage, [IDLE] * 10)
    usage.forget_node("n1")
    assert take_usage_records(usage, HOUR_MS) == []


@given(st.lists(st.sampled_from([IDLE, BUSY, replace(IDLE, lent=True), None]), min_size=1, max_size=150))
def test_no_more_time_is_told_than_has_passed(uses: list[NodeUse | None]) -> None:
    usage = ClusterUsage(QUIET_MS)
    told: list[NodeUsed] = []
    for minute, use in enumerate([*uses, *[None] * 61]):
        told += take_usage_records(usage, minute * MINUTE_MS)
        note_use_by_minute(usage, [use], first=minute)
    ends = [0, *(one.until_ms for one in told)]
    assert all(one.from_ms >= before for one, before in zip(told, ends, strict=False)), "hours do not overlap"
    assert all(0 <= one.idle_ms <= one.until_ms - one.from_ms <= HOUR_MS for one in told)
    assert all(one.lent_ms <= one.idle_ms for one in told)
    assert all(one.from_ms // HOUR_MS == (one.until_ms - 1) // HOUR_MS for one in told if one.until_ms > one.from_ms)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(INT64_MIN, INT64_MAX))


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(1, 3))
def test_every_hour_can_be_written_whatever_a_member_told(
    offered: dict[str, int], requested: dict[str, int], used: dict[str, int], pods: int
) -> None:
    """Sums over pods are made before they come here, so they may be larger than any amount."""
    usage = ClusterUsage(QUIET_MS)
    sums = {name: amount * pods for name, amount in requested.items()}
    note_use_by_minute(usage, [NodeUse("idle", offered, sums, pods, lent=False, used=used)] * 61)
    (told,) = take_usage_records(usage, HOUR_MS)
    outgoing_record(told)
