"""Settings of the descheduler; SPILLWAY_DESCHEDULER_* in the environment."""

from dataclasses import dataclass

from descheduler.core.rules import Rules
from spillway.running.standby import StandbySettings
from spillway.settings import setting


@dataclass(frozen=True, slots=True)
class DeschedulerSettings(StandbySettings):
    again_seconds: float = setting(
        600.0, "a node that came back is not recalled for a need again for so long, seconds", least=0
    )
    losses_kept_seconds: float = setting(
        3600.0, "what a controller's pods lost by recalls makes it dearer to evict again for so long, seconds", least=0
    )
    nodes_in_step_max: int = setting(2_000, "nodes of a cluster that are recalled for needs in one step", least=1)
    look_seconds: float = setting(0.2, "what changed is looked at so often, seconds", least=0.001)
    review_seconds: float = setting(
        5.0, "all clusters are looked at so often, for what time alone brings, seconds", least=0
    )
    usage_hours: int = setting(168, "hours of each node's use that are kept for reports", least=1)

    withdrawing_seconds: float = setting(
        5.0, "lending that is withdrawn stays declared so long at least, so that nodes being marked are seen", least=0
    )
    bound_seconds: float = setting(
        5.0, "whom a node came back for is taken to run there for so long, until the log tells of it", least=0
    )

    def rules(self) -> Rules:
        """The numbers that decisions depend on."""
        return Rules(
            again_ms=round(self.again_seconds * 1000),
            losses_kept_ms=round(self.losses_kept_seconds * 1000),
            nodes_in_step_max=self.nodes_in_step_max,
            usage_hours=self.usage_hours,
            withdrawing_ms=round(self.withdrawing_seconds * 1000),
            bound_ms=round(self.bound_seconds * 1000),
        )
