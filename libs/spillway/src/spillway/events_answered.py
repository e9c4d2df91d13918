"""The part of events.py that answers to commands bear, too, so that a command imports no event beside it."""

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
"""A Job that ended, and whose object is gone since: it is not run again."""
STATE_ORPHANED: Final = "Orphaned"
"""Our label, but no placement lists it: said for people, never acted on."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The state of a Job that makes no pods. condition: Complete, Failed or Suspended, as the condition's type."""

    condition: str
    succeeded: int


@dataclass(frozen=True, slots=True)
class StatusDetails:
    """What the message of a status says, as fields for programs. spillway.status_details makes the text.

    hold: why work on the object is held back; empty without a hold. changed_field: the first field of its spec
    that somebody changed in the cluster. job: of a Job that is over or suspended.
    """

    hold: str = ""
    changed_field: str = ""
    job: JobEnd | None = None


@dataclass(frozen=True, slots=True)
class DecisionRecorded:
    """What a placement was decided on.

    positions: (topic/cluster, offset), the last change of each cluster's capacity that was read when deciding.
    division: JSON, compressed (packed.py): the situation that was divided, every room that was asked for in it, and
    what came out; the planner's replaying.py divides it again. Empty when nothing was divided. scaled_by: of the cause
    Autoscale, kind/name of the policy that decided.
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
