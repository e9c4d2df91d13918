"""A membership in a consumer group that serves only to get turns: nothing is ever fetched there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition

from spillway.bus import Assignment, BusUnavailable
from spillway.kafka import internals
from spillway.kafka.access import NotAllowed

log = structlog.get_logger()


class GroupSeat(ConsumerRebalanceListener):  # type: ignore[misc]
    """The membership of one consumer in the group. Its rebalances count only while it is its member's current seat."""

    def __init__(self, member: "GroupMember") -> None:
        self._member = member
        self.assignor = internals.own_assignor()
        self.consumer: Any = None

    def on_partitions_revoked(self, _: set[TopicPartition]) -> None:
        if self._member.seat is self:
            self._member.release_partitions_soon()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        internals.set_assignor_generation(self.assignor, self.consumer)
        self.consumer.pause(*assigned)
        if self._member.seat is self:
            self._member.set_partitions(frozenset(place.partition for place in assigned))

    async def wait_for_trouble(self, every_seconds: float) -> Exception:
        """Waits for an error from which aiokafka cannot recover, and returns it. Looks every `every_seconds`.

        aiokafka raises such an error only at the next fetch. Until then it sends no heartbeat and does not join again.
        """
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self.consumer.getmany(timeout_ms=0)
            except Exception as error:
                return error

    def leave_group(self, says_good_bye: bool) -> Awaitable[None]:
        """Stops the consumer. Without a good-bye its partitions are free only after the session. Await the result."""
        if says_good_bye:
            internals.leave_as_dynamic_member(self.consumer)
        stopped: Awaitable[None] = self.consumer.stop()
        return stopped


class GroupMember:
    """The partitions that a group assigns to one instance. Iterating gives an assignment after each rebalance.

    A rebalance revokes all partitions and usually gives them back, so they are kept for let_go_seconds. A wait for the
    next assignment may be cancelled. There may be only one waiter.
    join: a function that starts a consumer with the seat as its listener, and with the seat's assignor. It raises
    BusUnavailable.
    """

    def __init__(
        self, group: str, partition_count: int, let_go_seconds: float, join: Callable[[GroupSeat], Awaitable[Any]]
    ) -> None:
        self.partitions: frozenset[int] = frozenset()
        self.seat: GroupSeat | None = None
        self._group = group
        self._partition_count = partition_count
        self._let_go_seconds = let_go_seconds
        self._join = join
        self._letting_go: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    async def join_group(self) -> None:
        """Joins the group. Rebalances of an earlier seat are ignored from then on."""
        seat = self.seat = GroupSeat(self)
        await self._join(seat)

    async def stay_in_group(
        self, look_seconds: float, retry_seconds: float, close_later: Callable[[Awaitable[None]], object]
    ) -> None:
        """Joins the group again each time aiokafka has given up. Runs until it is cancelled."""
        while True:
            assert self.seat is not None
            trouble = await self.seat.wait_for_trouble(look_seconds)
            log.warning(
                "this instance left the consumer group: it joins again", group=self._group, reason=repr(trouble)
            )
            self.release_partitions_soon()
            close_later(self.seat.consumer.stop())
            joined = False
            while not joined:
                await asyncio.sleep(retry_seconds)
                try:
                    await self.join_group()
                    joined = True
                except BusUnavailable:
                    pass
                except NotAllowed as error:
                    log.warning(
                        "this instance is still outside the consumer group", group=self._group, reason=str(error)
                    )

    def release_partitions_soon(self) -> None:
        if self.partitions and self._letting_go is None:
            loop = asyncio.get_running_loop()
            self._letting_go = loop.call_later(self._let_go_seconds, self.set_partitions, frozenset())

    def set_partitions(self, partitions: frozenset[int]) -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        self.partitions = partitions
        self._news.set()

    def __aiter__(self) -> AsyncIterator[Assignment]:
        return self

    async def __anext__(self) -> Assignment:
        await self._news.wait()
        self._news.clear()
        return Assignment(self.partitions, self._partition_count)

    async def wait_until_holding(self, holds: bool) -> None:
        while bool(self.partitions) != holds:
            await anext(self)
