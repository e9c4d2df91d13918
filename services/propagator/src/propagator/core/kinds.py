"""Lists the kinds of workloads that can be placed, the API that serves each, and its field for the number of pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spillway.kubernetes.objects import DEPLOYMENTS, JOBS, STATEFULSETS, Kind

DEPLOYMENT: Final = "Deployment"
STATEFULSET: Final = "StatefulSet"
JOB: Final = "Job"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of workload. replicas: the field of its spec that gets a part's replicas."""

    served: Kind
    replicas: str

    @property
    def api_version(self) -> str:
        return f"{self.served.group}/{self.served.version}"


KINDS: Final[Mapping[str, ObjectKind]] = {
    DEPLOYMENT: ObjectKind(DEPLOYMENTS, "replicas"),
    STATEFULSET: ObjectKind(STATEFULSETS, "replicas"),
    JOB: ObjectKind(JOBS, "parallelism"),
}
KIND_NAMES: Final = ", ".join(KINDS)


def kind_of_object(declared: str, known: str, newest: str) -> str:
    """Returns the kind of a part's object: the declared one, else the known one, else that of the newest object.

    An empty text means that there is none, and a declared kind that this version does not know counts for nothing.
    """
    return declared if declared in KINDS else known or newest or DEPLOYMENT


def refused_write_text(kind: str, words: str) -> str:
    """Returns the text for a refused write: the cluster's message, with advice if the object forbids this change."""
    if kind == JOB and "immutable" in words:
        return f"a Job's template cannot be changed, delete the Job first: {words}"
    if kind == STATEFULSET and "updates to statefulset spec" in words:
        return f"this field of a StatefulSet cannot be changed, delete it first: {words}"
    return words
