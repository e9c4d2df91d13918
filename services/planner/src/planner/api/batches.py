"""Serves PlanBatch: reads the request in each item, and makes one reply of the items' answers, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.api.answer_call import Decide
from planner.core.knowledge.state import PlannerState
from planner.core.requests import decisions
from planner.core.requests.queueing import declaration_bytes_written
from spillway.api import (
    ApplyRequest,
    BatchAnswer,
    PlacementReply,
    PlanBatchReply,
    PlanBatchRequest,
    RequestError,
    ScaleRequest,
    invalid_argument_error,
)
from spillway.rpc.callers import Caller


@dataclass(frozen=True, slots=True)
class BatchedRequest:
    """One item of a batch: the verb of its request, the request, and the function that decides it."""

    verb: str
    asked: ApplyRequest | ScaleRequest
    decide: Decide[PlacementReply]


def read_batch(request: PlanBatchRequest, items_max: int) -> list[BatchedRequest]:
    """Returns the requests of the items.

    Raises RequestError (INVALID_ARGUMENT) for too many items, for none, and for an item that is not exactly one
    request.
    """
    if not 1 <= len(request.items) <= items_max:
        raise invalid_argument_error("items", len(request.items), f"1 to {items_max}")
    found = []
    for index, item in enumerate(request.items):
        if (item.apply is None) == (item.scale is None):
            raise invalid_argument_error(f"items[{index}]", "both" if item.apply else "none", "an Apply or a Scale")
        found.append(_batched_apply(item.apply) if item.apply is not None else _batched_scale(item.scale))
    return found


def checked_sizes(state: PlannerState, asked: Sequence[BatchedRequest], bytes_max: int) -> list[int]:
    """Returns the bytes of declarations that each item writes.

    Raises RequestError (INVALID_ARGUMENT) if all together write more than bytes_max.
    """
    sizes = [declaration_bytes_written(state, item.asked) for item in asked]
    if (written := sum(sizes)) > bytes_max:
        expected = f"at most {bytes_max} bytes of declarations that the items write: send several batches"
        raise invalid_argument_error("items", written, expected)
    return sizes


def _batched_apply(request: ApplyRequest) -> BatchedRequest:
    return BatchedRequest(
        "apply", request, lambda state, moment: decisions.decide_apply(state, request, moment).events_and_reply
    )


def _batched_scale(request: ScaleRequest | None) -> BatchedRequest:
    assert request is not None
    return BatchedRequest(
        "scale", request, lambda state, moment: decisions.decide_scale(state, request, moment).events_and_reply
    )


def batch_reply(found: Sequence[PlacementReply | BaseException], caller: Caller) -> PlanBatchReply:
    """Returns the reply with an answer for each item, in the order of the items; refusals say what the caller may see.

    If one answer is UNAVAILABLE, raises that error for the whole call: the caller then repeats all items with their
    idempotency keys.
    """
    answers = []
    for entry in found:
        if isinstance(entry, PlacementReply):
            answers.append(BatchAnswer("OK", "", entry))
        elif isinstance(entry, RequestError) and entry.code != "UNAVAILABLE":
            answers.append(BatchAnswer(entry.code, caller.text_of_refusal(entry), None, entry.reason))
        else:
            raise entry
    return PlanBatchReply(tuple(answers))
