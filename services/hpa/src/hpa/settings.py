"""Settings of hpa, from SPILLWAY_HPA_* in the environment, and its constants."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from hpa.core.kubernetes.policy import Settings
from hpa.core.rules import Rules
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting

Seconds = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class HpaSettings(StandbySettings):
    mode: Literal["event", "controller"] = setting(
        "event", "event: decides at each change and when due; controller: 15 s apart, as Kubernetes' controller"
    )
    tolerance: Seconds = setting(0.1, "how far use may be from its target, as a share, before the size changes")
    downscale_stabilization_seconds: Seconds = setting(300.0, "window against scaling in, where a policy has none")
    cpu_initialization_seconds: Seconds = setting(300.0, "a starting pod's cpu is not believed for so long, seconds")
    initial_readiness_delay_seconds: Seconds = setting(30.0, "so soon after a start, a pod that was never ready is new")
    sample_age_max_seconds: float = constant(
        120.0,
        "older samples of a pod count as none, seconds",
        "several of metrics-server's intervals: what is older says nothing of now",
    )
    pods_age_max_seconds: float = constant(
        120.0,
        "a cluster whose samples end counts as lost after this, seconds",
        "several of snapshot's intervals: a cluster that is silent for longer is not merely late",
    )
    load_age_max_seconds: float = constant(
        120.0,
        "older values of metrics and backlogs are unknown, seconds",
        "twice the longest interval at which anybody is asked",
    )
    forgotten_seconds: float = constant(
        600.0,
        "a series that stopped is gone after this, where others go on, seconds",
        "several times the longest interval, so that none is forgotten that comes again",
    )
    future_max_seconds: float = constant(
        10.0,
        "a record that is later than the clock by more is dropped, seconds",
        "clocks of hosts differ by less, wherever time is kept at all",
    )
    missed_seconds: float = constant(
        300.0,
        "what was due longer ago, as nobody decided, is not done late, seconds",
        "what was due before that is decided on anew, by what is true now",
    )
    series_max: int = constant(
        2_000,
        "series of one workload that are remembered; further ones are dropped",
        "bounds one decision's time and one record; metrics with more are not made for scaling",
    )
    idle_seconds: float = constant(
        1.0,
        "the longest that the clock is not looked at, seconds",
        "a look at the clock costs nothing",
    )
    records_waiting_max: int = constant(
        20_000,
        "input records that wait for a decision before no more are read",
        "bounds memory; what is beyond waits in the log",
    )
    records_in_group_max: int = constant(
        1_000,
        "input records whose decisions are written in one transaction",
        "bounds one step; larger transactions are no faster",
    )
    positions_behind_max: int = constant(
        2_000,
        "records of a partition of load or backlog that change nothing, before it is written how far it was read",
        "bounds what a start reads again, at one small record for so many",
    )
    dues_in_group_max: int = constant(
        100,
        "decisions that are due, or left from before the turn, made between two looks at what is new",
        "bounds how long what is new waits; what is beyond is decided next",
    )

    step_seconds: float = constant(
        0.25,
        "after so long no more of what was heard, and after as long no more of what is due, is decided on before that "
        "is written, and others are answered",
        "bounds how long others wait for an answer; what is left is done in the next step",
    )

    def rules(self) -> Rules:
        """Returns the numbers on which decisions depend."""
        return Rules(
            mode=self.mode,
            settings=Settings(
                tolerance=self.tolerance,
                downscale_stabilization_ms=_milliseconds(self.downscale_stabilization_seconds),
                cpu_initialization_ms=_milliseconds(self.cpu_initialization_seconds),
                initial_readiness_delay_ms=_milliseconds(self.initial_readiness_delay_seconds),
            ),
            sample_age_max_ms=_milliseconds(self.sample_age_max_seconds),
            pods_age_max_ms=_milliseconds(self.pods_age_max_seconds),
            load_age_max_ms=_milliseconds(self.load_age_max_seconds),
            forgotten_ms=_milliseconds(self.forgotten_seconds),
            future_max_ms=_milliseconds(self.future_max_seconds),
            missed_ms=_milliseconds(self.missed_seconds),
            series_max=self.series_max,
            positions_behind_max=self.positions_behind_max,
        )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
