"""Compares ways to scale by lateness and cost: each way over its own range of settings, ours at equal cost or lateness.

The curve of a way has the outcomes of its settings, summed over seeds. At equal cost, the least late point of ours that
costs no more counts. At equal lateness, the cheapest point of ours that is no later counts. Nothing is interpolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .arrivals import busy_rate, load_from_rates, load_in_steps, load_with_bursts, read_rates, tidal_load
from .queue import Consumers
from .scalers import DEFAULT, TUNED
from .trial import Outcome, Scene, drain_time_scaler, lag_scaler, play_scene

OURS = "ours"
ALTERNATING = "ours, alternating"
OUR_WAYS = (OURS, ALTERNATING)
WAYS = {way.name: way for way in (DEFAULT, TUNED)}
THRESHOLDS = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""The lag thresholds for each replica, as shares of the records that a replica reads within the target time."""
AIMS = (0.5, 0.7, 0.85, 1.0)
MARGINS = (0.1, 0.25)
WITHIN_S = 120.0
BUSY_REPLICAS = 16
BUSY_MINUTES = range(200, 560)
WHOLE_DAY = range(10**6)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. setting: (aim, margin) of our ways, (threshold,) of the others."""

    scene: str
    way: str
    setting: tuple[float, ...]
    seed: int


def scenes_by_name(folder: Path | None, hours: int, minutes: range, seed: int) -> dict[str, Scene]:
    """Returns the scenes by name. Those of the trace are left out without the trace.

    The scenes' guesses of a replica's rate are wrong in both directions, as a person's guess may be.
    """
    many, slow = Consumers(), Consumers(start_s=90.0, rebalance_s=10.0)
    found = {
        "bursts": Scene(load_with_bursts("bursts", seed, WITHIN_S, base=0.5, hours=hours), many),
        "bursts on nothing": Scene(load_with_bursts("bursts on nothing", seed, WITHIN_S, base=0.0, hours=hours), many),
        "bursts, skewed": Scene(
            load_with_bursts("bursts, skewed", seed, WITHIN_S, base=0.5, skew=0.7, hours=hours), many
        ),
        "bursts, guess 1.5": Scene(load_with_bursts("bursts", seed, WITHIN_S, base=0.5, hours=hours), many, guess=1.5),
        "steps": Scene(load_in_steps("steps", seed, hours=hours), many),
        "steps, slow start": Scene(load_in_steps("steps", seed, hours=hours), slow, within_s=2 * WITHIN_S),
        "tide": Scene(tidal_load("tide", hours=hours), many),
    }
    if folder is not None:
        for request_type in ("Generative Requests", "API Requests"):
            rates = read_rates(folder, request_type)
            name = f"genai, {request_type.split()[0]}"
            truth = Consumers(rate=busy_rate(rates) / BUSY_REPLICAS)
            found[name] = Scene(load_from_rates(name, rates, BUSY_REPLICAS, minutes), truth)
    return found


def runs_of_all_settings(names: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    settings: list[tuple[str, tuple[float, ...]]]
    settings = [(way, (aim, margin)) for way in OUR_WAYS for aim in AIMS for margin in MARGINS]
    settings += [(way, (share,)) for way in WAYS for share in THRESHOLDS]
    return [Run(name, way, setting, seed) for name in names for way, setting in settings for seed in seeds]


def play_run(run: Run, scene: Scene) -> Outcome:
    if run.way in OUR_WAYS:
        aim, margin = run.setting
        alternates = run.way == ALTERNATING
        return play_scene(scene, drain_time_scaler(scene, aim, margin, run.seed, alternates=alternates), run.seed)
    return play_scene(scene, lag_scaler(scene, WAYS[run.way], run.setting[0], run.seed), run.seed)


@dataclass(frozen=True, slots=True)
class Point:
    """The outcome of one setting, summed over seeds."""

    setting: tuple[float, ...]
    late_minutes: float
    core_hours: float
    changes: int
    busy_left: int


def cost_curve(outcomes: Sequence[tuple[Run, Outcome]], scene: str, way: str) -> list[Point]:
    """Returns the points of a way that no other of its points beats in both cost and lateness, the cheapest first."""
    sums: dict[tuple[float, ...], list[Outcome]] = {}
    for run, outcome in outcomes:
        if (run.scene, run.way) == (scene, way):
            sums.setdefault(run.setting, []).append(outcome)
    points = [
        Point(
            setting,
            sum(one.late_minutes for one in found),
            sum(one.core_hours for one in found),
            sum(one.changes for one in found),
            sum(one.busy_left for one in found),
        )
        for setting, found in sums.items()
    ]
    points.sort(key=lambda one: (one.core_hours, one.late_minutes))
    return [
        one for index, one in enumerate(points) if all(one.late_minutes < less.late_minutes for less in points[:index])
    ]


@dataclass(frozen=True, slots=True)
class Compared:
    """A point of another way with our points at equal cost and at equal lateness; None: our curve has no such point."""

    theirs: Point
    at_equal_cost: Point | None
    at_equal_lateness: Point | None

    @property
    def is_lateness_halved(self) -> bool:
        """Returns whether our point has at most half the lateness at no more cost."""
        return self.at_equal_cost is not None and 2 * self.at_equal_cost.late_minutes <= self.theirs.late_minutes

    @property
    def saved_share(self) -> float | None:
        """Returns the share of the cost that our point saves at no more lateness. It is negative if ours costs more."""
        one = self.at_equal_lateness
        return None if one is None else 1 - one.core_hours / self.theirs.core_hours


def compare_curves(mine: Sequence[Point], other: Sequence[Point]) -> list[Compared]:
    """Compares our curve with each point of the other curve."""
    return [
        Compared(
            point,
            min((one for one in mine if one.core_hours <= point.core_hours), key=_late_minutes, default=None),
            min((one for one in mine if one.late_minutes <= point.late_minutes), key=_core_hours, default=None),
        )
        for point in other
    ]


def _late_minutes(point: Point) -> float:
    return point.late_minutes


def _core_hours(point: Point) -> float:
    return point.core_hours
