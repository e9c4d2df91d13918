"""Four additions to a seed's script.

Users repeat their request keys, need lent nodes, freeze what waits, and delete a workload before its first write.
"""

from dataclasses import replace
from random import Random

from spillway_simulation.lending_script import OWN
from spillway_simulation.script import FLEET_MEMBERS, Ask, Fault, Lending, Order, Script

FLEET = "fleet"
NEEDY, MANY = "l0", 40
"""The workload that needs what is lent, and the most replicas that it has."""
NEED_SECONDS = 10.0
EARLY = "e0"
"""The workload that is deleted while the propagator that is to create it stands still."""


def with_repeats(script: Script) -> Script:
    """In half of the seeds users ask again with the keys that they had. Drawn from a stream of its own."""
    return replace(script, repeats=script.repeats or Random(f"{script.seed}/repeats").random() < 0.5)


def with_needs(script: Script) -> Script:
    """In half of the seeds that lend an owner takes what users ask for, and one user asks for more than is not lent.

    Drawn from a stream of its own.
    """
    random = Random(f"{script.seed}/needs")
    if script.lending is None or random.random() >= 1 / 2:
        return script
    owner = random.choice(script.lending.owners)
    members = tuple(replace(one, tier="own") if one.name == owner else one for one in script.members)
    cpu = random.choice((500, 1000, 1500))
    fits = sum(one.nodes * (one.cpu_millis // cpu) for one in members if one.tier == "own")
    few = Ask("apply", random.uniform(0, 3), random.randint(0, 2), cpu, "", configured=False)
    many = min(MANY, max(1, round(fits * random.uniform(0.6, 1.1))))
    asks = [
        few,
        replace(few, verb="scale", wait=random.uniform(12, 20), replicas=many),
        replace(few, verb="scale", wait=random.uniform(5, 15)),
        replace(few, verb=random.choice(("scale", "apply")), wait=random.uniform(8, 16), replicas=many),
    ][: random.choice((2, 4, 4))]
    end = max(script.faults_end, sum(one.wait for one in asks) + NEED_SECONDS)
    return replace(script, members=members, asks={**script.asks, NEEDY: tuple(asks)}, faults_end=end)


def with_freezes(script: Script) -> Script:
    """In half of the seeds a workload waits for a long time. In most of these seeds, somebody then freezes it.

    Drawn from a stream of its own.
    """
    random = Random(f"{script.seed}/freezes")
    if random.random() >= 1 / 2 or not script.asks or len(script.orders) > 4:
        return script
    orders, faults = _draw_freeze_of_waiting(random, script)
    if script.lending is not None and random.random() < 0.7:
        orders, faults = _draw_freeze_of_lending(random, script.lending), ()
    ends = [*(one.at + one.seconds for one in orders), *(one.at + one.seconds for one in faults)]
    return replace(
        script,
        orders=tuple(sorted((*script.orders, *orders), key=lambda one: one.at)),
        faults=tuple(sorted((*script.faults, *faults), key=lambda one: one.at)),
        faults_end=max([script.faults_end, *ends]),
    )


def with_frozen_writes(script: Script) -> Script:
    """In a quarter of the seeds a propagator freezes between its decision on a workload's first write and that write.

    Its user deletes the workload meanwhile, so another propagator has the turn and deletes the object. Drawn from a
    stream of its own.
    """
    random = Random(f"{script.seed}/frozen-writes")
    if random.random() >= 1 / 4 or len(script.members) >= FLEET_MEMBERS:
        return script
    at, seconds = random.uniform(3, max(4.0, script.faults_end / 2)), random.uniform(14, 24)
    first = Ask("apply", at, random.randint(1, 3), 250, "", configured=False)
    asks = (first, replace(first, verb="delete", wait=random.uniform(0.5, 4)))
    fault = Fault(max(0.0, at - 1), "freeze-before-write", EARLY, seconds, 0, len(script.faults))
    return replace(
        script,
        asks={**script.asks, EARLY: asks},
        faults=tuple(sorted((*script.faults, fault), key=lambda one: one.at)),
        faults_end=max(script.faults_end, at + seconds),
    )


def _draw_freeze_of_lending(random: Random, lending: Lending) -> tuple[Order, ...]:
    """Before owners want their nodes back, or while those that are idle would be lent."""
    wanted = [one for one in lending.wanted if one.pods == OWN and one.replicas]
    owner = random.choice(lending.owners)
    if wanted and random.random() < 0.6:
        one = random.choice(wanted)
        owner, at = one.cluster, max(1.0, one.at - random.uniform(9, 12))
    else:
        at = random.uniform(0, 6)
    scope = random.choice((FLEET, f"cluster/{owner}", f"cluster/{owner}"))
    return (Order(at, "freeze", scope, random.uniform(20, 35)),)


def _draw_freeze_of_waiting(random: Random, script: Script) -> tuple[tuple[Order, ...], tuple[Fault, ...]]:
    """A quota keeps pods out that are made anew, for longer than what waits is left where it is."""
    member, at = random.choice(script.members).name, random.uniform(6, max(7.0, script.faults_end / 2))
    seconds, number = random.uniform(22, 35), len(script.faults)
    scope = random.choice((FLEET, f"cluster/{member}", f"workload/shop/{random.choice(sorted(script.asks))}"))
    faults = (
        Fault(at, "quota", member, seconds, random.randint(0, 16), number),
        Fault(at + 0.5, "pods-deleted", member, 0.5, random.randint(8, 40), number + 1),
    )
    order = Order(at + random.uniform(0, 8), "freeze", scope, seconds)
    return (order,) * (random.random() < 0.5), faults
