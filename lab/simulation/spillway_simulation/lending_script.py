"""What a seed says of nodes that are lent: two owners and a pool, who wants which nodes when, drawn before it runs."""

from dataclasses import replace
from random import Random

from spillway_simulation.script import (
    INSTANCE_FAULTS,
    LENDERS,
    LOG_FAULTS,
    MEMBER_FAULTS,
    Fault,
    Lending,
    Member,
    Order,
    Said,
    Script,
    Wanted,
    draw_faults,
)

OWNERS = 2
SPARE = "spare"
"""A tier that no policy has."""
POOL = "pool-1"
MINE, BATCHES = "mine", "batches"
"""Namespaces and names of the Deployments that a person made in an owner, and in the pool."""
HANDS = ("virtual-deleted", "taint-removed", "pool-pods-deleted", "lent-node-gone")
OWN, BATCH = "own pods", "pool's pods"
"""Whose pods a Wanted is about."""
WITHDRAW, DECLARE, PAUSE, RESUME, RECALL = "withdraw", "declare", "pause", "resume", "recall"
SETTLES_SECONDS = 15.0


def with_lending(script: Script, always: bool = False) -> Script:
    """Of a third of the seeds. Drawn from a stream of its own, so that the rest of the script stays what it was."""
    random = Random(f"{script.seed}/lending")
    if random.random() >= 1 / 3 and not always:
        return script
    members = _add_lending_members(random, script.members)
    owners = _draw_owners(random, members)
    span = script.faults_end
    wanted = tuple(sorted(_draw_wanted_pods(random, members, owners, span), key=lambda one: one.at))
    said = _draw_said(random, owners, span)
    last = {one.owner: one.verb for one in said if one.verb in (DECLARE, WITHDRAW)}
    orders, silences = _draw_pool_departure(random, span, len(script.faults))
    faults = (*silences, *_draw_lending_faults(random, owners, span, len(script.faults) + len(silences)))
    ends = [one.at + one.seconds for one in orders] + [one.at + one.seconds for one in faults]
    ends += [one.at + SETTLES_SECONDS for one in wanted] + [one.at + SETTLES_SECONDS for one in said]
    return replace(
        script,
        members=members,
        orders=tuple(sorted((*script.orders, *orders), key=lambda one: one.at)),
        faults=tuple(sorted((*script.faults, *faults), key=lambda one: one.at)),
        faults_end=max([span, *ends]),
        lending=Lending(
            owners=owners,
            idle_seconds=random.choice((1, 4, 8)),
            grace_seconds=random.choice((1, 3, 8)),
            cooldown_seconds=random.choice((1, 5, 20)),
            share_percent=random.choice((50, 100, 100)),
            reserve_nodes=random.choice((0, 0, 1)),
            wanted=wanted,
            said=said,
            withdrawn=frozenset(owner for owner, verb in last.items() if verb == WITHDRAW),
        ),
    )


def _add_lending_members(random: Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Two with nodes to spare, which may or may not take what users ask for, and a pool, with a node or without."""
    tiers = random.choices(("own", SPARE), k=OWNERS)
    lenders = (
        Member(f"lender-{n + 1}", tier, random.randint(2, 4), random.choice((2_000, 4_000)))
        for n, tier in enumerate(tiers)
    )
    return (*members, *lenders, Member(POOL, random.choice(("own", "cloud")), random.randint(0, 1), 2_000))


def _draw_owners(random: Random, members: tuple[Member, ...]) -> tuple[str, ...]:
    """Now and then one of them is a cluster that has much else to do."""
    busy = [member.name for member in members if member.tier == "own" and member.name != POOL]
    lenders = [member.name for member in members if member.name.startswith("lender-")]
    if random.random() < 0.3:
        lenders[0] = random.choice(busy or lenders)
    return tuple(sorted({lenders[1], lenders[0]}))


def _draw_wanted_pods(
    random: Random, members: tuple[Member, ...], owners: tuple[str, ...], span: float
) -> list[Wanted]:
    """The pool's pods come early; owners want their nodes at some time, and let go of them again."""
    cores = {member.name: member.nodes * member.cpu_millis // 1000 for member in members}
    lent = sum(cores[owner] for owner in owners)
    batch = [Wanted(random.uniform(0, 5), BATCH, POOL, random.randint(1, max(1, lent)), random.choice((500, 1000)))]
    for _ in range(random.randint(0, 3)):
        batch.append(replace(batch[0], at=random.uniform(5, span), replicas=random.randint(0, max(1, lent))))
    own = []
    for owner in owners:
        for _ in range(random.randint(0, 3)):
            replicas = random.randint(0, cores[owner])
            own.append(Wanted(random.uniform(8, span), OWN, owner, replicas, 1000))
    return [*batch, *own]


def _draw_said(random: Random, owners: tuple[str, ...], span: float) -> tuple[Said, ...]:
    found = [Said(random.uniform(0, 3), DECLARE, owner) for owner in owners]
    for owner in owners:
        for _ in range(random.choice((0, 0, 1, 2))):
            at, verb = random.uniform(8, span), random.choice((WITHDRAW, RECALL, RECALL, PAUSE))
            found.append(Said(at, verb, owner))
            if verb == PAUSE:
                found.append(Said(at + random.uniform(1, 10), RESUME, owner))
            if verb == WITHDRAW and random.random() < 0.5:
                found.append(Said(at + random.uniform(1, 20), DECLARE, owner))
    return tuple(sorted(found, key=lambda one: one.at))


def _draw_pool_departure(random: Random, span: float, number: int) -> tuple[tuple[Order, ...], tuple[Fault, ...]]:
    """Now and then it is to leave, or falls silent and is given up; it joins again in most cases."""
    if random.random() >= 0.15:
        return (), ()
    at, silent = random.uniform(6, span), random.uniform(15, 40)
    verb = random.choice(("Leaving", "Lost", "Lost and back", "Lost and back"))
    order = Order(at, verb, POOL, 0.0 if verb == "Leaving" else silent + random.uniform(0, 10))
    return (order,), (() if verb == "Leaving" else (Fault(at, "silent", POOL, silent, 0, number),))


def _draw_lending_faults(random: Random, owners: tuple[str, ...], span: float, first: int) -> tuple[Fault, ...]:
    kinds = (
        *((kind, LENDERS) for kind in INSTANCE_FAULTS),
        *((kind, ("",)) for kind in LOG_FAULTS),
        *((kind, (*owners, POOL)) for kind in MEMBER_FAULTS),
        *((kind, (*owners,)) for kind in HANDS),
    )
    return draw_faults(random, kinds, random.choice((0, 1, 2, 4, 6, 10)), span, first)
