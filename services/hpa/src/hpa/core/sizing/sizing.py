"""A decision on one workload, whichever policy it has. Pure."""

from hpa.core.kubernetes.policy import Autoscaler
from hpa.core.manifests.scaled_object import ScaledObject
from hpa.core.sizing.composing import Case, Sized, compose_autoscaler, not_there, why_not_there
from hpa.core.sizing.composing_own import compose_own
from hpa.core.sizing.composing_scaled import compose_scaled


def size(case: Case) -> Sized:
    """What follows at case.now_ms, which is after every instant that was decided for before."""
    why = why_not_there(case)
    if why:
        return not_there(case, why)
    wanted = case.policy.wanted
    if isinstance(wanted, Autoscaler):
        return compose_autoscaler(case, wanted)
    if isinstance(wanted, ScaledObject):
        return compose_scaled(case, wanted)
    return compose_own(case, wanted)
