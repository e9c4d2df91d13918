"""Plays one scaler on one load: measures how long records waited too long, the cost, and the number of changes."""

from dataclasses import asdict, dataclass
from random import Random

from hpa.core.own.draining import DrainTarget, ServiceRate

from .arrivals import Load, random_arrivals
from .queue import Consumers, Queue
from .scalers import ByDrainTime, ByLag, KedaWay, Scaler


@dataclass(frozen=True, slots=True)
class Scene:
    """A load and a queue. within_s: the target time of a record. guess: the guessed part of the true rate."""

    load: Load
    truth: Consumers
    within_s: float = 120.0
    guess: float = 0.6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    late_minutes: the time in which some record had waited longer than the target.
    core_hours: the replicas' time from request to removal, with one core each. changes: the number of size changes.
    busy_left: the replicas that left while their partitions had waiting records.
    """

    late_minutes: float
    core_hours: float
    changes: int
    busy_left: int
    worst_s: float


def drain_time_scaler(scene: Scene, aim: float, margin: float, seed: int, *, alternates: bool = False) -> ByDrainTime:
    """Returns our scaler for a scene. aim: its target time as a share of the time by which it is judged."""
    truth = scene.truth
    service = ServiceRate(truth.rate * scene.guess, truth.start_s, truth.rebalance_s)
    return ByDrainTime(service, DrainTarget(scene.within_s * aim, margin, alternates), phase_s=seed % 5)


def lag_scaler(scene: Scene, way: KedaWay, share: float, seed: int) -> ByLag:
    """Returns KEDA for a scene. share: the lag threshold as a share of what a replica reads within the target."""
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
