"""Splits replicas among the clusters of one tier. Pure strategies over (cluster, amount), ties by name."""

import heapq
from collections.abc import Mapping

from spillway.model import SPLIT_PACK, SPLIT_SPREAD


def divide(
    split: str, replicas: int, room_by_cluster: Mapping[str, int], held_by_cluster: Mapping[str, int]
) -> dict[str, int]:
    """More replicas by cluster, never above its room.

    split: SPLIT_SPREAD shares in proportion to room; SPLIT_PACK fills clusters that already hold replicas first, then
    the largest room. replicas above the sum of rooms are not given out. held_by_cluster: what each holds now.
    """
    rooms = {name: room for name, room in room_by_cluster.items() if room > 0}
    replicas = min(replicas, sum(rooms.values()))
    if split == SPLIT_SPREAD:
        return apportion(replicas, rooms)
    if split != SPLIT_PACK:
        raise ValueError(f"split {split!r}: expected {SPLIT_SPREAD} or {SPLIT_PACK}")
    given: dict[str, int] = {}
    for name in sorted(rooms, key=lambda name: (held_by_cluster.get(name, 0) == 0, -rooms[name], name)):
        given[name] = min(rooms[name], replicas - sum(given.values()))
    return {name: count for name, count in given.items() if count}


def shrink(split: str, surplus: int, held_by_cluster: Mapping[str, int]) -> dict[str, int]:
    """Replicas to take away by cluster: the reverse of divide. Never more than a cluster holds."""
    held = {name: count for name, count in held_by_cluster.items() if count > 0}
    surplus = min(surplus, sum(held.values()))
    if split == SPLIT_PACK:
        taken: dict[str, int] = {}
        for name in sorted(held, key=lambda name: (held[name], name)):
            taken[name] = min(held[name], surplus - sum(taken.values()))
        return {name: count for name, count in taken.items() if count}
    kept = apportion(sum(held.values()) - surplus, held)
    return {name: count - kept.get(name, 0) for name, count in held.items() if count > kept.get(name, 0)}


def apportion(seats: int, votes: Mapping[str, int]) -> dict[str, int]:
    """Webster's method (Sainte-Laguë): each next seat to the largest votes / (2·seats + 1), exactly, ties by name.

    House-monotone, and with seats ≤ the sum of votes nobody gets more than its votes. Parties without a seat are left
    out. Starts from a divisor that gives out almost all seats at once, which is a prefix of the same sequence.
    Source: M. L. Balinski, H. P. Young, "Fair Representation", 1982, on divisor methods.
    """
    parties = sorted(name for name, count in votes.items() if count > 0)
    total = sum(votes[name] for name in parties)
    if seats <= 0 or not parties:
        return {}
    start = max(0, seats - len(parties))
    # ⌊votes·start/total + ½⌋ with integers; the sum is at most start + parties/2 ≤ seats.
    given = {name: (2 * votes[name] * start + total) // (2 * total) for name in parties}
    order = {name: rank for rank, name in enumerate(parties)}
    queue = [_Claim(votes[name], given[name], order[name]) for name in parties]
    heapq.heapify(queue)
    for _ in range(seats - sum(given.values())):
        claim = queue[0]
        given[parties[claim.rank]] += 1
        heapq.heapreplace(queue, _Claim(claim.votes, claim.seats + 1, claim.rank))
    return {name: count for name, count in given.items() if count}


class _Claim:
    """A party's claim to the next seat, ordered by quotient without division, largest first, then by rank."""

    __slots__ = ("rank", "seats", "votes")

    def __init__(self, votes: int, seats: int, rank: int) -> None:
        self.votes, self.seats, self.rank = votes, seats, rank

    def __lt__(self, other: "_Claim") -> bool:
        mine, theirs = self.votes * (2 * other.seats + 1), other.votes * (2 * self.seats + 1)
        return mine > theirs or (mine == theirs and self.rank < other.rank)
