"""Settings of the descheduler, from SPILLWAY_DESCHEDULER_* in the environment, and its constants."""

from dataclasses import dataclass

from descheduler.core.rules import Rules
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class DeschedulerSettings(StandbySettings):
    again_seconds: float = setting(
        600.0, "a node that came back is not recalled for a need again for so long, seconds", least=0
    )
    losses_kept_seconds: float = constant(
        3600.0,
        "what a controller's pods lost by recalls makes it dearer to evict again for so long, seconds",
        "in an hour a controller's pods have made good what a recall cost them",
    )
    nodes_in_step_max: int = constant(
        2_000,
        "nodes of a cluster that are recalled for needs in one step",
        "bounds one step; what is beyond is recalled in the next one",
    )
    look_seconds: float = constant(
        0.2,
        "what changed is looked at so often, seconds",
        "short beside a recall, and only what changed is looked at",
    )
    review_seconds: float = constant(
        5.0,
        "all clusters are looked at so often, for what time alone brings, seconds",
        "short beside all that time alone brings (grace, cooldown), and a look at all is cheap",
    )
    usage_hours: int = constant(
        168,
        "hours of each node's use that are kept for reports",
        "a week is what reports are about, and memory grows with it",
    )

    withdrawing_seconds: float = constant(
        5.0,
        "lending that is withdrawn stays declared so long at least, so that nodes being marked are seen",
        "longer than the mark of a node takes to be seen, which settings do not alter",
    )
    bound_seconds: float = constant(
        5.0,
        "whom a node came back for is taken to run there for so long, until the log tells of it",
        "longer than word of a binding takes; later the log tells of it",
    )

    def rules(self) -> Rules:
        """Returns the numbers on which decisions depend."""
        return Rules(
            again_ms=round(self.again_seconds * 1000),
            losses_kept_ms=round(self.losses_kept_seconds * 1000),
            nodes_in_step_max=self.nodes_in_step_max,
            usage_hours=self.usage_hours,
            withdrawing_ms=round(self.withdrawing_seconds * 1000),
            bound_ms=round(self.bound_seconds * 1000),
        )
