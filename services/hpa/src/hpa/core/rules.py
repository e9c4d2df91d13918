"""The numbers that decisions depend on, besides policies and inputs."""

from typing import Final

from msgspec import Struct, field

from hpa.core.kubernetes.evaluating import EVENT
from hpa.core.kubernetes.policy import Settings


class Rules(Struct, frozen=True):
    """In milliseconds. sample_age_max: older samples of a pod count as none. pods_age_max: a cluster whose samples
    came, and that says nothing for longer, is lost. load_age_max: older values are unknown. forgotten: a series that
    stopped is gone after that, if others of its metric go on. future_max: what is later than that is not believed.
    missed: an instant that nobody decided on for longer is passed over. positions_behind_max: no decision
    depends on it.
    """

    mode: str = EVENT
    settings: Settings = field(default_factory=Settings)
    sample_age_max_ms: int = 120_000
    pods_age_max_ms: int = 120_000
    load_age_max_ms: int = 120_000
    forgotten_ms: int = 600_000
    future_max_ms: int = 10_000
    missed_ms: int = 300_000
    series_max: int = 2_000
    positions_behind_max: int = 2_000


DEFAULT_RULES: Final = Rules()
