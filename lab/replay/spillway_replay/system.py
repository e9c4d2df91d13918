"""Defines the interface of a planner that the suite plays, ours or another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .workloads import Key, Workload

REFUSED, UNKNOWN = "refused", "no answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. error: REFUSED without enough room, or the request's fault; empty if accepted."""

    placed: int
    unplaced: int
    error: str = ""


class System(Protocol):
    async def apply(self, workload: Workload, idempotency_key: str) -> Answer: ...

    async def scale(self, workload: Workload, replicas: int, idempotency_key: str) -> Answer: ...

    def unplaced_by_workload(self) -> dict[Key, int]:
        """Returns the waiting replicas, by workload."""

    def desired_by_cluster(self) -> Mapping[str, Mapping[Key, int]]:
        """Returns the replicas that each cluster should have by the last decisions, by cluster and workload."""

    def declared_by_workload(self) -> dict[Key, int]:
        """Returns the requested replicas of each workload as the planner knows them: placed and waiting ones."""
