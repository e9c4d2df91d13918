"""Draws the script of a seed before anything runs: a fleet, the requests of its users, and the faults."""

from dataclasses import dataclass, replace
from random import Random

from spillway_simulation.scaling_script import HPAS, Scaled, draw_headroom_workload, draw_scaled_workloads

CPU_CHOICES = (250, 500, 1000, 1500)
PLANNERS = ("planner-1", "planner-2")
INSTANCES = (*PLANNERS, "snapshot-1", "snapshot-2", "propagator-1", "propagator-2")

FLEET_MEMBERS = 300
FLEETS_ONE_OF, FLEET_ASKS, FLEET_SECONDS = 200, 25, 15.0
LENDERS = ("vk-bridge-1", "vk-bridge-2", "descheduler-1", "descheduler-2")

INSTANCE_FAULTS = ("kill", "kill", "freeze", "freeze", "freeze", "stop", "cut-off", "late", "late", "again")
LOG_FAULTS = ("log-away", "write-unknown", "write-unknown", "publish-unknown", "compact", "compact")
MEMBER_FAULTS = (
    "silent", "silent", "flaky", "slow", "unauthorized", "garbage", "stall-list", "drop-watches", "expire-history",
    "quota", "node-gone", "node-comes", "node-cordoned", "pods-deleted", "replicas-changed", "object-deleted",
)  # fmt: skip
STORE_FAULTS = ("store-away", "store-flushed")

Kinds = tuple[tuple[str, tuple[str, ...]], ...]
"""Pairs of a kind of fault and its possible targets."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    tier: str
    nodes: int
    cpu_millis: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A user's request: apply, scale, delete or migrate; for a Deployment found in a member also adopt, recover, disown
    or by-hand.

    wait: seconds after the answer to the request before. by-hand: a user's kubectl in one of the members that have it.
    """

    verb: str
    wait: float
    replicas: int
    cpu: int
    policy: str
    configured: bool
    needs: tuple[tuple[str, str], ...] = ()
    """Objects that the template of an apply names: (kind, name)."""


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's action at a time, undone after some seconds: a phase of a cluster, or a freeze.

    Lost: `cluster leave --lost` of a cluster that is silent for that time. "Lost and back" joins it again afterwards.
    """

    at: float
    verb: str
    on: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault on an instance or a member at a time, for some seconds. steps: callbacks of the instance before it."""

    at: float
    kind: str
    on: str
    seconds: float
    steps: int
    number: int


@dataclass(frozen=True, slots=True)
class Found:
    """A Deployment that members have before the first request. replicas: by member. fleet: its label; empty: none."""

    name: str
    cpu: int
    replicas: tuple[tuple[str, int], ...]
    fleet: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number of pods wanted from a time on: an owner's own, or the pool's, on lent nodes or on the pool's own."""

    at: float
    pods: str
    cluster: str
    replicas: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Said:
    """A person's declaration about an owner's lending."""

    at: float
    verb: str
    owner: str


@dataclass(frozen=True, slots=True)
class Lending:
    owners: tuple[str, ...]
    idle_seconds: int
    grace_seconds: int
    cooldown_seconds: int
    share_percent: int
    reserve_nodes: int
    wanted: tuple[Wanted, ...]
    said: tuple[Said, ...]
    withdrawn: frozenset[str]
    """Owners that have no lending declaration any more at the end."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of topics: deletes records older than some seconds, and the oldest of a partition above some bytes."""

    seconds: float
    bytes_max: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A user creates or deletes by hand, in a member, an object that templates name."""

    at: float
    cluster: str
    kind: str
    name: str
    there: bool


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The objects that templates name. first: present before the first request. changes: later ones, by time."""

    first: tuple[Change, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Script:
    seed: int
    members: tuple[Member, ...]
    asks: dict[str, tuple[Ask, ...]]
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    faults_end: float
    scaled: tuple[Scaled, ...] = ()
    found: tuple[Found, ...] = ()
    lending: Lending | None = None
    is_read: bool = False
    """Whether readers ask the planners during the whole run."""
    retention: Retention | None = None
    repeats: bool = False
    """Whether users repeat each answered request with its key."""
    dependencies: Dependencies | None = None

    @property
    def instance_names(self) -> tuple[str, ...]:
        return (*INSTANCES, *(HPAS if self.scaled else ()), *(LENDERS if self.lending else ()))


def drawn_count_by_kind(script: Script) -> dict[str, int]:
    """Returns the number of each kind of thing in the script, for the ledger."""
    return {
        "members": len(script.members),
        "asks": sum(map(len, script.asks.values())),
        "orders": len(script.orders),
        "faults": len(script.faults),
        "fleets": int(len(script.members) >= FLEET_MEMBERS),
        "lending": int(script.lending is not None),
        "retention": int(script.retention is not None),
        "dependencies": int(script.dependencies is not None),
    }


def with_scaling(script: Script) -> Script:
    """Adds scaling. It has its own random stream, so that the rest of the script stays the same."""
    random = Random(f"{script.seed}/scaling")
    span = script.faults_end
    own = Ask("apply", random.uniform(0, 3), random.randint(0, 3), random.choice(CPU_CHOICES[:3]), "", False)
    asks = {**script.asks, "s0": (own,)}
    scaled = draw_scaled_workloads(random, tuple(asks), span)
    if random.random() < 0.25:
        scaled = (*(one for one in scaled if one.workload != "s0"), draw_headroom_workload(random, "s0", span))
    kinds = (*((kind, HPAS) for kind in INSTANCE_FAULTS), *((kind, ("",)) for kind in LOG_FAULTS))
    faults = draw_faults(random, kinds, random.choice((0, 1, 2, 4, 8)), span, len(script.faults))
    end = max([span, *(fault.at + fault.seconds for fault in faults), *(w.ends for one in scaled for w in one.windows)])
    faults = tuple(sorted((*script.faults, *faults), key=lambda fault: fault.at))
    return replace(script, asks=asks, faults=faults, faults_end=end, scaled=scaled)


def with_restarted_versions(script: Script) -> Script:
    """Adds members whose versions begin again, as with etcd from a backup. It has its own random stream."""
    random = Random(f"{script.seed}/versions")
    kinds = (("versions-back", tuple(member.name for member in script.members)),)
    found = draw_faults(random, kinds, random.choice((0, 0, 0, 1)), script.faults_end, len(script.faults))
    end = max([script.faults_end, *(one.at + one.seconds for one in found)])
    return replace(script, faults=tuple(sorted((*script.faults, *found), key=lambda one: one.at)), faults_end=end)


def with_reads(script: Script) -> Script:
    """Adds readers, and in a quarter of the seeds a planner that is cut off for longer than its turn lasts.

    The cut comes after all other faults: a planner that writes would learn by the write that its turn is over.
    """
    random = Random(f"{script.seed}/reads")
    cut = random.choice((0, 0, 0, 1))
    at, seconds = script.faults_end + random.uniform(0, 10), random.uniform(20, 40)
    faults = (Fault(at, "cut-off", random.choice(PLANNERS), seconds, 0, len(script.faults)),) * cut
    end = max([script.faults_end, *(one.at + one.seconds for one in faults)])
    together = tuple(sorted((*script.faults, *faults), key=lambda one: one.at))
    return replace(script, faults=together, faults_end=end, is_read=True)


def with_retention(script: Script) -> Script:
    """Adds retention in half of the seeds. It has its own random stream."""
    random = Random(f"{script.seed}/retention")
    seconds, bytes_max = random.choice((0.0, 0.0, 24.0, 40.0)), random.choice((None, None, 30_000))
    return replace(script, retention=Retention(seconds, bytes_max) if seconds else None)


def with_large_fleet(script: Script) -> Script:
    """Replaces the script in one of 200 seeds: 300 small members, and one workload with many requests."""
    random = Random(f"{script.seed}/fleet")
    if random.random() >= 1 / FLEETS_ONE_OF:
        return script
    members = tuple(
        Member(f"{tier}-{n + 1}", tier, 1, 2_000)
        for tier, count in (("own", FLEET_MEMBERS // 2), ("cloud", FLEET_MEMBERS // 2))
        for n in range(count)
    )
    asked = [Ask("apply", 0.5, random.randint(100, 600), 500, "", False)]
    asked += [replace(asked[0], verb="scale", replicas=random.randint(100, 900)) for _ in range(FLEET_ASKS)]
    kinds = (*((kind, INSTANCES) for kind in INSTANCE_FAULTS), *((kind, ("",)) for kind in LOG_FAULTS))
    faults = draw_faults(random, kinds, random.choice((0, 1, 2)), FLEET_SECONDS)
    end = max([FLEET_SECONDS, *(one.at + one.seconds for one in faults)])
    return Script(script.seed, members, {"w0": tuple(asked)}, (), faults, end, is_read=True, repeats=True)


def draw_first_script(seed: int) -> Script:
    random = Random(seed)
    members = _draw_members(random)
    span = random.uniform(12, 40)
    room = sum(member.nodes * member.cpu_millis for member in members)
    asks = {f"w{n}": _draw_asks(random, room, span) for n in range(random.randint(1, 4))}
    kinds = _possible_fault_kinds(members)
    faults = draw_faults(random, kinds, random.choice((0, 1, 2, 4, 6, 8, 12, 16)), span)
    orders = _draw_orders(random, members, tuple(asks), span)
    timed: tuple[Order | Fault, ...] = (*orders, *faults)
    end = max((one.at + one.seconds for one in timed), default=0.0)
    return Script(seed, members, asks, orders, faults, max(end, span))


def _draw_members(random: Random) -> tuple[Member, ...]:
    own, cloud = random.randint(1, 3), random.randint(0, 2)
    return tuple(
        Member(f"{tier}-{n + 1}", tier, random.randint(1, 4), random.choice((2_000, 4_000, 8_000)))
        for tier, count in (("own", own), ("cloud", cloud))
        for n in range(count)
    )


def _draw_asks(random: Random, room: int, span: float) -> tuple[Ask, ...]:
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


def _draw_orders(
    random: Random, members: tuple[Member, ...], workloads: tuple[str, ...], span: float
) -> tuple[Order, ...]:
    scopes = ("fleet", *(f"cluster/{member.name}" for member in members), *(f"workload/shop/{w}" for w in workloads))
    orders = []
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        verb = random.choice(("Cordoned", "Draining", "Draining", "Leaving", "freeze"))
        if verb == "Leaving" and len(members) < 3:
            verb = "Draining"
        on = random.choice(scopes) if verb == "freeze" else random.choice(members).name
        orders.append(Order(random.uniform(5, span), verb, on, random.uniform(2, 30)))
    return tuple(sorted(orders, key=lambda order: order.at))


def _possible_fault_kinds(members: tuple[Member, ...]) -> Kinds:
    return (
        *((kind, INSTANCES) for kind in INSTANCE_FAULTS),
        *((kind, ("",)) for kind in LOG_FAULTS),
        *((kind, tuple(member.name for member in members)) for kind in MEMBER_FAULTS),
        *((kind, ("",)) for kind in STORE_FAULTS),
    )


def draw_faults(random: Random, kinds: Kinds, count: int, span: float, first: int = 0) -> tuple[Fault, ...]:
    """Draws `count` faults, each on a possible target of its kind. first: the number of the first one."""
    weights = [3 if kind in INSTANCE_FAULTS else 1 for kind, _ in kinds]
    faults = []
    for number in range(first, first + count):
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
