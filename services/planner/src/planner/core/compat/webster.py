"""Reproduces Karmada's seat division: Webster's method with doubles, and ties by a hash of the workload's uid.

Source of the rules: Karmada v1.19, read in November 2026 (docs/strategies.md).
"""

import heapq
from collections.abc import Mapping
from enum import Enum

FNV_PRIME = 16777619
FNV_OFFSET = 2166136261
UINT32 = 0xFFFFFFFF


class Ties(Enum):
    """The ways to order parties with equal quotients. The value of each member says its order."""

    ASCENDING = "fewer seats, then name ascending"
    DESCENDING = "fewer seats, then name descending"
    NAME_ASCENDING = "name ascending, whatever the seats are"
    NAME_DESCENDING = "name descending, whatever the seats are"


def tie_order_of_uid(uid: str) -> Ties:
    """Returns the order of ties by the parity of FNV-1a-32 of the uid: half of the workloads go from Z to A."""
    return Ties.DESCENDING if uid and fnv_1a(uid) % 2 else Ties.ASCENDING


def fnv_1a(text: str) -> int:
    """Returns the 32-bit FNV-1a hash of the UTF-8 bytes."""
    value = FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * FNV_PRIME & UINT32
    return value


def fnv_1(text: str) -> int:
    """Returns the 32-bit FNV-1 hash of the UTF-8 bytes."""
    value = FNV_OFFSET
    for byte in text.encode():
        value = (value * FNV_PRIME & UINT32) ^ byte
    return value


def divide_seats(new: int, votes: Mapping[str, int], initial: Mapping[str, int], ties: Ties) -> dict[str, int]:
    """Returns all seats by party, also the ones held before, in the order of names.

    Each new seat goes to the largest votes / (2 x seats + 1) as doubles. Parties only in initial have no votes. With no
    votes at all the seats still go out, by fewest seats.
    """
    parties = sorted(votes.keys() | initial.keys())
    held = {party: initial.get(party, 0) for party in parties}
    if not parties:
        return {}
    held |= _sure_seats(new, votes, held)
    left = new - sum(held.values()) + sum(initial.values())
    backwards = ties in (Ties.DESCENDING, Ties.NAME_DESCENDING)
    rank = {party: -place if backwards else place for place, party in enumerate(parties)}
    weigh_seats = 1 if ties in (Ties.ASCENDING, Ties.DESCENDING) else 0

    def claim_to_next_seat(party: str) -> tuple[float, int, int, str]:
        quotient = float(votes.get(party, 0)) / float(2 * held[party] + 1)
        return (-quotient, held[party] * weigh_seats, rank[party], party)

    queue = [claim_to_next_seat(party) for party in parties]
    heapq.heapify(queue)
    for _ in range(left):
        party = queue[0][3]
        held[party] += 1
        heapq.heapreplace(queue, claim_to_next_seat(party))
    return held


def _sure_seats(new: int, votes: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Returns, by party, the seats that it gets in any order of ties: their quotients are above a safe bound.

    This only saves time: the loop then has about as many seats left as there are parties.
    """
    total = sum(votes.values())
    if total <= 0 or new <= len(votes):
        return {}
    bound = total / (2 * (new - len(votes)))
    sure = {}
    for party, count in votes.items():
        reached = max(0, int((count / bound + 1) / 2))
        while count / float(2 * reached + 1) > bound:
            reached += 1
        while reached and count / float(2 * reached - 1) <= bound:
            reached -= 1
        sure[party] = max(reached, held[party])
    return sure if sum(sure.values()) - sum(held[party] for party in sure) <= new else {}
