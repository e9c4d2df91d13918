"""Makes the arriving records of a queue by second and partition, from a trace (never copied) or a seed."""

import csv
import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

FOLDER = Path("shared/data/genai")
RATES = "qps.csv.gz"
MINUTE_S = 60
HOUR_S = 3600

Arrivals = Iterator[list[int]]
"""For each second the number of records that arrive in each partition."""


def find_trace_folder(beneath: Path) -> Path | None:
    """Returns the folder of the trace beside the checkout or beside a folder above it; None if there is none."""
    found = (folder / FOLDER for folder in (beneath, *beneath.parents))
    return next((folder for folder in found if (folder / RATES).is_file()), None)


def read_rates(folder: Path, request_type: str) -> list[float]:
    """Returns the requests per second in each minute, summed over containers. Each reports its mean over a minute."""
    by_minute: dict[int, float] = {}
    with gzip.open(folder / RATES, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["request_type"] == request_type]
    first_s = min(float(row["timestamp_anon"]) for row in rows)
    for row in rows:
        minute = int((float(row["timestamp_anon"]) - first_s) // MINUTE_S)
        by_minute[minute] = by_minute.get(minute, 0.0) + float(row["value"])
    return [by_minute.get(minute, 0.0) for minute in range(max(by_minute) + 1)]


def busy_rate(rates: Sequence[float]) -> float:
    """Returns the 99th percentile of the rates."""
    return sorted(rates)[len(rates) * 99 // 100]


@dataclass(frozen=True, slots=True)
class Load:
    """A load of a queue. Its unit is the work that one replica can do.

    seconds: the length. work_at: returns the work of a second, in replicas.
    skew: how unequal the partitions' shares are; 0: equal.
    """

    name: str
    seconds: int
    work_at: Callable[[int], float]
    skew: float = 0.0


def load_from_rates(name: str, rates: Sequence[float], replicas: int, minutes: range) -> Load:
    """Returns the load of a trace, scaled so that its 99th percentile is the work of `replicas` replicas."""
    work = [rate * replicas / busy_rate(rates) for rate in rates[minutes.start : minutes.stop]]
    return Load(name, len(work) * MINUTE_S, lambda second: work[second // MINUTE_S])


def load_with_bursts(name: str, seed: int, within_s: float, *, base: float, skew: float = 0.0, hours: int = 6) -> Load:
    """Returns a load with a burst of 10 seconds every 20 to 40 minutes.

    A burst is as much work as 2 to 16 replicas do within the target time, `within_s`.
    """
    chance = Random(seed)
    found: dict[int, float] = {}
    at_s = 300
    while at_s < hours * HOUR_S:
        work = chance.uniform(2, 16) * within_s / 10
        found.update(dict.fromkeys(range(at_s, at_s + 10), work))
        at_s += chance.randrange(1200, 2400)
    return Load(name, hours * HOUR_S, lambda second: base + found.get(second, 0.0), skew)


def load_in_steps(name: str, seed: int, hours: int = 6) -> Load:
    """Returns a load with another rate every 20 minutes, the work of 1 to 16 replicas."""
    chance = Random(seed)
    levels = [chance.uniform(1, 16) for _ in range(hours * 3)]
    return Load(name, hours * HOUR_S, lambda second: levels[second // 1200])


def tidal_load(name: str, hours: int = 6) -> Load:
    """Returns a load that rises and falls between the work of 1 and 16 replicas every two hours."""
    return Load(name, hours * HOUR_S, lambda second: 8.5 - 7.5 * math.cos(2 * math.pi * second / (2 * HOUR_S)))


def random_arrivals(load: Load, partitions: int, rate: float, seed: int) -> Arrivals:
    """Yields the random records of each second (Poisson). Partition n gets a share in proportion to n^−skew."""
    chance = np.random.default_rng(seed)
    shares = np.arange(1, partitions + 1, dtype=float) ** -load.skew
    shares = chance.permutation(shares / shares.sum())
    for begin in range(0, load.seconds, HOUR_S):
        work = np.array([load.work_at(second) for second in range(begin, min(begin + HOUR_S, load.seconds))])
        yield from chance.poisson(np.outer(work * rate, shares)).tolist()
