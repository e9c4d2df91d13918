"""Seats by votes, exactly: Webster's method over integers, ties by name."""

import heapq
from collections.abc import Callable, Mapping
from fractions import Fraction
from operator import truediv


def apportion(seats: int, votes: Mapping[str, int]) -> dict[str, int]:
    """Webster's method (Sainte-Laguë): each next seat to the largest votes / (2·seats + 1), exactly, ties by name.

    House-monotone, and with seats ≤ the sum of votes nobody gets more than its votes. Parties without a seat are left
    out. Starts from a divisor that gives out almost all seats at once, which is a prefix of the same sequence.
    Source: M. L. Balinski, H. P. Young, "Fair Representation", 1982, on divisor methods.
    """
    parties = sorted([name for name, count in votes.items() if count > 0])
    if seats <= 0 or not parties:
        return {}
    if seats < len(parties):  # Nobody else's turn comes: each of these has a first claim that is as large.
        largest = sorted(parties, key=votes.__getitem__, reverse=True)[:seats]
        parties = sorted(largest)
        if votes[largest[0]] < 3 * votes[largest[-1]]:  # Nor does anybody's second.
            return dict.fromkeys(parties, 1)
    total = sum([votes[name] for name in parties])
    start = max(0, seats - len(parties))
    # ⌊votes·start/total + ½⌋ with integers; the sum is at most start + parties/2 ≤ seats.
    given = {name: (2 * votes[name] * start + total) // (2 * total) for name in parties}
    # Two quotients that differ do so by more than a float's last digit, while votes times divisor are below 2⁵².
    is_small = max(votes.values()) * (2 * seats + 1) < 2**52
    quotient: Callable[[int, int], float | Fraction] = truediv if is_small else Fraction
    queue = [(-quotient(votes[name], 2 * given[name] + 1), name) for name in parties]
    heapq.heapify(queue)
    for _ in range(seats - sum(given.values())):
        name = queue[0][1]
        given[name] += 1
        heapq.heapreplace(queue, (-quotient(votes[name], 2 * given[name] + 1), name))
    return {name: count for name, count in given.items() if count}
