"""Gathers the clusters' answers to AdoptionAsked, a question about the objects that run there."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spillway.addresses import FOUND_WORKLOADS
from spillway.bus import Bus
from spillway.events import FOUND, AdoptionAsked, WorkloadFound
from spillway.model import Generation

ObjectKey = tuple[str, str, str]
"""(cluster, namespace, name) of an object that was found in a cluster."""


@dataclass(slots=True)
class AdoptionInquiry:
    """One question to clusters, and their answers so far. Answers may come twice and in any order.

    A question about a former fleet gets one answer for each object, and a last answer without a name.
    found: answers about objects. ends: the last answers, by cluster. complete: is set once all clusters have answered.
    """

    asked: AdoptionAsked
    found: dict[ObjectKey, WorkloadFound] = field(default_factory=dict)
    ends: dict[str, WorkloadFound] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def note_answer(self, found: WorkloadFound) -> None:
        if found.cluster not in self.asked.clusters:
            return
        if found.name:
            self.found[found.cluster, found.namespace, found.name] = found
        else:
            self.ends[found.cluster] = found
        if not self.unanswered_clusters():
            self.complete.set()

    def unanswered_clusters(self) -> list[str]:
        """Returns the clusters that have not answered in full."""
        return [cluster for cluster in self.asked.clusters if not self._has_answered(cluster)]

    def answers_by_cluster(self) -> dict[str, WorkloadFound]:
        """Returns the answers by cluster, for a question about one name."""
        return {cluster: found for (cluster, _, _), found in self.found.items()}

    def _has_answered(self, cluster: str) -> bool:
        if not self.asked.fleet_before:
            return (cluster, self.asked.namespace, self.asked.name) in self.found
        # The last answer may come before others, so it also says how many objects were found.
        end = self.ends.get(cluster)
        if end is None:
            return False
        return end.state != FOUND or end.objects <= sum(1 for place in self.found if place[0] == cluster)


class AdoptionQuestions:
    """Follows the clusters' new answers, and passes them to the open inquiries. Earlier answers are not read."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._open: dict[Generation, AdoptionInquiry] = {}
        self.following = asyncio.Event()

    async def run(self) -> None:
        """Follows the answers until cancelled."""
        async with self._bus.follow_topics((FOUND_WORKLOADS,), {}) as feed:
            self.following.set()
            try:
                async for batch in feed:
                    for record in batch.records:
                        found = record.event
                        if isinstance(found, WorkloadFound) and found.asked in self._open:
                            self._open[found.asked].note_answer(found)
            finally:
                self.following.clear()

    @contextmanager
    def open_call_inquiries(self) -> Iterator["CallInquiries"]:
        asking = CallInquiries(self._open)
        try:
            yield asking
        finally:
            asking.close()


class CallInquiries:
    """The questions of one call. They are forgotten when the call ends."""

    def __init__(self, known: dict[Generation, AdoptionInquiry]) -> None:
        self._known = known
        self._mine: list[Generation] = []

    def open_inquiry(self, asked: AdoptionAsked) -> AdoptionInquiry:
        """Opens an inquiry. Call it before the question is in the log, so that no answer is missed."""
        inquiry = self._known[asked.generation] = AdoptionInquiry(asked)
        self._mine.append(asked.generation)
        return inquiry

    def close(self) -> None:
        for generation in self._mine:
            self._known.pop(generation, None)
