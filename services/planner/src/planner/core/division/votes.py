"""Divides a number of seats in proportion to votes: Webster's method, exactly, over integers. Ties go by name."""

import heapq
from collections.abc import Callable, Mapping
from fractions import Fraction
from operator import truediv


def apportion_seats(seats: int, votes: Mapping[str, int]) -> dict[str, int]:
    """Apportions seats by Webster's method (Sainte-Laguë): each next seat goes to the largest votes / (2·seats + 1).

    Exact; ties go by name. It is house-monotone, and with seats ≤ the sum of votes no party gets more seats than votes.
    Parties without a seat are left out. It starts from a divisor that gives out almost all seats at once: a prefix of
    the same sequence. Source: M. L. Balinski, H. P. Young, "Fair Representation", 1982, on divisor methods.
    """
    parties = sorted([name for name, count in votes.items() if count > 0])
    if seats <= 0 or not parties:
        return {}
    if seats < len(parties):  # No other party gets a seat: the first claims of these are at least as large.
        largest = sorted(parties, key=votes.__getitem__, reverse=True)[:seats]
        parties = sorted(largest)
        if votes[largest[0]] < 3 * votes[largest[-1]]:  # No party gets a second seat either.
            return dict.fromkeys(parties, 1)
    total = sum([votes[name] for name in parties])
    start = max(0, seats - len(parties))
    # ⌊votes·start/total + ½⌋ with integers; the sum is at most start + parties/2 ≤ seats.
    given = {name: (2 * votes[name] * start + total) // (2 * total) for name in parties}
    # Floats suffice while votes times divisor are below 2⁵²: different quotients differ by more than the last digit.
    is_small = max(votes.values()) * (2 * seats + 1) < 2**52
    quotient: Callable[[int, int], float | Fraction] = truediv if is_small else Fraction
    queue = [(-quotient(votes[name], 2 * given[name] + 1), name) for name in parties]
    heapq.heapify(queue)
    for _ in range(seats - sum(given.values())):
        name = queue[0][1]
        given[name] += 1
        heapq.heapreplace(queue, (-quotient(votes[name], 2 * given[name] + 1), name))
    return {name: count for name, count in given.items() if count}
