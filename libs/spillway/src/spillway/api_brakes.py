"""The part of api.py about brakes: what is frozen, and what waits for a confirmation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """scope: fleet, cluster/<name> or workload/<namespace>/<name>."""

    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnfreezeRequest:
    scope: str


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """scope: <cause>/<cluster>, as ListBrakes names it."""

    scope: str


@dataclass(frozen=True, slots=True)
class ListBrakesRequest:
    pass


@dataclass(frozen=True, slots=True)
class Brake:
    """frozen: whether the brake is on. replicas: what it holds back now. at_ms: wall time at which it was set."""

    scope: str
    frozen: bool
    reason: str
    by: str
    at_ms: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """replicas: of the fleet's fleet_replicas, those that the cause would still move. by: who gave it."""

    scope: str
    cause: str
    cluster: str
    replicas: int
    fleet_replicas: int
    given: bool
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ListBrakesReply:
    """moves_per_minute: the budget of moves that nobody asked for by name; over_budget: replicas that wait for it.

    moved_last_minute: those that it let go, as far as the planner that is active now knows.
    """

    brakes: tuple[Brake, ...]
    confirmations: tuple[Confirmation, ...]
    moves_per_minute: float
    over_budget: int
    stale: bool
    moved_last_minute: int = 0
