"""The part of events.py that answers to commands contain, so that a command imports no other events."""

from dataclasses import dataclass
from typing import Final

from spillway.model_basics import ClusterInput, Generation

PHASE_ACTIVE: Final = "Active"
PHASE_CORDONED: Final = "Cordoned"
PHASE_DRAINING: Final = "Draining"
PHASE_LEAVING: Final = "Leaving"
PHASE_LOST: Final = "Lost"

STATE_PRESENT: Final = "Present"
STATE_ABSENT: Final = "Absent"
STATE_NOT_OWNED: Final = "NotOwned"
STATE_DEPENDENCY_MISSING: Final = "DependencyMissing"
STATE_REFUSED: Final = "Refused"
STATE_CONTESTED: Final = "ReplicasContested"
STATE_DISOWNED: Final = "Disowned"
STATE_ENDED: Final = "Ended"
"""The Job ended and its object was deleted afterwards. It is not run again."""
STATE_ORPHANED: Final = "Orphaned"
"""The object has our label, but no placement lists it. It is reported to people and never acted on."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The state of a Job that makes no pods now. condition: the condition's type, Complete, Failed or Suspended."""

    condition: str
    succeeded: int


@dataclass(frozen=True, slots=True)
class StatusDetails:
    """The message of a status as fields for programs. spillway.status_details makes the text from them.

    hold: the reason why work on the object waits; empty without a hold.
    changed_field: the first field of its spec that somebody changed in the cluster.
    job: set for a Job that is over or suspended.
    """

    hold: str = ""
    changed_field: str = ""
    job: JobEnd | None = None


@dataclass(frozen=True, slots=True)
class DecisionRecorded:
    """The inputs on which a placement was decided.

    positions: (topic/cluster, offset) of the last change of each cluster's capacity that was read before the decision.
    division: JSON, compressed (compressed_text.py): the situation that was divided, every room that was asked for, and
    the result. The planner's replaying.py divides it again. Empty when nothing was divided.
    scaled_by: for the cause Autoscale, kind/name of the policy that decided.
    """

    namespace: str
    name: str
    generation: Generation
    at_ms: int
    cause: str
    replicas: int
    unplaced: int
    inputs: tuple[ClusterInput, ...]
    positions: tuple[tuple[str, int], ...]
    settings: str
    code_version: str
    division: bytes = b""
    scaled_by: str = ""
