"""What a seed says of what ran before anything was asked, and of clusters that are given up, drawn before it runs."""

from dataclasses import replace
from random import Random

from spillway_local.in_process import FLEET_ID
from spillway_simulation.script import Ask, Fault, Found, Member, Order, Script

FORMER_FLEET = "former"
LOST, LOST_AND_BACK = "Lost", "Lost and back"
CPU_CHOICES = (250, 500, 1000)
POLICIES = ("", "", "limited", "losing", "elsewhere")
LATER = ("scale", "scale", "disown", "disown", "apply", "by-hand", "by-hand", "delete", "migrate")
FILLED_BY_ONE = 0.3
"""Of the whole replicas that a member's nodes take, so much at the most is of one name that was there before."""


def with_brownfield(script: Script) -> Script:
    """Drawn from a stream of its own, so that the rest of the script stays what it was."""
    random = Random(f"{script.seed}/brownfield")
    span = script.faults_end
    found, asks = [], dict(script.asks)
    for number in range(random.choice((0, 1, 1, 2))):
        name = f"b{number}"
        found.append(_draw_found_deployment(random, name, script.members, ""))
        asks[name] = _draw_asks(random, "adopt", span)
    if random.random() < 0.2:
        found.append(_draw_found_deployment(random, "r0", script.members, FORMER_FLEET))
        asks["r0"] = _draw_asks(random, "recover", span)
    if random.random() < 0.3:
        found.append(_draw_found_deployment(random, "n0", script.members, random.choice(("", "another"))))
    if random.random() < 0.4:
        found.append(_draw_found_deployment(random, random.choice(("o0", "w0")), script.members, FLEET_ID))
        if found[-1].name == "o0" and random.random() < 0.6:
            asks["o0"] = _draw_asks(random, "adopt", span)
    orders, silences = _draw_given_up_cluster(random, script)
    timed: tuple[Order | Fault, ...] = (*orders, *silences)
    return replace(
        script,
        asks=asks,
        found=tuple(found),
        orders=tuple(sorted((*script.orders, *orders), key=lambda order: order.at)),
        faults=tuple(sorted((*script.faults, *silences), key=lambda fault: fault.at)),
        faults_end=max([script.faults_end, *(one.at + one.seconds for one in timed)]),
    )


def _draw_found_deployment(random: Random, name: str, members: tuple[Member, ...], fleet: str) -> Found:
    cpu = random.choice(CPU_CHOICES)
    where = random.sample(members, random.randint(1, min(2, len(members))))
    most = {one.name: round(one.nodes * (one.cpu_millis // cpu) * FILLED_BY_ONE) for one in where}
    return Found(name, cpu, tuple((name, random.randint(0, most[name])) for name in sorted(most)), fleet)


def _draw_asks(random: Random, first: str, span: float) -> tuple[Ask, ...]:
    """Taken over, then whatever; once more when it was given back."""
    verbs = [first]
    for verb in random.choices(LATER, k=random.randint(0, 4)):
        if verb == "by-hand" and random.random() < 0.3:
            verbs.insert(0, verb)
            continue
        verbs.append(verb)
        if verb == "disown":
            verbs += ["by-hand"] * random.randint(0, 1) + ["adopt"] * random.randint(0, 1)
            if verbs[-1] != "adopt":
                break
    wait = 2 * span / len(verbs)
    return tuple(
        Ask(
            verb=verb,
            wait=random.uniform(0, wait),
            replicas=random.randint(0, 8),
            cpu=random.choice(CPU_CHOICES),
            policy=random.choice(POLICIES),
            configured=False,
        )
        for verb in verbs
    )


def _draw_given_up_cluster(random: Random, script: Script) -> tuple[tuple[Order, ...], tuple[Fault, ...]]:
    """Some cluster falls silent and is given up; it wakes later, in the fleet or out of it."""
    if len(script.members) < 2 or random.random() < 0.5:
        return (), ()
    member = random.choice(script.members).name
    at, silent = random.uniform(4, script.faults_end), random.uniform(15, 60)
    order = Order(at, random.choice((LOST, LOST_AND_BACK, LOST_AND_BACK)), member, silent + random.uniform(0, 20))
    return (order,), (Fault(at, "silent", member, silent, 0, len(script.faults)),)
