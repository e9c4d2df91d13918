"""What the suite asks of a planner, ours or another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .workloads import Key, Workload

REFUSED, UNKNOWN = "refused", "no answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """error: REFUSED for want of room, else what is wrong with the request; empty when it was taken."""

    placed: int
    unplaced: int
    error: str = ""


class System(Protocol):
    async def apply(self, workload: Workload, idempotency_key: str) -> Answer: ...

    async def scale(self, workload: Workload, replicas: int, idempotency_key: str) -> Answer: ...

    def unplaced_by_workload(self) -> dict[Key, int]:
        """Replicas that wait."""

    def desired_by_cluster(self) -> Mapping[str, Mapping[Key, int]]:
        """By cluster, the replicas that it has or is to have, as last decided."""

    def declared_by_workload(self) -> dict[Key, int]:
        """What each workload was asked for, as the planner knows it: placed and waiting."""
