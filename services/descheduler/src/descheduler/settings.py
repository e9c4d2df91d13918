"""Settings of the descheduler; SPILLWAY_DESCHEDULER_* in the environment."""

from dataclasses import dataclass

from descheduler.core.rules import Rules
from spillway.settings import setting


@dataclass(frozen=True, slots=True)
class DeschedulerSettings:
    again_seconds: float = setting(600.0, "a node that came back is not recalled for a need again for so long, seconds")
    nodes_in_step_max: int = setting(2_000, "nodes of a cluster that are recalled for needs in one step")
    look_seconds: float = setting(0.2, "what changed is looked at so often, seconds")
    review_seconds: float = setting(5.0, "all clusters are looked at so often, for what time alone brings, seconds")
    usage_hours: int = setting(168, "hours of each node's use that are kept for reports")
    requests_waiting_max: int = setting(1_000, "requests that wait for their transaction; more are refused")
    requests_in_group_max: int = setting(1_000, "requests decided and written in one transaction")
    request_seconds: float = setting(10.0, "the longest that a request waits for its transaction, seconds")
    rebuild_wait_seconds: float = setting(1.0, "pause before the state is rebuilt after a failed write, seconds")

    def rules(self) -> Rules:
        """The numbers that decisions depend on."""
        return Rules(
            again_ms=round(self.again_seconds * 1000),
            nodes_in_step_max=self.nodes_in_step_max,
            usage_hours=self.usage_hours,
        )
