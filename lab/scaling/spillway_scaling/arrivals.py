"""Records by second and partition: from the trace of a generative service (never copied), and made up by a seed."""

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
"""For each second the records that come to each partition."""


def find_trace_folder(beneath: Path) -> Path | None:
    """The trace, where it lies beside the checkout or beside a folder above it."""
    found = (folder / FOLDER for folder in (beneath, *beneath.parents))
    return next((folder for folder in found if (folder / RATES).is_file()), None)


def read_rates(folder: Path, request_type: str) -> list[float]:
    """Requests a second in each minute, of all containers: each says its mean over about a minute."""
    by_minute: dict[int, float] = {}
    with gzip.open(folder / RATES, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["request_type"] == request_type]
    first_s = min(float(row["timestamp_anon"]) for row in rows)
    for row in rows:
        minute = int((float(row["timestamp_anon"]) - first_s) // MINUTE_S)
        by_minute[minute] = by_minute.get(minute, 0.0) + float(row["value"])
    return [by_minute.get(minute, 0.0) for minute in range(max(by_minute) + 1)]


def busy_rate(rates: Sequence[float]) -> float:
    """What only one minute in a hundred exceeds."""
    return sorted(rates)[len(rates) * 99 // 100]


@dataclass(frozen=True, slots=True)
class Load:
    """What comes, as the work of so many replicas. seconds: how long. work_at: by second, in replicas."""

    name: str
    seconds: int
    work_at: Callable[[int], float]
    skew: float = 0.0


def load_from_rates(name: str, rates: Sequence[float], replicas: int, minutes: range) -> Load:
    """A trace, scaled so that its busy rate is the work of so many replicas."""
    work = [rate * replicas / busy_rate(rates) for rate in rates[minutes.start : minutes.stop]]
    return Load(name, len(work) * MINUTE_S, lambda second: work[second // MINUTE_S])


def load_with_bursts(name: str, seed: int, within_s: float, *, base: float, skew: float = 0.0, hours: int = 6) -> Load:
    """Every 20 to 40 minutes work that 2 to 16 replicas do within the target time comes in 10 seconds."""
    chance = Random(seed)
    found: dict[int, float] = {}
    at_s = 300
    while at_s < hours * HOUR_S:
        work = chance.uniform(2, 16) * within_s / 10
        found.update(dict.fromkeys(range(at_s, at_s + 10), work))
        at_s += chance.randrange(1200, 2400)
    return Load(name, hours * HOUR_S, lambda second: base + found.get(second, 0.0), skew)


def load_in_steps(name: str, seed: int, hours: int = 6) -> Load:
    """Every twenty minutes another rate, the work of 1 to 16 replicas."""
    chance = Random(seed)
    levels = [chance.uniform(1, 16) for _ in range(hours * 3)]
    return Load(name, hours * HOUR_S, lambda second: levels[second // 1200])


def tidal_load(name: str, hours: int = 6) -> Load:
    """Up and down between the work of 1 and of 16 replicas every two hours."""
    return Load(name, hours * HOUR_S, lambda second: 8.5 - 7.5 * math.cos(2 * math.pi * second / (2 * HOUR_S)))


def random_arrivals(load: Load, partitions: int, rate: float, seed: int) -> Arrivals:
    """Each second's records by chance (Poisson). skew: partition n gets a share as n to the power of −skew."""
    chance = np.random.default_rng(seed)
    shares = np.arange(1, partitions + 1, dtype=float) ** -load.skew
    shares = chance.permutation(shares / shares.sum())
    for begin in range(0, load.seconds, HOUR_S):
        work = np.array([load.work_at(second) for second in range(begin, min(begin + HOUR_S, load.seconds))])
        yield from chance.poisson(np.outer(work * rate, shares)).tolist()
