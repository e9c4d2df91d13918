"""Computes the replicas that are reserved for a placement and not yet counted in its cluster.

Reservations are never stored: they follow from placements and capacity records.
"""

from collections.abc import Sequence
from typing import NamedTuple

from spillway.events import STATE_ENDED, WorkloadObserved
from spillway.model import NO_GENERATION, Part, Shape, WorkloadFacts


class Reservation(NamedTuple):
    """The reservation of one workload in one cluster.

    free: unbound replicas that were promised a place on existing nodes.
    new: unbound replicas that were promised a place on new nodes.
    counted: the workload's counted pods there.
    entries: (shape, count) to reserve on existing nodes, for `free` and for pods that a rolling template replaces.
    new_entries: (shape, count) to reserve on new nodes, for `new`.
    """

    free: int
    new: int
    counted: int
    entries: tuple[tuple[Shape, int], ...]
    new_entries: tuple[tuple[Shape, int], ...]


NOTHING_RESERVED = Reservation(0, 0, 0, (), ())


def is_carried_out(part: Part, facts: WorkloadFacts | None, surge: int) -> bool:
    """Returns whether the capacity record shows the object at the part's version, and its controller follows it."""
    return (
        facts is not None
        and facts.version == part.version
        and facts.observed_current
        and facts.status_replicas <= part.replicas + surge
    )


def compute_reservation(
    part: Part,
    facts: WorkloadFacts | None,
    shape: Shape,
    rolling_from: Sequence[Shape],
    surge: int,
    completions: int | None = None,
) -> Reservation:
    """Computes the reservation of one workload in one cluster: max(0, hold − counted) replicas.

    hold: the most replicas that the part may have there. It and `counted` come from one capacity record.
    While pods of two templates may exist, an unbound replica may become a pod of either. So it is reserved once in each
    shape. The surge is reserved in the new shape alone. For each counted pod that may be of the old template, the
    amounts are reserved by which the new template requests more.
    completions: for a Job, the total number of pods that must succeed.
    """
    if facts is None:
        return _reservation_of_one_shape(part, max(0, part.ceiling), 0, shape)
    rolling = is_rolling(part, facts, rolling_from)
    extra = surge if rolling else 0
    if is_carried_out(part, facts, surge):
        hold = _replicas_to_run(part.replicas, facts, completions)
    else:
        hold = max(part.ceiling, facts.spec_replicas)
    counted = sum(count for _, count in facts.counted)
    missing = max(0, hold + extra - counted)
    if not rolling:
        return _reservation_of_one_shape(part, missing, counted, shape)
    new = min(missing, part.replicas_new)
    free = missing - new
    earlier = [old for old in dict.fromkeys(rolling_from) if old != shape]
    of_earlier = min(free, max(0, hold - counted))
    entries = [(shape, free)] if free else []
    entries.extend((old, of_earlier) for old in earlier if of_earlier)
    if old_pods := counted_earlier_pods(part, facts):
        grown = [(beyond, old_pods) for old in rolling_from if (beyond := request_growth(old, shape)) is not None]
        entries.extend(grown)
    return Reservation(
        free, new, counted, tuple(entries), tuple((one, new) for one in (shape, *earlier)) if new else ()
    )


def counted_earlier_pods(part: Part, facts: WorkloadFacts) -> int:
    """Returns an upper bound: how many counted pods may still run an earlier template during a rollout.

    Pods are counted by their template, and the record does not say which template is the new one. The controller of the
    object reports how many pods it has and how many of them are new, bound or not. A template can be the new one only
    if the cluster counts at most as many pods of it as the controller reports new, and at most as many pods of other
    templates as it reports old. If no template qualifies, the two numbers come from different moments. Then, and until
    the controller has seen this part's object, all counted pods are returned.
    """
    by_template = [count for _, count in facts.counted]
    counted, earlier = sum(by_template), facts.status_replicas - facts.updated_replicas
    if facts.version != part.version or not facts.observed_current:
        return counted
    new = [count for count in (0, *by_template) if count <= facts.updated_replicas and counted - count <= earlier]
    return counted - min(new, default=0)


def _reservation_of_one_shape(part: Part, missing: int, counted: int, shape: Shape) -> Reservation:
    new = min(missing, part.replicas_new)
    free = missing - new
    return Reservation(free, new, counted, ((shape, free),) if free else (), ((shape, new),) if new else ())


def _replicas_to_run(replicas: int, facts: WorkloadFacts, completions: int | None) -> int:
    """Returns how many replicas of a carried-out part still have to run. For a Job, that is at most the number of
    completions that are missing; 0 once it has ended."""
    if facts.ended:
        return 0
    return replicas if completions is None else min(replicas, max(0, completions - facts.succeeded))


def is_job_over(part: Part, said: WorkloadObserved | None) -> bool:
    """Returns whether the part's Job has ended and its object is gone, so that nothing is reserved for it any more."""
    return said is not None and (said.state, said.version) == (STATE_ENDED, part.version)


def is_rolling(part: Part, facts: WorkloadFacts | None, rolling_from: Sequence[Shape]) -> bool:
    """Returns whether pods of an earlier template may exist in this cluster."""
    if not rolling_from or facts is None:
        return False
    settled = (
        facts.version == part.version and facts.observed_current and facts.updated_replicas >= facts.status_replicas
    )
    return not settled or len(facts.counted) > 1


def is_object_settled(facts: WorkloadFacts, surge: int) -> bool:
    """Returns whether the controller follows the object as it is, and no pods beyond replicas and surge are left."""
    return facts.observed_current and facts.status_replicas <= facts.spec_replicas + surge


def next_ceiling(part: Part | None, facts: WorkloadFacts | None, replicas: int) -> int:
    """Returns the largest number of replicas that was decided since the version that was last seen on the object."""
    if part is None:
        return replicas
    seen = facts.version if facts is not None else NO_GENERATION
    return max(replicas, part.replicas if seen == part.version else part.ceiling)


def request_growth(old: Shape, new: Shape) -> Shape | None:
    """Returns a shape with the amounts by which a new template's pod requests more than an old one's; None: no more."""
    before = dict(old.requests)
    beyond = {name: amount - before.get(name, 0) for name, amount in new.requests if amount > before.get(name, 0)}
    return Shape(new.namespace, tuple(sorted(beyond.items())), traits=new.traits) if beyond else None
