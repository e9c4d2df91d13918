"""Makes and packs the reply about a changed workload once, for all watches that see this workload."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import is_workload_gone
from planner.core.requests.answers import workload_reply
from spillway.api import WatchReply
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.rpc.calls import PLANNER, PackedReply, message_bytes

REPLIES_MAX: Final = 1000
"""The most replies that are kept: those of two PlanBatches."""
REPLIES_BYTES_MAX: Final = 2 * 2**20
"""The most bytes of all replies that are kept, packed. As values they take some ten times as much."""
REPLY_SECONDS: Final = 1.0
"""The longest time for which a reply is kept. Some of its values, such as the number of pods that wait, change without
a change of the workload. A watch that is behind or begins may show such values as they were this long ago."""


@dataclass(frozen=True, slots=True)
class PackedWatchReply(WatchReply, PackedReply):
    """A reply of a watch, with its bytes."""

    packed: bytes


@dataclass(frozen=True, slots=True)
class _KeptReply:
    """A reply without a position, and its bytes. made_at: by the clock, in seconds."""

    reply: WatchReply
    packed: bytes
    made_at: float


class SharedReplies:
    """Keeps the last replies. One is made again once its workload has changed, or after REPLY_SECONDS.

    A reply depends on the workload alone and on no caller: which workloads a watch may see is decided before.
    clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[WorkloadKey, _KeptReply] = OrderedDict()
        """The replies by workload, the one that was made longest ago first."""
        self.kept_bytes = 0
        self._state: PlannerState | None = None
        """The state of which all kept replies were made. A new one begins without replies."""

    @property
    def kept_count(self) -> int:
        return len(self._kept)

    def forget_replies(self, keys: Iterable[WorkloadKey]) -> None:
        """Forgets the replies about workloads that have changed."""
        for key in keys:
            if (kept := self._kept.pop(key, None)) is not None:
                self.kept_bytes -= len(kept.packed)

    def reply_about(self, state: PlannerState, key: WorkloadKey, position: str) -> PackedWatchReply:
        """Returns the reply about a workload at a position, with its bytes."""
        if state is not self._state:
            self.forget_replies(list(self._kept))
            self._state = state
        kept = self._kept.get(key)
        if kept is None or self._clock() - kept.made_at > REPLY_SECONDS:
            kept = self._make_reply(state, key)
        # Messages that stand one after the other are read as one message. `position` is its first field.
        packed = _packed(replace(_NOTHING, position=position)) + kept.packed
        reply = kept.reply
        return PackedWatchReply(position, reply.namespace, reply.name, reply.gone, reply.workload, packed)

    def _make_reply(self, state: PlannerState, key: WorkloadKey) -> _KeptReply:
        self.forget_replies((key,))
        workload = state.workloads.get(key)
        gone = workload is None or is_workload_gone(workload)
        reply = WatchReply("", *key, gone, None if workload is None or gone else workload_reply(state, workload))
        kept = self._kept[key] = _KeptReply(reply, _packed(reply), self._clock())
        self.kept_bytes += len(kept.packed)
        while len(self._kept) > REPLIES_MAX or self.kept_bytes > REPLIES_BYTES_MAX:
            self.forget_replies((next(iter(self._kept)),))
        return kept


_NOTHING: Final = WatchReply("", "", "", False, None)


def _packed(reply: WatchReply) -> bytes:
    return message_bytes(reply, PLANNER.calls["watch"].reply_message())
