"""Decides the size of a workload with a policy of any kind. Pure."""

import traceback
from typing import Final

from msgspec.structs import replace

from hpa.core.kubernetes.deciding import (
    FAILED_GET_SCALE,
    GOT_SCALE,
    SCALING_ACTIVE,
    AutoscalerCondition,
    with_conditions,
)
from hpa.core.kubernetes.evaluating import CONTROLLER, SYNC_PERIOD_MS
from hpa.core.kubernetes.policy import Autoscaler
from hpa.core.manifests.scaled_object import ScaledObject
from hpa.core.sizing.composing import (
    NextEvaluation,
    SizingCase,
    SizingResult,
    decide_by_autoscaler,
    reason_not_scalable,
    result_not_scalable,
)
from hpa.core.sizing.composing_own import decide_by_scale_policy
from hpa.core.sizing.composing_scaled import decide_by_scaled_object

EVALUATION_FAILED: Final = "EvaluationFailed"
FAILURES: Final = (EVALUATION_FAILED, FAILED_GET_SCALE)
FAILED_AGAIN_MS: Final = 60_000
"""The time after which a failed decision is tried again, if no record comes before."""
WORDS_MAX: Final = 300
TRACE_MAX: Final = 8_000


def decide_size(case: SizingCase) -> SizingResult:
    """Returns the decision at case.now_ms, which must be later than every earlier instant of this workload.

    In CONTROLLER mode the next instant is always the controller's, even if a window or rate ends earlier. An unexpected
    error affects only its workload: the size stays the same, and a condition gives the error.
    """
    try:
        found = _decide_by_kind(_without_failure(case))
    except Exception as error:
        found = _failed_result(case, error)
    if case.rules.mode == CONTROLLER:
        return replace(found, due=NextEvaluation(case.now_ms + SYNC_PERIOD_MS, "the controller looks again"))
    return found


def _decide_by_kind(case: SizingCase) -> SizingResult:
    why = reason_not_scalable(case)
    if why:
        return result_not_scalable(case, why)
    wanted = case.policy.wanted
    if isinstance(wanted, Autoscaler):
        return decide_by_autoscaler(case, wanted)
    if isinstance(wanted, ScaledObject):
        return decide_by_scaled_object(case, wanted)
    return decide_by_scale_policy(case, wanted)


def _failed_result(case: SizingCase, error: Exception) -> SizingResult:
    message = f"an error in hpa itself: {error_text(error)}: the size stays until a decision succeeds"
    before = case.before.scaling
    conditions = with_conditions(
        before.conditions, AutoscalerCondition(SCALING_ACTIVE, False, EVALUATION_FAILED, message)
    )
    remembered = replace(
        case.before, scaling=replace(before, conditions=conditions, asking=False), at_ms=case.now_ms, active=False
    )
    due = NextEvaluation(case.now_ms + FAILED_AGAIN_MS, "the decision that failed is tried again")
    return SizingResult(case.current, None, remembered, due, failed=error_traceback(error))


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:WORDS_MAX]


def error_traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))[-TRACE_MAX:]


def _without_failure(case: SizingCase) -> SizingCase:
    """Returns the case without conditions that no longer apply: of a failure, or of a workload that was missing."""
    before = case.before.scaling
    for one in before.conditions:
        if one.reason in FAILURES:
            break
    else:
        return case
    conditions = tuple(
        GOT_SCALE if one.reason == FAILED_GET_SCALE else one
        for one in before.conditions
        if one.reason != EVALUATION_FAILED
    )
    return replace(case, before=replace(case.before, scaling=replace(before, conditions=conditions)))
