"""Which nodes a worker looks at again after a record."""

from dataclasses import replace

import pytest

from spillway.addresses import BRAKES, CAPACITY_NEEDED, CLUSTERS, LENDING, LENDING_RULES, PENDING, RECALLS, Topic
from spillway.events import BrakeReleased, BrakeSet, ClusterJoined, ClusterLeft, Event, PodsScheduled
from spillway.events_lending import LendingDeclared, NodeLent, NodeRecalled, RecallSettled
from spillway.model import Generation
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.touched_work import TouchedWork, apply_record

LOAN = Generation(7, 1)
JOINED = ClusterJoined("own-1", "id", "https://own-1", "own", "", "", (), ())
POOL = replace(JOINED, cluster="pool")
DECLARED = LendingDeclared("own-1", Generation(3, 1), "pool", (), 10, 600, 0, False, False, "", "", 0)
LENT = NodeLent("own-1", "n1", 7, 1, LOAN, "pool", "own-1.n1", "all", "idle", "Lent", "", (), (), 1, 0, "")
RECALLED = NodeRecalled("own-1", "n1", Generation(4, 1), LOAN, "Asked", (), 30, 0, "ann", "", 9)


@pytest.mark.parametrize(
    ("topic", "key", "event", "touched"),
    [
        pytest.param(
            LENDING, "own-1/n2", replace(LENT, node="n2"), TouchedWork("own-1", "n2", owners=True), id="new loan"
        ),
        pytest.param(
            LENDING, "own-1/n1", replace(LENT, sequence=2), TouchedWork("own-1", owners=True), id="same loan again"
        ),
        pytest.param(LENDING, "own-1/n1", None, TouchedWork("own-1", "n1", owners=True), id="loan forgotten"),
        pytest.param(RECALLS, "own-1/n1", RECALLED, TouchedWork("own-1", "n1", recalled=True), id="recall"),
        pytest.param(
            RECALLS,
            "own-1/n1",
            RecallSettled("own-1", "n1", Generation(4, 2), LOAN, 9),
            TouchedWork("own-1", "n1", recalled=True),
            id="recall settled",
        ),
        pytest.param(RECALLS, "own-1/n1", None, TouchedWork("own-1", "n1", recalled=True), id="recall forgotten"),
        pytest.param(
            LENDING_RULES,
            "own-1",
            DECLARED,
            TouchedWork("own-1", all_nodes=True, owners=True),
            id="owner lends otherwise",
        ),
        pytest.param(BRAKES, "fleet", BrakeSet("fleet", "", "ann", 9), TouchedWork("", all_nodes=True), id="brake"),
        pytest.param(
            BRAKES, "fleet", BrakeReleased("fleet", "ann", 9), TouchedWork("", all_nodes=True), id="brake released"
        ),
        pytest.param(BRAKES, "fleet", None, TouchedWork("", all_nodes=True), id="brake forgotten"),
        pytest.param(CLUSTERS, "own-1", JOINED, TouchedWork("own-1", owners=True), id="cluster said again"),
        pytest.param(
            CLUSTERS,
            "pool",
            ClusterLeft("pool"),
            TouchedWork("", all_nodes=True, owners=True, left="pool"),
            id="pool left",
        ),
        pytest.param(
            CLUSTERS, "pool", None, TouchedWork("", all_nodes=True, owners=True, left="pool"), id="pool forgotten"
        ),
        pytest.param(
            PENDING, "own-1/g", PodsScheduled("own-1", "g", 7, 1), TouchedWork("own-1"), id="pods wait no longer"
        ),
        pytest.param(CAPACITY_NEEDED, "shop/web/own-1", None, TouchedWork("own-1"), id="need forgotten"),
    ],
)
def test_a_record_concerns(topic: Topic, key: str, event: Event | None, touched: TouchedWork) -> None:
    state = LendingLogState()
    for known in (JOINED, POOL, DECLARED, LENT):
        state.apply_event(known)
    assert apply_record(state, topic.name, key, event) == touched
