"""Checks that control loops come to rest under constant load and capacity, while pods move or have no place.

A decision changes the next observation: a moving pod exists twice for a while, a pending pod does no work, and filled
headroom is no longer free. These effects must not cause decisions for ever.
As a command (docs/scaling-quality.md) it prints how many seeds do not come to rest, with less and less damping.
"""

import argparse
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from hpa.core.kubernetes.deciding import ScaleTargetSize
from hpa.core.kubernetes.evaluating import (
    CONTROLLER,
    EVENT,
    NOTHING_DECIDED,
    ObservedMetrics,
    ScalingState,
    evaluate_autoscaler,
)
from hpa.core.kubernetes.pods import CountedPod, PodContainer, PodKey, PodsSeen, Sample
from hpa.core.kubernetes.policy import (
    DEFAULT_SETTINGS,
    DOWNSCALE_STABILIZATION_MS,
    RESOURCE,
    UTILIZATION,
    Autoscaler,
    ControllerSettings,
    Metric,
    TargetValue,
    behavior_with_defaults,
)
from hpa.core.kubernetes.proposals import PodReading
from hpa.core.own.draining import DrainTarget, ServiceRate
from hpa.core.own.headroom import HeadroomShare, headroom_replicas

from .arrivals import Load
from .queue import Consumers, Queue
from .scalers import ByDrainTime

STEP_MS = 15_000
"""The time between two decisions. It is also the window of each sample."""
REQUEST_MILLI = 1000
TARGET_PERCENT = 60
CPU_USE = Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, TARGET_PERCENT))
TEMPLATE = (PodContainer("app", {"cpu": REQUEST_MILLI}),)
MOVES_UNTIL = 60
"""Steps of 15 s. Capacity is constant, so moves come to an end."""
RESTS_AFTER = MOVES_UNTIL + 30
"""Steps after which nothing may be decided any more: a window of five minutes, and as long again."""


@dataclass(frozen=True, slots=True)
class Damping:
    """The settings that let a loop come to rest. The defaults are Kubernetes'.

    window_ms: the stabilization window before scaling in. tolerance: of the ratio of usage and target.
    """

    window_ms: int = DOWNSCALE_STABILIZATION_MS
    tolerance: float = DEFAULT_SETTINGS.tolerance
    mode: str = EVENT

    def controller_settings(self) -> ControllerSettings:
        return replace(DEFAULT_SETTINGS, downscale_stabilization_ms=self.window_ms, tolerance=self.tolerance)


DEFAULT_DAMPING = Damping()


@dataclass(frozen=True, slots=True)
class Ground:
    """The conditions of a loop.

    work_milli: the CPU of the whole load. room: the pods that have a place. moving: the chance of a move in a step.
    free: the room of an idle supply class, shared with pods that are bound there; 0: no headroom.
    """

    work_milli: int
    room: int
    moving: float
    free: int = 0
    behavior: bool = True


def random_ground(seed: int) -> Ground:
    chance = Random(seed)
    return Ground(
        work_milli=chance.randrange(100, 30_000),
        room=chance.randrange(1, 80),
        moving=chance.choice((0.0, 0.05, 0.3)),
        free=chance.choice((0, chance.randrange(1, 60))),
        behavior=chance.random() < 0.5,
    )


class Fleet:
    """A fleet of pods. A pod starts one step after its request if there is room. A move starts the new pod first."""

    def __init__(self, ground: Ground, chance: Random, moves_until: int) -> None:
        self.ground = ground
        self.moves_until = moves_until
        self._chance = chance
        self._number = 0
        self.pods: dict[PodKey, CountedPod] = {}
        self._moved: list[tuple[int, PodKey]] = []

    def resize_fleet(self, replicas: int, step: int) -> None:
        gone = [key for at, key in self._moved if at <= step]
        self._moved = [(at, key) for at, key in self._moved if at > step]
        for key in gone:
            self.pods.pop(key, None)
        leaving = {key for _, key in self._moved}
        staying = [key for key in self.pods if key not in leaving]
        for key in staying[replicas:]:
            del self.pods[key]
        for _ in range(replicas - len(staying)):
            self._start_pod()
        self._place_pods(step)
        movable = [key for key in staying[:replicas] if self.pods[key].phase == "Running"]
        if step < self.moves_until and movable and self._chance.random() < self.ground.moving:
            self._moved.append((step + 3, self._chance.choice(movable)))
            self._start_pod()

    def _start_pod(self) -> None:
        self._number += 1
        key = PodKey(f"cluster-{self._number % 3}", "shop", f"p-{self._number}")
        self.pods[key] = CountedPod(phase="Pending", containers=TEMPLATE)

    def _place_pods(self, step: int) -> None:
        running = sum(1 for pod in self.pods.values() if pod.phase == "Running")
        for key, pod in self.pods.items():
            if pod.phase == "Pending" and running < self.ground.room:
                running += 1
                at_ms = step * STEP_MS
                self.pods[key] = replace(pod, phase="Running", started_ms=at_ms, ready="true", ready_changed_ms=at_ms)

    def samples_by_pod(self, now_ms: int) -> dict[PodKey, Sample]:
        """Returns a sample of each running pod. They share the work evenly, but use at most twice their request."""
        running = [key for key, pod in self.pods.items() if pod.phase == "Running"]
        each = min(self.ground.work_milli // max(1, len(running)), 2 * REQUEST_MILLI)
        return {key: Sample(each, now_ms, STEP_MS) for key in running}


def last_decision_step(ground: Ground, seed: int, steps: int = 240, damping: Damping = DEFAULT_DAMPING) -> int:
    """Returns the last step at which the size changed; 0 if it never changed."""
    sizes = sizes_after_steps(ground, seed, steps, damping)
    return max((step for step in range(1, len(sizes)) if sizes[step] != sizes[step - 1]), default=0)


def sizes_after_steps(ground: Ground, seed: int, steps: int = 240, damping: Damping = DEFAULT_DAMPING) -> list[int]:
    """Returns the size before the first step and after each step."""
    behavior = behavior_with_defaults(None, None, damping.window_ms) if ground.behavior else None
    policy = Autoscaler(60, (CPU_USE,), 1, behavior)
    fleet, state, sizes = Fleet(ground, Random(seed), MOVES_UNTIL), NOTHING_DECIDED, [3]
    shares = (HeadroomShare("idle", 80),)
    for step in range(1, steps):
        fleet.resize_fleet(sizes[-1], step)
        bounded = policy
        if ground.free:
            least = headroom_replicas(shares, {"idle": ground.free}, step * STEP_MS // 1000)
            bounded = replace(policy, min_replicas=min(60, max(1, least)))
        size, state = next_size_and_state(bounded, fleet, sizes[-1], state, step, damping)
        sizes.append(size)
    return sizes


def next_size_and_state(
    policy: Autoscaler, fleet: Fleet, size: int, state: ScalingState, step: int, damping: Damping
) -> tuple[int, ScalingState]:
    """Returns the autoscaler's next size and state, from the fleet that it observes at a step."""
    now_ms = step * STEP_MS
    observed = ObservedMetrics(
        ScaleTargetSize(size, min(size, len(fleet.pods))),
        PodsSeen(dict(fleet.pods)),
        (PodReading(fleet.samples_by_pod(now_ms)),),
    )
    found = evaluate_autoscaler(policy, observed, state, damping.controller_settings(), now_ms, damping.mode)
    return size if found.decision.replicas is None else found.decision.replicas, found.state


def last_queue_change_s(work: float, seed: int, seconds: int = 3600) -> int:
    """Returns the last second at which a queue was scaled. Its work is constant: that of `work` replicas."""
    truth = Consumers(partitions=24, rate=120.0, spread=0.0)
    load = Load("constant", seconds, lambda _: work)
    each = round(work * truth.rate / truth.partitions)
    queue, last = Queue(truth, Random(seed)), 0
    scaler = ByDrainTime(ServiceRate(60.0, truth.start_s, truth.rebalance_s), DrainTarget(120.0), phase_s=seed % 5)
    for second in range(load.seconds):
        queue.advance_second([each] * truth.partitions)
        before = queue.changes
        scaler.scale_queue(queue)
        last = second if queue.changes != before else last
    return last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="first:end")
    first, _, end = parser.parse_args().seeds.partition(":")
    seeds = range(int(first), int(end))
    for damping in (
        DEFAULT_DAMPING,
        Damping(2 * STEP_MS),
        Damping(0),
        Damping(0, mode=CONTROLLER),
        Damping(tolerance=0.02),
        Damping(tolerance=0.01),
    ):
        last = {seed: last_decision_step(random_ground(seed), seed, RESTS_AFTER + 60, damping) for seed in seeds}
        restless = [seed for seed, step in last.items() if step > RESTS_AFTER]
        rested = max((step for step in last.values() if step <= RESTS_AFTER), default=0)
        print(
            f"{damping}: {len(restless)} of {len(seeds)} decide for ever {restless}; the others rest by step {rested}"
        )


if __name__ == "__main__":
    main()
