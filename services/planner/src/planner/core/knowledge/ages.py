"""How old what is known of a cluster is, as answers and records say it."""

from spillway.feasibility.cluster_view import ClusterView


def age_ms(view: ClusterView, now: float) -> int:
    """Milliseconds; −1 when nothing was ever heard."""
    age = view.age_seconds(now)
    return -1 if age is None else round(age * 1000)
