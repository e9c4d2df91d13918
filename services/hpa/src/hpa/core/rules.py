"""Defines the numbers on which decisions depend, in addition to policies and inputs."""

from typing import Final

from msgspec import Struct, field

from hpa.core.kubernetes.evaluating import EVENT
from hpa.core.kubernetes.policy import ControllerSettings


class HpaRules(Struct, frozen=True):
    """The limits of decisions. Times are milliseconds.

    sample_age_max_ms: an older sample of a pod is ignored.
    pods_age_max_ms: a cluster that sent samples, and then no record for longer, is lost.
    load_age_max_ms: an older value of a metric is unknown.
    forgotten_ms: a stopped series counts as gone after this time, if other series of its metric go on.
    future_max_ms: a time further in the future is not believed.
    missed_ms: if a decision is later than this after its due instant, it is made for the present time instead.
    series_max: the most series that are kept of one workload.
    unseen_bytes_max: the most bytes of records not decided on yet that a standby keeps. Above it, values are dropped.
    positions_behind_max: a state is written when more records than this were read since; no decision depends on it.
    """

    mode: str = EVENT
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    sample_age_max_ms: int = 120_000
    pods_age_max_ms: int = 120_000
    load_age_max_ms: int = 120_000
    forgotten_ms: int = 600_000
    future_max_ms: int = 10_000
    missed_ms: int = 300_000
    series_max: int = 2_000
    positions_behind_max: int = 2_000
    unseen_bytes_max: int = 64 * 1024 * 1024


DEFAULT_RULES: Final = HpaRules()
