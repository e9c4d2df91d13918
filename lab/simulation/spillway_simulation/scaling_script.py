"""What a seed says of scaling, drawn before anything runs: policies on workloads, and what their load is."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

HPAS = ("hpa-1", "hpa-2")
KINDS = ("requests", "cpu", "backlog", "backlog", "calendar")
HEADROOM = "headroom"
EFFECTS = ("floor", "ceiling", "exact", "blackout")
PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """At a time: the policy is declared with so many replicas at the most, or deleted (most −1)."""

    at: float
    most: int


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Of a calendar: effect with a number, open from and until so many seconds after the start."""

    effect: str
    number: int
    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Scaled:
    """A workload under policy. levels: (at, what its load is from then on), in the kind's own unit for one replica.

    A workload that follows what is idle has no load; target is its share then, in percent.

    target: so much of it is one replica's share. again, late: how likely a report is sent twice, or after the next one.
    """

    workload: str
    kind: str
    least: int
    target: int
    steps: tuple[PolicyStep, ...]
    levels: tuple[tuple[float, float], ...]
    windows: tuple[OpenWindow, ...]
    again: float
    late: float

    def load_at(self, at: float) -> int:
        """The load then."""
        return round(self.target * max((one for one in self.levels if one[0] <= at), default=(0.0, 0.0))[1])


def draw_scaled_workloads(random: Random, workloads: Sequence[str], span: float) -> tuple[Scaled, ...]:
    """Of some of the workloads; each has one kind of policy."""
    chosen = random.sample(workloads, random.randint(1, len(workloads)))
    return tuple(_draw_scaled_workload(random, workload, span) for workload in chosen)


def draw_headroom_workload(random: Random, workload: str, span: float) -> Scaled:
    """One that follows what is idle."""
    steps = (PolicyStep(random.uniform(0, span / 2), random.choice((5, 20, 100))),)
    share = random.choice((50, 80, 100))
    return Scaled(workload, HEADROOM, 0, share, steps, ((0.0, 0.0),), (), 0.0, 0.0)


def _draw_scaled_workload(random: Random, workload: str, span: float) -> Scaled:
    kind = random.choice(KINDS)
    least = random.choice((1, 1, 2)) if kind == "cpu" else random.choice((0, 0, 1, 2))
    most = least + random.randint(1, 12)
    steps = [PolicyStep(random.uniform(0, span / 2), most)]
    if random.random() < 0.4:
        steps.append(PolicyStep(random.uniform(span / 2, span * 0.8), random.choice((-1, -1, most, most + 3))))
    if steps[-1].most < 0 and random.random() < 0.5:
        steps.append(PolicyStep(random.uniform(span * 0.8, span), most))
    levels = [(0.0, random.uniform(0, 8))]
    levels += [(random.uniform(1, span), random.choice((0, *[random.uniform(0, 16)] * 3))) for _ in range(4)]
    windows = tuple(_draw_window(random, least, most, span) for _ in range(random.randint(1, 3)))
    return Scaled(
        workload=workload,
        kind=kind,
        least=least,
        target=random.choice((3, 10, 50)),
        steps=tuple(steps),
        levels=tuple(sorted(levels)),
        windows=windows if kind == "calendar" else (),
        again=random.choice((0.0, 0.1, 0.3)),
        late=random.choice((0.0, 0.1, 0.3)),
    )


def _draw_window(random: Random, least: int, most: int, span: float) -> OpenWindow:
    begins = random.randint(0, round(span * 0.8))
    return OpenWindow(
        random.choice(EFFECTS), random.randint(least, most), begins, begins + random.randint(1, round(span * 0.5))
    )
