"""Computes how old the known state of a cluster is."""

from spillway.feasibility.cluster_view import ClusterView


def age_ms(view: ClusterView, now: float) -> int:
    """Returns the age of the cluster's known state in milliseconds; −1 if no message of the cluster was ever read."""
    age = view.age_seconds(now)
    return -1 if age is None else round(age * 1000)
