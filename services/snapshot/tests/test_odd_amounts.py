"""Whatever amounts a member tells, what is said of it can be written and summed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from spillway.amounts import AMOUNT_MAX, PODS_MAX
from spillway.columns import columns_of
from spillway.dead_letters import outgoing_record
from spillway.events import CapacityReported
from spillway.kubernetes.objects import NODES, PODS
from spillway.wire import pack_columns

AMOUNTS = st.sampled_from(["0", "1", "1m", "110", "-1", "64Gi", "9P", "9E", "8Ei", "9223372036854775807", "1e18"])
NAMED = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "example.com/gpu"]), AMOUNTS)


@given(NAMED, st.lists(NAMED, max_size=3), NAMED)
def test_whatever_nodes_and_pods_say_sums_over_a_cluster_stay_within_64_bits(
    objects: Any, offered: dict[str, str], asked: list[dict[str, str]], waiting: dict[str, str]
) -> None:
    """9P cores and 9E pods were as many places for a small replica, and a thousand times that fits into no record."""
    state = ClusterState("f1", SnapshotRules())
    state.upsert_object(NODES, objects.node("n1", allocatable=offered))
    for number, requests in enumerate(asked):
        containers = [{"name": "c", "resources": {"requests": requests}}]
        state.upsert_object(PODS, objects.pod(f"p{number}", "n1", spec={"containers": containers}))
    containers = [{"name": "c", "resources": {"requests": waiting}}]
    state.upsert_object(PODS, objects.pod("w", owner="rs1", said="0/3 nodes", spec={"containers": containers}))
    (row,) = state.take_changes().rows
    (group,) = (state.take_waiting_groups() or {}).values()
    wanted = dict(group.shape.requests) if group.shape is not None else {}
    for amounts in (row.allocatable, row.requested, wanted):
        assert all(0 <= amount <= (PODS_MAX if name == "pods" else AMOUNT_MAX) for name, amount in amounts.items())
    columns = pack_columns(columns_of([row]))
    outgoing_record(CapacityReported("own-1", 1, 0, 1, 1, 0, columns, ()))
