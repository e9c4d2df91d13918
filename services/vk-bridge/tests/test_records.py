"""The one writer of a cluster's records: what it keeps while the log is away, and what no record can hold."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from spillway.bus import Bus, BusUnavailable, Position, Traces
from spillway.dead_letters import outgoing_record
from spillway.events_lending import NodeLent, NodeUsed
from spillway.model import Generation
from vk_bridge.log.record_writer import Loan, Records
from vk_bridge.settings import VkBridgeSettings

SETTINGS = VkBridgeSettings(records_waiting_max=4, bus_retry_seconds=0.01)


def usage_record(hour: int) -> NodeUsed:
    return NodeUsed("own-1", "node-1", 3, hour, hour, hour + 1, "", (), (), (), (), 0, 0, 0, 0)


def lent_record(node: str, waiting: str = "") -> NodeLent:
    names = "own-1", node, 3, 1, Generation(3, 1), "pool", f"v-{node}", "rule", "spot", "Lent", ""
    return NodeLent(*names, (), (), 1, 0, waiting)


@dataclass
class Log:
    """A bus in one list, which is away as long as it is told to be. when_asked: is called when it is first asked."""

    away: bool = False
    when_asked: Callable[[], None] = lambda: None
    records: list[Any] = field(default_factory=list)
    tries: int = 0

    async def publish(self, *events: Any, traces: Traces | None = None) -> tuple[Position, ...]:
        if self.tries == 0:
            self.when_asked()
        self.tries += 1
        [outgoing_record(event) for event in events]
        if self.away:
            raise BusUnavailable("away")
        self.records += events
        return tuple(Position("", 0, at) for at in range(len(events)))


def records_and_acknowledged(log: Log) -> tuple[Records, list[Loan]]:
    acknowledged: list[Loan] = []
    return Records(cast(Bus, log), SETTINGS, acknowledged.append), acknowledged


async def test_of_too_many_hours_of_use_the_oldest_go_while_the_log_is_away() -> None:
    log = Log(away=True)
    records, _ = records_and_acknowledged(log)
    records.queue_usage_records([usage_record(hour) for hour in (1, 2, 3, 4)])
    log.when_asked = lambda: records.queue_usage_records([usage_record(5)])
    assert not await records.flush()
    log.away = False
    assert await records.flush()
    assert [one.from_ms for one in log.records] == [2, 3, 4, 5]


@pytest.mark.parametrize("waiting", ["", "x" * (3 * 1024 * 1024)])
async def test_a_loan_that_no_record_can_hold_waits_and_holds_up_no_other(waiting: str) -> None:
    log = Log()
    records, acknowledged = records_and_acknowledged(log)
    records.queue_loan_record(lent_record("node-1", waiting))
    records.queue_loan_record(lent_record("node-2"))
    assert await records.flush()
    assert [one.node for one in acknowledged][-1] == "node-2"
    assert (records.waiting_record("node-1") is None) == (waiting == "")
    records.queue_loan_record(lent_record("node-1"))
    assert await records.flush()
    assert acknowledged[-1] == lent_record("node-1")
