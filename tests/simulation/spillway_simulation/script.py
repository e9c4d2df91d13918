"""What one seed stands for: a fleet, what its users ask, and what goes wrong, all drawn before anything runs."""

from dataclasses import dataclass
from random import Random

CPU_CHOICES = (250, 500, 1000, 1500)
INSTANCES = ("planner-1", "planner-2", "snapshot-1", "snapshot-2", "propagator-1", "propagator-2")

INSTANCE_FAULTS = ("kill", "kill", "freeze", "freeze", "freeze", "stop", "cut-off", "late", "late", "again")
LOG_FAULTS = ("log-away", "write-unknown", "write-unknown", "publish-unknown", "compact", "compact")
MEMBER_FAULTS = (
    "silent", "silent", "flaky", "slow", "unauthorized", "garbage", "stall-list", "drop-watches", "expire-history",
    "quota", "node-gone", "node-comes", "node-cordoned", "pods-deleted", "replicas-changed", "object-deleted",
)  # fmt: skip
STORE_FAULTS = ("store-away", "store-flushed")


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    tier: str
    nodes: int
    cpu_millis: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A user's request. verb: apply, scale, delete or migrate. wait: seconds after the answer to the one before."""

    verb: str
    wait: float
    replicas: int
    cpu: int
    policy: str
    configured: bool


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator does at a time, and takes back after so many seconds: a phase of a cluster, or a freeze."""

    at: float
    verb: str
    on: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """kind at a time, on an instance or a member, for so many seconds; steps: callbacks of the instance before it."""

    at: float
    kind: str
    on: str
    seconds: float
    steps: int
    number: int


@dataclass(frozen=True, slots=True)
class Script:
    seed: int
    members: tuple[Member, ...]
    asks: dict[str, tuple[Ask, ...]]
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    faults_end: float


def script_of(seed: int) -> Script:
    """The same seed, the same script."""
    random = Random(seed)
    members = _members(random)
    span = random.uniform(12, 40)
    room = sum(member.nodes * member.cpu_millis for member in members)
    asks = {f"w{n}": _asks(random, room, span) for n in range(random.randint(1, 4))}
    faults = _faults(random, members, span)
    orders = _orders(random, members, tuple(asks), span)
    timed: tuple[Order | Fault, ...] = (*orders, *faults)
    end = max((one.at + one.seconds for one in timed), default=0.0)
    return Script(seed, members, asks, orders, faults, max(end, span))


def _members(random: Random) -> tuple[Member, ...]:
    own, cloud = random.randint(1, 3), random.randint(0, 2)
    return tuple(
        Member(f"{tier}-{n + 1}", tier, random.randint(1, 4), random.choice((2_000, 4_000, 8_000)))
        for tier, count in (("own", own), ("cloud", cloud))
        for n in range(count)
    )


def _asks(random: Random, room: int, span: float) -> tuple[Ask, ...]:
    count = random.randint(1, 6)
    verbs = ["apply", *random.choices(("scale", "scale", "apply", "apply", "delete", "migrate"), k=count - 1)]
    policies = ("", "", "spread", "refuse", "losing", "losing", "limited")
    return tuple(
        Ask(
            verb=verb,
            wait=random.uniform(0, 2 * span / count),
            replicas=random.randint(0, max(1, min(40, room // 500))),
            cpu=random.choice(CPU_CHOICES),
            policy=random.choice(policies),
            configured=random.random() < 0.2,
        )
        for verb in verbs
    )


def _orders(random: Random, members: tuple[Member, ...], workloads: tuple[str, ...], span: float) -> tuple[Order, ...]:
    scopes = ("fleet", *(f"cluster/{member.name}" for member in members), *(f"workload/shop/{w}" for w in workloads))
    orders = []
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        verb = random.choice(("Cordoned", "Draining", "Draining", "Leaving", "freeze"))
        if verb == "Leaving" and len(members) < 3:
            verb = "Draining"
        on = random.choice(scopes) if verb == "freeze" else random.choice(members).name
        orders.append(Order(random.uniform(5, span), verb, on, random.uniform(2, 30)))
    return tuple(sorted(orders, key=lambda order: order.at))


def _faults(random: Random, members: tuple[Member, ...], span: float) -> tuple[Fault, ...]:
    kinds = (
        *((kind, INSTANCES) for kind in INSTANCE_FAULTS),
        *((kind, ("",)) for kind in LOG_FAULTS),
        *((kind, tuple(member.name for member in members)) for kind in MEMBER_FAULTS),
        *((kind, ("",)) for kind in STORE_FAULTS),
    )
    weights = [3 if on is INSTANCES else 1 for _, on in kinds]
    faults = []
    for number in range(random.choice((0, 1, 2, 4, 6, 8, 12, 16))):
        kind, on = random.choices(kinds, weights)[0]
        faults.append(
            Fault(
                at=random.uniform(3, span),
                kind=kind,
                on=random.choice(on),
                seconds=random.choice((0.5, 2.0, 5.0, 12.0, 25.0)) * random.uniform(0.5, 1.5),
                steps=random.randint(0, 40),
                number=number,
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.at))
