"""Serves Watch: sends a watcher the workloads that changed since a position of the log, then all further changes."""

import asyncio
import base64
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import msgspec

from planner.api.shared_replies import SharedReplies
from planner.core.knowledge.state import PlannerState
from planner.log.intake import WATCHED, changed_keys
from spillway.api import RequestError, WatchReply, WatchRequest, invalid_argument_error
from spillway.bus import Bus, NoLog, Offsets, OtherFleet, Record, has_reached_ends
from spillway.reasons import TOO_MANY_WATCHES
from spillway.rpc.holder_places import HolderPlaces
from spillway.rpc.security import current_caller_name

Keys = set[tuple[str, str]]

PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
"""The largest partition and offset that Kafka can have."""
TOKEN_CHARACTERS_MAX: Final = 16 * 1024
POSITION_BYTES_MAX: Final = 64 * 1024
"""The most bytes of a position after decompression. That is room for some 1,500 partitions."""
_POSITIONS: Final = msgspec.json.Decoder(list[tuple[str, int, int]])
REPLIES_OF_AN_ITERATION: Final = 10
"""The most replies that all watches together make and send in one iteration of the loop, so that others have their turn
between them: these take 1 ms if they are known, 4 ms if not (30 clusters)."""
POSITION_EXPECTED: Final = "a position of this log that Watch returned, or none"


class Watches:
    """The open watches. Each gets the changed workloads of every batch; a watch that lags too far behind is ended."""

    def __init__(self, bus: Bus, watches_max: int, waiting_max: int, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._watches_max = watches_max
        self._waiting_max = waiting_max
        self._queues: set[asyncio.Queue[tuple[Keys, str]]] = set()
        self._beginnings = HolderPlaces(1)
        """Of each caller one watch begins at one time: it looks at all workloads, or reads the log."""
        self._replies = SharedReplies(clock)
        self._turns = asyncio.Semaphore(REPLIES_OF_AN_ITERATION)

    def publish_changes(self, records: tuple[Record, ...], positions: Offsets) -> None:
        keys = changed_keys(records)
        self._replies.forget_replies(keys)
        if not keys or not self._queues:
            return
        token = position_token(positions)
        for queue in list(self._queues):
            if queue.full():
                self._queues.discard(queue)
            else:
                queue.put_nowait((keys, token))

    async def watch(
        self, request: WatchRequest, current: "CurrentState", positions: Offsets
    ) -> AsyncIterator[WatchReply]:
        """Yields replies for all changes after request.position; without a position, first for all workloads.

        Of replies that go together only the last one has their position, the others that of before: whoever goes on
        from there is told the rest.
        Raises RequestError (ABORTED) when the watcher is too slow. It can begin again at its last position.
        """
        if len(self._queues) >= self._watches_max:
            text = f"{self._watches_max} watches are open, which is the most"
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_WATCHES)
        queue: asyncio.Queue[tuple[Keys, str]] = asyncio.Queue(self._waiting_max)
        self._queues.add(queue)
        try:
            token = position_token(positions)
            async with self._beginnings.semaphore_of(current_caller_name()):
                await asyncio.sleep(0)  # Other tasks run between two beginnings of one caller.
                since = read_position(request.position) if request.position else None
                keys: Iterable[tuple[str, str]] = current.state.workloads.keys()
                if since is not None:
                    keys = await self._workloads_changed_since(since)
                wanted = _wanted_keys(request, keys)
            told = request.position
            for key in wanted:
                reply = await self._reply_in_turn(current, key, token if key == wanted[-1] else told)
                if since is not None or not reply.gone:
                    yield reply
            told = token
            while queue in self._queues or not queue.empty():
                changed, token = await queue.get()
                await self._take_turn()
                wanted = _wanted_keys(request, changed)
                for key in wanted:
                    yield await self._reply_in_turn(current, key, token if key == wanted[-1] else told)
                told = token
            raise RequestError("ABORTED", "this watch is too slow: begin another watch at its last position")
        finally:
            self._queues.discard(queue)

    async def _reply_in_turn(self, current: "CurrentState", key: tuple[str, str], token: str) -> WatchReply:
        await self._take_turn()
        return self._replies.reply_about(current.state, key, token)

    async def _take_turn(self) -> None:
        """Waits until this watch may go on, first come, first served: REPLIES_OF_AN_ITERATION times an iteration."""
        await self._turns.acquire()
        asyncio.get_running_loop().call_soon(self._turns.release)

    async def _workloads_changed_since(self, since: Offsets) -> Keys:
        """Returns the workloads that changed between a position and now."""
        keys: Keys = set()
        try:
            async with self._bus.follow_topics(WATCHED, since) as feed:
                ends = await feed.end_offsets()
                if any(offset > ends.get(place, -1) for place, offset in since.items()):
                    raise invalid_argument_error("position", "beyond the end of this log", POSITION_EXPECTED)
                async for batch in feed:
                    keys |= changed_keys(batch.records)
                    if has_reached_ends(batch.positions, ends):
                        break
        except (NoLog, OtherFleet) as error:
            raise invalid_argument_error("position", str(error), POSITION_EXPECTED) from error
        return keys


class CurrentState:
    """A reference to the present state. A new life of the planner replaces the state while watches are open."""

    def __init__(self, state: PlannerState) -> None:
        self.state = state


def _wanted_keys(request: WatchRequest, keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the workloads that a watch shows, sorted. Others' workloads are left out first: they may be many."""
    return sorted(
        (namespace, name)
        for namespace, name in keys
        if request.namespace in ("", namespace) and request.name in ("", name)
    )


def position_token(positions: Offsets) -> str:
    """Returns the positions in the watched topics as an opaque text."""
    names = {topic.name for topic in WATCHED}
    kept = [[topic, partition, offset] for (topic, partition), offset in sorted(positions.items()) if topic in names]
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(kept, separators=(",", ":")).encode())).decode()


def read_position(token: str) -> Offsets:
    """Returns the positions in a text of position_token. Raises RequestError (INVALID_ARGUMENT) for any other text."""
    names = {topic.name for topic in WATCHED}
    try:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise ValueError("too long")
        raw = zlib.decompressobj().decompress(base64.urlsafe_b64decode(token.encode()), POSITION_BYTES_MAX)
        positions = {(topic, partition): offset for topic, partition, offset in _POSITIONS.decode(raw)}
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise invalid_argument_error("position", token, "a position that Watch returned") from error
    for (topic, partition), offset in positions.items():
        if topic in names and 0 <= partition <= PARTITION_MAX and 0 <= offset <= OFFSET_MAX:
            continue
        raise invalid_argument_error("position", token, "a position that Watch returned")
    return positions
