"""Computes the age of what is known of a cluster."""

from spillway.feasibility.cluster_view import ClusterView


def age_ms(view: ClusterView, now: float) -> int:
    """Returns the age in milliseconds; −1 when nothing was ever heard of the cluster."""
    age = view.age_seconds(now)
    return -1 if age is None else round(age * 1000)
