"""Collects the targets of all modules."""

from spillway_fuzz import answers, calls, clusters, frames, manifests, records, states
from spillway_fuzz.target import Target


def targets() -> list[Target]:
    parts = (records, states, manifests, clusters, answers, calls, frames)
    return [target for part in parts for target in part.targets()]
