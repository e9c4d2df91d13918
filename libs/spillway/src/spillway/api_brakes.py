"""The part of api.py for brakes and confirmations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """Sets a brake. scope: fleet, cluster/<name> or workload/<namespace>/<name>."""

    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnfreezeRequest:
    scope: str


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """Confirms a cause that waits. scope: <cause>/<cluster>, as ListBrakes names it."""

    scope: str


@dataclass(frozen=True, slots=True)
class ListBrakesRequest:
    pass


@dataclass(frozen=True, slots=True)
class Brake:
    """A brake. frozen: True if it is on. replicas: how many it holds back now. at_ms: when it was set, Unix time."""

    scope: str
    frozen: bool
    reason: str
    by: str
    at_ms: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A cause that waits for a confirmation, or has one.

    replicas: how many of fleet_replicas the cause would still move. by: the person who confirmed; empty: nobody yet.
    """

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
    """Brakes, confirmations and the budget of moves.

    moves_per_minute: the budget of moves that nobody asked for by name. over_budget: replicas that wait for the budget.
    moved_last_minute: replicas that the budget let move, as far as the active planner knows.
    """

    brakes: tuple[Brake, ...]
    confirmations: tuple[Confirmation, ...]
    moves_per_minute: float
    over_budget: int
    stale: bool
    moved_last_minute: int = 0
