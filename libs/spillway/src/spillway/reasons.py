"""The reasons of refusals, for programs. A RequestError has one besides its code (docs/api.md, Errors)."""

from collections.abc import Iterable
from typing import Final

NO_ROOM: Final = "NO_ROOM"
DEPENDENCY_MISSING: Final = "DEPENDENCY_MISSING"
FITS_NO_NODE: Final = "FITS_NO_NODE"
RECORD_TOO_LARGE: Final = "RECORD_TOO_LARGE"
NAMESPACE_FULL: Final = "NAMESPACE_FULL"
NOT_DECIDED_YET: Final = "NOT_DECIDED_YET"
STANDBY: Final = "STANDBY"
LOG_UNAVAILABLE: Final = "LOG_UNAVAILABLE"
READING_THE_LOG: Final = "READING_THE_LOG"
PODS_NOT_ALLOWED: Final = "PODS_NOT_ALLOWED"
TOO_MANY_CALLS: Final = "TOO_MANY_CALLS"
TOO_MANY_RUN: Final = "TOO_MANY_RUN"
TOO_MANY_WATCHES: Final = "TOO_MANY_WATCHES"
TOO_MANY_WAIT: Final = "TOO_MANY_WAIT"

CLUSTERS_NAMED_MAX: Final = 10
"""The most clusters that a refusal's details name."""


def details_of_clusters(names: Iterable[str]) -> dict[str, str]:
    """Returns the details of a refusal about clusters: their number, and the first of them by name."""
    every = sorted(names)
    return {"clusters": str(len(every)), "first_clusters": ",".join(every[:CLUSTERS_NAMED_MAX])}
