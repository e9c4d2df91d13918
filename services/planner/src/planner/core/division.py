"""Seats by votes, exactly: Webster's method over integers, ties by name."""

import heapq
from collections.abc import Mapping


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
