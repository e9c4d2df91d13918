"""The autoscaler's core by itself: a process that decides on a stream of samples and prints its figures as JSON.

Each record is one pod's sample, and asks for one decision of its workload. What is compared with it works out every
decision from all the workload's pods anew, on the same records; both must decide the same. Times are CPU times.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hpa.core.deciding import Scale
from hpa.core.evaluating import NOTHING_DECIDED, Evaluation, Observed, ScalingState, evaluate
from hpa.core.pods import DEFAULT_READINESS, Container, Pod, PodKey, PodsSeen, Sample
from hpa.core.policy import DEFAULT_SETTINGS, RESOURCE, UTILIZATION, Autoscaler, Behavior, Metric, Target
from hpa.core.proposals import KeptReading, PodReading, Reading, rule_of
from hpa.core.totals import KeptTotals

from .machine import memory_of

PODS = 20
CLUSTERS = 10
SEED = 1
CPU_USE = Metric(RESOURCE, "cpu", Target(UTILIZATION, 60))
POLICIES = (Autoscaler(100, (CPU_USE,), 2, Behavior()), Autoscaler(100, (CPU_USE,), 2))
STARTED_MS, NOW_MS = 0, 10_000_000


@dataclass(frozen=True, slots=True)
class Size:
    workloads: int = 10_000
    records: int = 60_000


QUICK = Size(200, 2_000)


@dataclass(frozen=True, slots=True)
class Record:
    workload: int
    pod: int
    sample: Sample


class Workload:
    """A workload that follows its decisions. keep: its totals are kept; else they are worked out from all pods."""

    def __init__(self, number: int, keep: bool) -> None:
        template = (Container("app", {"cpu": 500}),)
        self.policy = POLICIES[number % len(POLICIES)]
        self.keys = [PodKey(f"cluster-{n % CLUSTERS}", "shop", f"w{number}-{n}") for n in range(PODS)]
        pod = Pod(started_ms=STARTED_MS, ready="true", ready_changed_ms=STARTED_MS, containers=template)
        self.seen = PodsSeen(dict.fromkeys(self.keys, pod))
        self.state: ScalingState = NOTHING_DECIDED
        self.replicas = PODS
        self.samples = {key: Sample(300, NOW_MS, 15_000) for key in self.keys}
        self.kept = KeptTotals(rule_of(CPU_USE), DEFAULT_READINESS, NOW_MS) if keep else None
        if self.kept is not None:
            for key in self.keys:
                self.kept.put_pod(key, pod)
                self.kept.put_sample(key, self.samples[key])

    def follow(self, record: Record, now_ms: int) -> Evaluation:
        key = self.keys[record.pod]
        reading: Reading
        if self.kept is not None:
            self.kept.put_sample(key, record.sample)
            reading = KeptReading(self.kept)
        else:
            self.samples[key] = record.sample
            reading = PodReading(self.samples)
        observed = Observed(Scale(self.replicas, PODS), self.seen, (reading,))
        found = evaluate(self.policy, observed, self.state, DEFAULT_SETTINGS, now_ms)
        self.state = found.state
        self.replicas = self.replicas if found.decision.replicas is None else found.decision.replicas
        return found


def records(size: Size) -> list[Record]:
    chance = Random(SEED)
    samples = (Sample(chance.randrange(500), NOW_MS + n, 15_000) for n in range(size.records))
    return [Record(chance.randrange(size.workloads), chance.randrange(PODS), sample) for sample in samples]


def follow_all(workloads: Sequence[Workload], stream: Sequence[Record]) -> tuple[float, list[int]]:
    """(CPU seconds, what was desired after each record)."""
    gc.collect()
    gc.disable()
    began = time.process_time()
    desired = [workloads[one.workload].follow(one, NOW_MS + n).decision.desired for n, one in enumerate(stream)]
    seconds = time.process_time() - began
    gc.enable()
    return seconds, desired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    size = QUICK if parser.parse_args().quick else Size()
    stream = records(size)
    empty = memory_of(os.getpid())
    kept = [Workload(number, keep=True) for number in range(size.workloads)]
    follow_all(kept, stream[: size.records // 10])
    seconds, desired = follow_all(kept, stream)
    full = memory_of(os.getpid())
    del kept
    plain = [Workload(number, keep=False) for number in range(size.workloads)]
    follow_all(plain, stream[: size.records // 10])
    plain_seconds, plain_desired = follow_all(plain, stream)
    if desired != plain_desired:
        raise SystemExit("kept totals decided otherwise than all pods")
    say("hpa_decisions_per_second", size.records / seconds, size.records / plain_seconds)
    say("hpa_memory_mb", full.resident_mb - empty.resident_mb, empty.resident_mb)


def say(name: str, value: float, baseline: float) -> None:
    print(json.dumps({"name": name, "value": value, "baseline": baseline, "floor": None}), flush=True)


if __name__ == "__main__":
    main()
