"""The part of model.py that answers to commands use, so that a command does not import the rest of it."""

from dataclasses import dataclass
from typing import NamedTuple


class Generation(NamedTuple):
    """Orders everything that one owner writes, across restarts. epoch: the offset of the owner's claim."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"


NO_GENERATION = Generation(-1, 0)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """The numbers of one cluster in a division: how many replicas it could take, how many it had, which limit bound it.

    certain: the replicas that run for any choice of nodes by the cluster's scheduler. possible: the most that can run.
    reserved: replicas that are reserved there and not bound yet. before, after: its replicas before and after the
    division. limited_by: the reason why `possible` is not higher, a text for people.
    age_ms: the age of the capacity that was used; −1: the cluster has never reported any.
    """

    cluster: str
    tier: str
    certain: int
    possible: int
    reserved: int
    before: int
    after: int
    limited_by: str
    age_ms: int
