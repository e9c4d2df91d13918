"""Compares decisions on late and doubled samples of ten clusters with those of an observer who knows everything.

Every 15 seconds each cluster sends one sample of each of its pods. Some come late, twice, or after newer ones. One
cluster is lost for a while, but its pods go on. Our autoscaler keeps the newest sample of each pod, and pods of a lost
cluster are missing. Karmada's federated autoscaler (pkg/controllers/federatedhpa) skips a cluster without an answer,
and asks for ceil(ratio × ready ÷ calibration); calibration is the reachable clusters' replicas divided by all replicas.
There are always 200 replicas, so that each error comes from one decision and not from earlier ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hpa.core.kubernetes.pods import CountedPod, PodContainer, PodKey, PodsSeen, Sample
from hpa.core.kubernetes.replicas import ReplicaContext, propose_by_utilization
from hpa.core.kubernetes.totals import MetricRule, NoUsableMetrics, totals_of
from hpa.core.kubernetes.usage import NoMatchingMetrics

CLUSTERS = tuple(f"cluster-{number}" for number in range(10))
REQUEST_MILLI, TARGET_PERCENT = 1000, 60
RULE = MetricRule("cpu", target_percent=TARGET_PERCENT)
STEP_MS = 15_000
STARTED_MS = -10_000_000
TEMPLATE = (PodContainer("app", {"cpu": REQUEST_MILLI}),)
RUNNING = CountedPod(started_ms=STARTED_MS, ready="true", ready_changed_ms=STARTED_MS, containers=TEMPLATE)
TOLERANCE = 0.1
WAYS, WHEN = ("ours", "karmada"), ("all clusters", "one lost")


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a trace.

    late, doubled: shares of the samples. Late ones come 1 to 4 steps later.
    lost: the steps in which one cluster is lost. uneven: the use of its pods in relation to the mean.
    """

    late: float = 0.3
    doubled: float = 0.3
    lost: range = range(100, 200)
    uneven: float = 1.0


@dataclass(slots=True)
class Errors:
    """The errors of one way, in replicas summed over steps.

    too_few, too_many: the difference from the right number. taken: those of too_few that run and are needed.
    added: those of too_many that do not run yet. The rest of both are only changes that come too late.
    """

    steps: int = 0
    exact: int = 0
    asked: int = 0
    too_few: int = 0
    too_many: int = 0
    taken: int = 0
    added: int = 0

    def count_decision(self, found: int, right: int, current: int) -> None:
        self.steps += 1
        self.exact += found == right
        self.asked += right
        self.too_few += max(0, right - found)
        self.too_many += max(0, found - right)
        self.taken += max(0, min(current, right) - found)
        self.added += max(0, found - max(current, right))


@dataclass(slots=True)
class Received:
    """The received samples: of each pod the newest one, and the one that arrived last."""

    newest: dict[PodKey, Sample] = field(default_factory=dict)
    last: dict[PodKey, Sample] = field(default_factory=dict)

    def note_sample(self, key: PodKey, sample: Sample) -> None:
        self.last[key] = sample
        known = self.newest.get(key)
        if known is None or sample.at_ms > known.at_ms:
            self.newest[key] = sample


def errors_by_way(faults: Faults, seed: int, steps: int = 300) -> dict[str, Errors]:
    """Returns the errors by way and by whether a cluster is lost, over one trace of 200 pods with random use."""
    chance = Random(seed)
    keys = [PodKey(CLUSTERS[number % len(CLUSTERS)], "shop", f"p-{number}") for number in range(200)]
    pods = dict.fromkeys(keys, RUNNING)
    received, errors = Received(), {f"{way}, {when}": Errors() for when in WHEN for way in WAYS}
    coming: dict[int, list[tuple[PodKey, Sample]]] = {}
    level = 600.0
    for step in range(steps):
        now_ms = step * STEP_MS
        level = min(950.0, max(150.0, level * chance.uniform(0.94, 1.07)))
        lost = frozenset(CLUSTERS[:1]) if step in faults.lost else frozenset[str]()
        true = {key: Sample(_cpu_use_milli(key, level, faults, chance), now_ms, STEP_MS) for key in keys}
        for key, sample in true.items():
            if key.cluster not in lost:
                _send_sample(coming, step, key, sample, faults, chance)
        come = coming.pop(step, [])
        chance.shuffle(come)
        for key, sample in come:
            received.note_sample(key, sample)
        if step < 5:
            continue
        right = _replicas_asked(PodsSeen(pods), true, len(keys), now_ms)
        mine = _replicas_asked(PodsSeen(pods, lost), received.newest, len(keys), now_ms)
        errors[f"ours, {WHEN[bool(lost)]}"].count_decision(mine, right, len(keys))
        errors[f"karmada, {WHEN[bool(lost)]}"].count_decision(
            replicas_by_karmada(keys, lost, received.last, len(keys)), right, len(keys)
        )
    return errors


def _cpu_use_milli(key: PodKey, level: float, faults: Faults, chance: Random) -> int:
    busier = faults.uneven if key.cluster == CLUSTERS[0] else 1.0
    return round(level * busier * chance.uniform(0.8, 1.2))


def _send_sample(
    coming: dict[int, list[tuple[PodKey, Sample]]],
    step: int,
    key: PodKey,
    sample: Sample,
    faults: Faults,
    chance: Random,
) -> None:
    delay = chance.randrange(1, 5) if chance.random() < faults.late else 0
    coming.setdefault(step + delay, []).append((key, sample))
    if chance.random() < faults.doubled:
        coming.setdefault(step + delay + chance.randrange(3), []).append((key, sample))


def _replicas_asked(seen: PodsSeen, samples: dict[PodKey, Sample], current: int, now_ms: int) -> int:
    scene = ReplicaContext(current, current, seen, now_ms=now_ms)
    try:
        return propose_by_utilization(
            scene, totals_of(seen, samples, RULE, scene.readiness, now_ms), TARGET_PERCENT
        ).replicas
    except (NoUsableMetrics, NoMatchingMetrics):
        return current


def replicas_by_karmada(
    keys: Sequence[PodKey], lost: frozenset[str], samples: dict[PodKey, Sample], template: int
) -> int:
    """Returns the replicas by Karmada's calibration formula over the reachable clusters. All pods are ready."""
    reached = [key for key in keys if key.cluster not in lost and key in samples]
    if not reached:
        return template
    calibration = sum(1 for key in keys if key.cluster not in lost) / template
    percent = sum(samples[key].value_milli for key in reached) * 100 // (len(reached) * REQUEST_MILLI)
    ratio = percent / TARGET_PERCENT
    return template if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * len(reached) / calibration)
