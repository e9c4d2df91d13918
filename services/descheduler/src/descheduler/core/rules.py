"""The numbers that decisions depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """again_ms: a node is not recalled for a need within so long after it came back.

    nodes_in_step_max: of a cluster, recalled for needs in one step. usage_hours: of each node, kept for reports.
    """

    again_ms: int = 600_000
    nodes_in_step_max: int = 2_000
    usage_hours: int = 168
