"""Settings of the descheduler, from SPILLWAY_DESCHEDULER_* in the environment, and its constants."""

from dataclasses import dataclass

from descheduler.core.rules import LendingRules
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class DeschedulerSettings(StandbySettings):
    again_seconds: float = setting(
        600.0, "seconds after a node came back in which it is not recalled again for a need", least=0
    )
    losses_kept_seconds: float = constant(
        3600.0,
        "seconds that the descheduler remembers which work a controller's pods lost by recalls; it evicts such "
        "pods later",
        "within an hour the pods of a controller have made good what a recall cost them",
    )
    nodes_in_step_max: int = constant(
        2_000,
        "largest number of nodes of one cluster that one step recalls for needs",
        "this bounds one step; the next step recalls further nodes",
    )
    look_seconds: float = constant(
        0.2,
        "seconds between two looks at the clusters and loans that changed",
        "the time is short beside a recall, and only changed objects are examined",
    )
    review_seconds: float = constant(
        5.0,
        "seconds between two looks at all clusters, which notice what the passing of time alone changes",
        "all that time alone changes (grace, cooldown) takes longer, and a look at all clusters is cheap",
    )
    usage_hours: int = constant(
        168,
        "hours of each node's use that are kept for reports",
        "reports are about one week, and the memory grows with the hours",
    )

    withdrawing_seconds: float = constant(
        5.0,
        "shortest time in seconds that withdrawn lending stays declared, so that nodes being marked are seen",
        "the mark of a node is seen sooner, and no setting changes that",
    )
    bound_seconds: float = constant(
        5.0,
        "seconds that a workload for which a node came back is taken to run there, until the log tells of its pods",
        "the log tells of a binding in less time",
    )

    def rules(self) -> LendingRules:
        """Returns the settings on which decisions depend, in the units of LendingRules."""
        return LendingRules(
            again_ms=round(self.again_seconds * 1000),
            losses_kept_ms=round(self.losses_kept_seconds * 1000),
            nodes_in_step_max=self.nodes_in_step_max,
            usage_hours=self.usage_hours,
            withdrawing_ms=round(self.withdrawing_seconds * 1000),
            bound_ms=round(self.bound_seconds * 1000),
        )
