"""What NodeLent says of a pool pod: whose it is, since when it runs, and what disrupting it would break."""

from dataclasses import replace
from typing import Any

import pytest

from spillway.dead_letters import outgoing_record
from spillway.events_lending import NodeLent
from spillway.model import Generation
from vk_bridge.core.pod.lent_pod import make_lent_pod, parse_unix_ms, pods_within_record_limit

POD: dict[str, Any] = {
    "metadata": {
        "namespace": "shop",
        "name": "encode-1",
        "uid": "u",
        "labels": {"app": "encode"},
        "annotations": {"controller.kubernetes.io/pod-deletion-cost": "-7"},
        "ownerReferences": [
            {"kind": "Other", "name": "x"},
            {"kind": "ReplicaSet", "name": "encode", "controller": True},
        ],
    },
    "spec": {"priority": 1000},
    "status": {
        "containerStatuses": [
            {"state": {"waiting": {"reason": "x"}}},
            {"state": {"running": {"startedAt": "2026-11-22T06:00:02Z"}}},
            {"state": {"terminated": {"startedAt": "2026-11-22T06:00:01Z"}}},
        ]
    },
}


def test_a_pod_is_told_with_its_controller_and_since_when_it_runs() -> None:
    told = make_lent_pod(POD, (("cpu", 2000),), (("shop/b", 3),))
    assert (told.group, told.priority, told.deletion_cost) == ("ReplicaSet/shop/encode", 1000, -7)
    assert (told.started_ms, told.budgets) == (parse_unix_ms("2026-11-22T06:00:01Z"), (("shop/b", 3),))


def test_a_pod_of_nobody_that_has_not_started() -> None:
    told = make_lent_pod({"metadata": {"namespace": "shop", "name": "a", "uid": "u"}}, (), ())
    assert (told.group, told.priority, told.deletion_cost, told.started_ms) == ("", 0, 0, 0)


def test_a_record_holds_what_fits_of_the_pods_whatever_their_people_made_of_them() -> None:
    """Nobody bounds the kind of a controller, nor the budgets that a pod is under, nor how many pods name a node."""
    few = [make_lent_pod(POD | {"metadata": POD["metadata"] | {"uid": f"u{number}"}}, (), ()) for number in range(3)]
    huge = [replace(few[0], uid=f"huge-{number}", group="K" * 1_200_000 + "/shop/a") for number in range(2)]
    budgets = tuple((f"shop/{number}", 0) for number in range(20_000))
    under_many = [replace(few[0], uid=f"many-{number}", budgets=budgets) for number in range(9)]
    assert pods_within_record_limit([*huge, *reversed(few), *under_many]) == tuple(few)
    crowd = [replace(few[0], uid=f"c{number:06}") for number in range(50_000)]
    kept = pods_within_record_limit(crowd)
    assert 1_000 < len(kept) < len(crowd)
    loan = Generation(1, 1)
    record = NodeLent("own-1", "n1", 1, 1, loan, "pool", "own-1.n1", "all", "idle", "Lent", "", (), kept, 1, 0, "")
    assert outgoing_record(record).value, "it fits"


@pytest.mark.parametrize("priority", [None, 2**31, -(2**31) - 1, 10**30, 1.5, "high", [], {}])
def test_a_priority_that_is_none_counts_as_none(priority: object) -> None:
    """It is a field of a pod that nobody has read: a number that 64 bits do not hold fits into no record."""
    assert make_lent_pod({**POD, "spec": {"priority": priority}}, (), ()).priority == 0


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "1969-01-01T00:00:00Z", "now"])
def test_any_time_at_which_a_pod_began_can_be_written(time: str) -> None:
    status = {"containerStatuses": [{"state": {"running": {"startedAt": time}}}]}
    assert 0 <= make_lent_pod({**POD, "status": status}, (), ()).started_ms < 2**63


@pytest.mark.parametrize("cost", ["", "much", "99999999999", "9" * 5000, "٣" * 20])
def test_a_deletion_cost_that_is_none_counts_as_none(cost: str) -> None:
    metadata = {**POD["metadata"], "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}
    assert make_lent_pod({**POD, "metadata": metadata}, (), ()).deletion_cost == 0
