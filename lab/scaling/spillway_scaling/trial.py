"""One scaler on one load: how long records waited too long, what it cost, how often it scaled."""

from dataclasses import asdict, dataclass
from random import Random

from hpa.core.own.draining import DrainTarget, ServiceRate

from .arrivals import Load, random_arrivals
from .queue import Consumers, Queue
from .scalers import ByDrainTime, ByLag, KedaWay, Scaler


@dataclass(frozen=True, slots=True)
class Scene:
    """within_s: what is judged by. guess: the rate that a person wrote down, as a share of the true one."""

    load: Load
    truth: Consumers
    within_s: float = 120.0
    guess: float = 0.6


@dataclass(frozen=True, slots=True)
class Outcome:
    """late_minutes: in which some record had waited longer than the target. busy_left: replicas that left while work
    of theirs waited. core_hours: replicas from being asked for until they went, a core each."""

    late_minutes: float
    core_hours: float
    changes: int
    busy_left: int
    worst_s: float


def drain_time_scaler(scene: Scene, aim: float, margin: float, seed: int, *, alternates: bool = False) -> ByDrainTime:
    """aim: the target that it is given, as a share of what it is judged by."""
    truth = scene.truth
    service = ServiceRate(truth.rate * scene.guess, truth.start_s, truth.rebalance_s)
    return ByDrainTime(service, DrainTarget(scene.within_s * aim, margin, alternates), phase_s=seed % 5)


def lag_scaler(scene: Scene, way: KedaWay, share: float, seed: int) -> ByLag:
    """share: the lag threshold, as a share of what a replica reads within the target."""
    truth = scene.truth
    threshold = max(1, round(share * truth.rate * scene.within_s))
    return ByLag(way, threshold, truth.partitions, phase_s=seed * 7 % 30)


def play_scene(scene: Scene, scaler: Scaler, seed: int) -> Outcome:
    queue = Queue(scene.truth, Random(seed))
    late_s, worst_s = 0, 0.0
    for come in random_arrivals(scene.load, scene.truth.partitions, scene.truth.rate, seed):
        waited_s = queue.advance_second(come)
        late_s += waited_s > scene.within_s
        worst_s = max(worst_s, waited_s)
        scaler.scale_queue(queue)
    hours = queue.replica_seconds / 3600
    return Outcome(late_s / 60, hours, queue.changes, queue.busy_left, worst_s)


def outcome_fields(outcome: Outcome) -> dict[str, float]:
    return asdict(outcome)
