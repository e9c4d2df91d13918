"""Settings of hpa, from SPILLWAY_HPA_* in the environment, and its constants."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from hpa.core.heard.waiting_records import WaitingBounds
from hpa.core.kubernetes.policy import ControllerSettings
from hpa.core.rules import HpaRules
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting

Seconds = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class HpaSettings(StandbySettings):
    mode: Literal["event", "controller"] = setting(
        "event",
        "event: hpa decides at each change and when a decision is due; controller: every 15 s, as Kubernetes' "
        "controller",
    )
    tolerance: Seconds = setting(0.1, "share by which a metric may differ from its target before the size changes")
    downscale_stabilization_seconds: Seconds = setting(
        300.0, "seconds of the stabilization window before a scale-in, for policies that name no window"
    )
    cpu_initialization_seconds: Seconds = setting(
        300.0, "seconds after a pod's start in which its CPU use may be ignored"
    )
    initial_readiness_delay_seconds: Seconds = setting(
        30.0, "seconds after a pod's start in which a pod that was never ready counts as new"
    )
    sample_age_max_seconds: float = constant(
        120.0,
        "greatest age in seconds of a pod's sample; older samples are ignored",
        "this is several intervals of metrics-server, and an older sample does not describe the present",
    )
    pods_age_max_seconds: float = constant(
        120.0,
        "seconds without samples from a cluster after which hpa counts the cluster as lost",
        "this is several intervals of snapshot; a cluster that is silent for longer is not merely late",
    )
    load_age_max_seconds: float = constant(
        120.0,
        "greatest age in seconds of a value of a metric or backlog; older values are unknown",
        "it is twice the longest interval at which a source is asked",
    )
    forgotten_seconds: float = constant(
        600.0,
        "seconds after which a series that stopped is forgotten, if other series of its metric continue",
        "this is several times the longest interval, so that no series is forgotten that continues later",
    )
    future_max_seconds: float = constant(
        10.0,
        "seconds by which a record may be ahead of the clock; hpa drops records that are further ahead",
        "the clocks of hosts differ by less where their time is synchronized",
    )
    missed_seconds: float = constant(
        300.0,
        "seconds after which hpa no longer makes up for a decision that was due while no instance decided",
        "hpa decides such a workload anew, by the present values",
    )
    series_max: int = constant(
        2_000,
        "largest number of series that are remembered for one workload; further series are dropped",
        "this bounds the time of one decision and the size of one record; metrics with more series are not made "
        "for scaling",
    )
    idle_seconds: float = constant(
        1.0,
        "longest time in seconds between two looks at the clock",
        "a look at the clock costs nothing",
    )
    records_waiting_max: int = constant(
        20_000,
        "number of input records that may wait for a decision; beyond it the oldest values of the namespace that has "
        "most are dropped, and if pods and declarations alone are so many, hpa stops reading more",
        "this bounds memory; values are reported again, and further pods and declarations wait in the log",
    )
    records_waiting_bytes_max: int = constant(
        64 * 1024 * 1024,
        "number of bytes of input records that may wait for a decision; beyond it as beyond records_waiting_max",
        "this bounds memory, as a backlog may have thousands of partitions",
    )
    records_for_each_free: float = constant(
        1.0,
        "number of records, and of bytes, of one namespace that may wait for each free one; 1: half of all; beyond it "
        "the namespace's oldest values are dropped",
        "this leaves half of the free places to the next namespace, as for callers' requests",
    )
    unseen_bytes_max: int = constant(
        64 * 1024 * 1024,
        "number of bytes of records that a standby keeps because no state shows a decision on them; beyond it "
        "the oldest values of the workload that has most are dropped",
        "this bounds memory; the active instance shows at least each 2,000 records how far it came",
    )
    records_in_group_max: int = constant(
        1_000,
        "largest number of input records whose decisions one transaction writes",
        "this bounds one step, and larger transactions are no faster",
    )
    positions_behind_max: int = constant(
        2_000,
        "number of records without effect in a partition of loads or backlogs after which hpa writes its position "
        "there",
        "this bounds what a start reads again, and costs one small record each time",
    )
    dues_in_group_max: int = constant(
        100,
        "number of decisions that are due, or left from before the turn, between two looks for new records",
        "this bounds how long new records wait; further decisions follow next",
    )

    step_seconds: float = constant(
        0.25,
        "seconds that one step spends on decisions about new records, and as many on decisions that are due, "
        "before it writes them and answers requests",
        "this bounds how long requests wait for an answer; the next step does the rest",
    )

    def waiting_bounds(self) -> WaitingBounds:
        """Returns the bounds of the input records that wait for a decision."""
        return WaitingBounds(self.records_waiting_max, self.records_waiting_bytes_max, self.records_for_each_free)

    def rules(self) -> HpaRules:
        """Returns the settings on which decisions depend, in the units of HpaRules."""
        return HpaRules(
            mode=self.mode,
            settings=ControllerSettings(
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
            unseen_bytes_max=self.unseen_bytes_max,
        )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
