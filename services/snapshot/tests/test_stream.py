"""The records of one epoch: what a reader knows after any of them, sequences, and when whole blocks are due."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.core import capacity_stream as streams
from snapshot.core.capacity_stream import (
    ClusterSign,
    Stream,
    TooManyAmounts,
    block_hash_key,
    blocks_max,
    blocks_needed,
    node_hash,
)
from snapshot.core.cluster_state import StateChanges
from snapshot.core.rules import SnapshotRules
from spillway.events import CapacityChanged, CapacityReported
from spillway.model import Generation, NamespaceFacts, NodeRow, Quota, WorkloadFacts
from spillway.troubles import NO_TROUBLE, Trouble, TroubleCode
from spillway.wire import pack_columns, unpack_columns

SIGN = ClusterSign(5, NO_TROUBLE)
NOTHING = StateChanges((), (), (), ())


def node_row(name: str, cpu: int = 4) -> NodeRow:
    return NodeRow(name, {"cpu": cpu}, {})


def workload_facts(name: str, replicas: int = 1) -> WorkloadFacts:
    return WorkloadFacts("default", name, Generation(1, 1), name, replicas, True, 0, 0, 0, ())


def changes_of_rows(*names: str, cpu: int = 4) -> StateChanges:
    return replace(NOTHING, rows=tuple(node_row(name, cpu) for name in names))


def stream_with_state(whole: StateChanges = NOTHING, rules: SnapshotRules | None = None, blocks: int = 1) -> Stream:
    stream = Stream("own-1", 100, rules or SnapshotRules(), pack_columns, blocks)
    stream.set_initial_state(whole)
    return stream


def due_whole_records(stream: Stream, now: float = 0.0) -> list[CapacityReported]:
    return [full for index in stream.whole_blocks_due(now) if (full := stream.whole_block_record(index, now))]


def test_an_epoch_begins_with_all_its_blocks(new_reader: Any) -> None:
    names = [f"n{index}" for index in range(50)]
    stream = stream_with_state(changes_of_rows(*names), blocks=4)
    reader = new_reader()
    written = due_whole_records(stream)
    assert [(full.index, full.count, full.sequence, full.as_of_offset) for full in written] == [
        (index, 4, 0, 100) for index in range(4)
    ]
    for full in written:
        assert reader.row_by_node == {}
        reader.apply_record(full)
    assert reader.row_by_node.keys() == set(names)
    assert due_whole_records(stream) == []


def test_what_is_true_of_the_cluster_as_a_whole_is_said_in_its_first_block_alone() -> None:
    """Readers take it from there, and of a large cluster it would be as many megabytes as there are blocks."""
    spaces = (NamespaceFacts("default", (), ()),)
    stream = stream_with_state(
        replace(changes_of_rows("n1"), facts=(workload_facts("web"),), namespaces=spaces, api_server="uid-1"), blocks=3
    )
    assert [(full.facts, full.namespaces, full.api_server) for full in due_whole_records(stream)] == [
        ((workload_facts("web"),), spaces, "uid-1"),
        ((), (), ""),
        ((), (), ""),
    ]


def test_before_it_begins_there_are_only_heartbeats() -> None:
    stream = Stream("own-1", 100, SnapshotRules(), pack_columns)
    beats = [stream.heartbeat_record(ClusterSign(-1, Trouble(TroubleCode.UNREACHABLE, "silent"))) for _ in range(2)]
    assert [(beat.index, beat.sequence, beat.age_ms, beat.trouble) for beat in beats] == [
        (0, 1, -1, "silent"),
        (0, 2, -1, "silent"),
    ]
    assert stream.whole_blocks_due(1e9) == []
    stream.set_initial_state(changes_of_rows("n1"))
    assert [full.sequence for full in due_whole_records(stream)] == [2]


def test_what_is_as_it_was_said_is_not_said_again() -> None:
    whole = replace(changes_of_rows("n1", "n2"), facts=(workload_facts("web"),))
    stream = stream_with_state(whole)
    assert list(stream.change_records(whole, SIGN)) == []
    assert list(stream.change_records(replace(NOTHING, removed=("n9",), facts_removed=(("a", "b"),)), SIGN)) == []


def test_rows_before_the_facts_that_are_counted_on_them() -> None:
    stream = stream_with_state(blocks=3)
    names = ["n0", "n1", "n2", "n3", "n4"]
    records = list(stream.change_records(replace(changes_of_rows(*names), facts=(workload_facts("web"),)), SIGN))
    assert [record.index for record in records][-1] == 0
    assert [record.facts for record in records[:-1]] == [() for _ in records[:-1]]
    assert records[-1].facts == (workload_facts("web"),)


def test_namespaces_are_said_before_all_else_and_are_in_block_0() -> None:
    """What a quota has left is known before the pods that used it: nobody is promised it twice."""
    team = NamespaceFacts("team-a", (), (Quota("q", (("pods", 5),), (("pods", 2),)),))
    less = replace(team, quotas=(Quota("q", (("pods", 5),), (("pods", 3),)),))
    stream = stream_with_state(replace(NOTHING, namespaces=(team,)), blocks=2)
    assert [full.namespaces for full in due_whole_records(stream)] == [(team,), ()]
    changes = list(
        stream.change_records(
            replace(changes_of_rows("a", "b", "c"), namespaces=(less,), facts=(workload_facts("web"),)), SIGN
        )
    )
    assert [(change.namespaces, bool(change.facts)) for change in changes[:: len(changes) - 1]] == [
        ((less,), False),
        ((), True),
    ]
    assert list(stream.change_records(replace(NOTHING, namespaces=(less,)), SIGN)) == []
    (gone,) = stream.change_records(replace(NOTHING, namespaces_removed=("team-a", "unknown")), SIGN)
    assert gone.namespaces_removed == ("team-a",)
    assert stream.whole_block_record(0, 0.0).namespaces == ()  # type: ignore[union-attr]


def test_many_facts_go_in_several_records() -> None:
    stream = stream_with_state(rules=SnapshotRules(facts_per_record_max=2))
    records = list(
        stream.change_records(replace(NOTHING, facts=tuple(workload_facts(f"w{n}") for n in range(5))), SIGN)
    )
    assert [(record.sequence, len(record.facts)) for record in records] == [(1, 2), (2, 2), (3, 1)]


def test_of_many_workloads_that_are_gone_all_are_said_to_be(new_reader: Any) -> None:
    """As when a whole fleet's objects are deleted at once: what is not said to be gone counts for ever."""
    names = [f"w{index}" for index in range(5)]
    stream = stream_with_state(
        replace(NOTHING, facts=tuple(map(workload_facts, names))), rules=SnapshotRules(facts_per_record_max=2)
    )
    reader = new_reader()
    for full in due_whole_records(stream):
        reader.apply_record(full)
    gone = [("default", name) for name in names]
    records = list(
        stream.change_records(replace(NOTHING, facts=(workload_facts("new"),), facts_removed=tuple(gone)), SIGN)
    )
    assert [(len(record.facts), len(record.facts_removed)) for record in records] == [(1, 2), (0, 2), (0, 1)]
    for record in records:
        reader.apply_record(record)
    assert reader.facts.keys() == {("default", "new")}


def test_a_block_is_written_again_when_its_changes_weigh_as_much() -> None:
    stream = stream_with_state(changes_of_rows("n1"), SnapshotRules(full_bytes_min=1_000))
    due_whole_records(stream)
    written = 0
    while not stream.whole_blocks_due(1.0):
        written += len(list(stream.change_records(changes_of_rows("n1", cpu=5 + written), SIGN)))
    assert 2 <= written <= 10
    assert [full.sequence for full in due_whole_records(stream, 1.0)] == [written]
    assert stream.whole_blocks_due(1.0) == []
    for _ in range(100):
        stream.heartbeat_record(SIGN)
    assert stream.whole_blocks_due(1.0) == []


def test_a_block_is_written_hourly_at_its_own_moment() -> None:
    moments = set()
    for cluster in ("a", "b", "c"):
        stream = Stream(cluster, 1, SnapshotRules(), pack_columns)
        stream.set_initial_state(changes_of_rows("n1"))
        due_whole_records(stream, 0.0)
        moments.add(stream._blocks[0].full_due_at)
        assert not stream.whole_blocks_due(1799.0)
        assert stream.whole_blocks_due(3600.0)
        due_whole_records(stream, 3600.0)
        assert not stream.whole_blocks_due(7199.0)
        assert stream.whole_blocks_due(7200.0)
    assert len(moments) == 3


def test_a_failed_send_makes_a_whole_block_due(new_reader: Any) -> None:
    stream, reader = stream_with_state(changes_of_rows("n1")), new_reader()
    for full in due_whole_records(stream):
        reader.apply_record(full)
    (lost,) = stream.change_records(changes_of_rows("n2"), SIGN)
    stream.request_whole_block(lost.index)
    (change,) = stream.change_records(changes_of_rows("n3"), SIGN)
    reader.apply_record(change)
    assert reader.gaps == 1
    for full in due_whole_records(stream):
        reader.apply_record(full)
    assert reader.row_by_node.keys() == {"n1", "n2", "n3"}
    (change,) = stream.change_records(changes_of_rows("n4"), SIGN)
    reader.apply_record(change)
    assert (reader.gaps, len(reader.row_by_node)) == (1, 4)


def test_readers_go_on_behind_the_last_change_that_stands() -> None:
    stream = stream_with_state(changes_of_rows("n1"))
    stream.note_written_offset(150)
    stream.note_written_offset(140)
    assert [full.as_of_offset for full in due_whole_records(stream)] == [151]


def test_a_block_that_outgrows_its_bound_asks_for_a_new_epoch() -> None:
    stream = stream_with_state(changes_of_rows("n0", "n1"), SnapshotRules(block_nodes_max=2))
    assert not stream.has_outgrown_block
    list(stream.change_records(changes_of_rows("n2"), SIGN))
    assert stream.has_outgrown_block


def test_a_block_too_heavy_for_a_record_is_not_written_but_split() -> None:
    rules = SnapshotRules(block_bytes_max=200)
    stream = stream_with_state(changes_of_rows(*(f"node-{n}" for n in range(200))), rules)
    assert due_whole_records(stream) == []
    assert stream.has_outgrown_block
    assert stream.next_epoch_blocks_min == 2
    alone = stream_with_state(changes_of_rows("n1"), SnapshotRules(block_bytes_max=1))
    assert len(due_whole_records(alone)) == 1


@given(st.integers(0, 300), st.integers(10, 60))
def test_no_block_is_over_its_bound(nodes: int, nodes_max: int) -> None:
    hashes = [node_hash(f"n{index}", block_hash_key("own-1", 100)) for index in range(nodes)]
    count = blocks_needed(hashes, nodes_max)
    sizes = [sum(1 for number in hashes if number % count == index) for index in range(count)]
    assert max(sizes) <= nodes_max
    assert count == 1 or nodes > nodes_max


@pytest.mark.parametrize(("name", "block"), [("n1", 3), ("n2", 4), ("node-a", 2)])
def test_a_node_stays_in_its_block_across_versions(name: str, block: int) -> None:
    """A pinned hash: another one would move nodes between the blocks of an epoch when a process is replaced."""
    assert node_hash(name, block_hash_key("own-1", 100)) % 5 == block


def test_names_that_no_number_of_blocks_tells_apart_are_bounded() -> None:
    """Before, it was tried with one block more without end: 5,001 names of one CRC-32 are easily made."""
    assert blocks_needed([7] * 6, 5) == blocks_max(6, 5) == 68


def test_names_of_one_crc_are_not_in_one_block() -> None:
    """Two of them were in one block whatever the number of blocks was."""
    first, second = "plumless", "buckeroo"
    assert crc32(first.encode()) == crc32(second.encode())
    assert (
        len({node_hash(name, block_hash_key("own-1", epoch)) for name in (first, second) for epoch in (100, 101)}) == 4
    )


def names_in_same_block(counts: Sequence[int]) -> tuple[str, str]:
    """Two names that are in one block of the streams of begun(), whichever of these numbers of blocks they have."""
    names_by_blocks: dict[tuple[int, ...], str] = {}
    for name in (f"n{number}" for number in itertools.count()):
        blocks = tuple(node_hash(name, block_hash_key("own-1", 100)) % count for count in counts)
        if (other := names_by_blocks.setdefault(blocks, name)) != name:
            return other, name
    raise AssertionError("there are names without end")


def test_the_number_of_blocks_is_bounded_however_heavy_they_are() -> None:
    """Before, it doubled with each epoch without end: 2,097,152 records of two nodes after 22 epochs."""
    names = names_in_same_block((64, 66))
    rules, counts = SnapshotRules(block_bytes_max=1), [1]
    for _ in range(10):
        stream = stream_with_state(changes_of_rows(*names), rules, counts[-1])
        written = due_whole_records(stream)
        if not stream.has_outgrown_block:
            break
        counts.append(stream.next_epoch_blocks_min)
    assert counts == [1, 2, 4, 8, 16, 32, 64, 66] == [*counts[:-1], blocks_max(2, 5_000)]
    assert len([full for full in written if full.columns]) == 1  # The log takes it, or refuses it.
    assert stream_with_state(changes_of_rows(*names), rules, 10**9).block_count == 66


def test_a_block_of_too_many_nodes_is_written_where_there_may_be_no_more() -> None:
    """Else the turn would be claimed again, for as many blocks, without end. Of a hundred names some are always in one
    block."""
    stream = stream_with_state(
        changes_of_rows(*(f"n{number}" for number in range(100))), SnapshotRules(block_nodes_max=1)
    )
    written = due_whole_records(stream)
    assert (
        (stream.block_count, stream.has_outgrown_block, len(written))
        == (264, False, 264)
        == (blocks_max(100, 1), False, 264)
    )
    assert max(len(unpack_columns(full.columns).names) for full in written if full.columns) > 1


def row_with_many_amounts(count: int, of: str) -> NodeRow:
    return NodeRow(of, {f"{of}/{number}": 1 for number in range(count)}, {})


def test_amounts_of_many_resources_go_in_several_records(monkeypatch: pytest.MonkeyPatch, new_reader: Any) -> None:
    """Columns have each node's amount of each resource: 5,000 nodes with 64 of their own are 1,600 million numbers."""
    monkeypatch.setattr(streams, "AMOUNTS_MAX", 100)
    stream, reader = stream_with_state(changes_of_rows("n0")), new_reader()
    for full in due_whole_records(stream):
        reader.apply_record(full)
    wide = tuple(row_with_many_amounts(20, f"wide-{number}") for number in range(5))
    records = list(
        stream.change_records(replace(NOTHING, rows=wide, facts=(workload_facts("web"),), removed=("n0",)), SIGN)
    )
    assert [(len(record.facts), len(record.removed)) for record in records] == [(0, 0), (0, 0), (1, 1)]
    for record in records:
        reader.apply_record(record)
    assert (reader.gaps, reader.row_by_node) == (0, {row.name: row for row in wide})
    stream.request_whole_block(0)
    assert due_whole_records(stream) == []
    assert stream.has_outgrown_block


def test_too_many_amounts_for_all_blocks_that_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AMOUNTS_MAX", 100)
    monkeypatch.setattr(streams, "BLOCKS_BESIDE_NODES_MAX", 0)
    wide = stream_with_state(
        replace(NOTHING, rows=tuple(row_with_many_amounts(20, f"wide-{number}") for number in range(50))), blocks=8
    )
    assert wide.block_count == 2
    with pytest.raises(TooManyAmounts, match="CapacityReported own-1/0: amounts of"):
        due_whole_records(wide)


names = st.sampled_from([f"n{index}" for index in range(8)])
workloads = st.sampled_from(["w1", "w2", "w3"])
step = st.tuples(
    st.dictionaries(names, st.integers(0, 2), max_size=4),
    st.sets(names, max_size=2),
    st.dictionaries(workloads, st.integers(0, 2), max_size=2),
    st.sets(workloads, max_size=1),
    st.sampled_from(("change", "beat", "lose", "full")),
)


@given(st.integers(1, 3), st.lists(step, max_size=15))
def test_changes_applied_to_the_whole_give_the_whole(new_reader: Any, blocks: int, steps: list[Any]) -> None:
    """Sequences have no gap; a reader of changes knows what a reader of fresh whole blocks knows; twice is once."""
    stream, follower = stream_with_state(changes_of_rows("n1", "n2"), blocks=blocks), new_reader()
    sequences: dict[int, int] = {}
    for full in due_whole_records(stream):
        follower.apply_record(full)
    for upserted, removed, declared, forgotten, fate in steps:
        changes = StateChanges(
            tuple(node_row(name, cpu) for name, cpu in upserted.items() if name not in removed),
            tuple(removed),
            tuple(workload_facts(name, n) for name, n in declared.items() if name not in forgotten),
            tuple(("default", name) for name in forgotten),
        )
        records: list[CapacityChanged] = list(stream.change_records(changes, SIGN))
        if fate == "beat":
            records.append(stream.heartbeat_record(SIGN))
        for record in records:
            assert record.sequence == sequences.get(record.index, 0) + 1
            sequences[record.index] = record.sequence
            if fate == "lose":
                stream.request_whole_block(record.index)
            else:
                follower.apply_record(record)
                follower.apply_record(record)
        if fate == "full":
            for index in range(blocks):
                stream.request_whole_block(index)
        for full in due_whole_records(stream):
            assert full.sequence == sequences.get(full.index, 0)
            follower.apply_record(full)
        assert follower.gaps == 0
        fresh = new_reader()
        for index in range(blocks):
            fresh.apply_record(stream.whole_block_record(index, 0.0))
        assert (fresh.row_by_node, fresh.facts) == (follower.row_by_node, follower.facts)


def test_which_api_server_it_is_is_said_in_whole_block_0_alone() -> None:
    stream = stream_with_state(replace(changes_of_rows("a", "b", "c"), api_server="u1"), blocks=2)
    assert [full.api_server for full in due_whole_records(stream)] == ["u1", ""]
    assert list(stream.change_records(replace(NOTHING, api_server="u1"), SIGN)) == []
    assert due_whole_records(stream) == []
    assert list(stream.change_records(replace(NOTHING, api_server="u2"), SIGN)) == []
    assert [(full.index, full.api_server) for full in due_whole_records(stream)] == [(0, "u2")]
