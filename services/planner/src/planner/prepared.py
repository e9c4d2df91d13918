"""Requests whose manifests are read once, for all that is asked about them until they are answered."""

from dataclasses import replace
from typing import Any

from planner.core.manifests.request import read_texts
from spillway.api import ApplyRequest, CapacityRequest, ExplainRequest, PlanBatchRequest


def prepared(request: Any, batch_items_max: int) -> Any:
    """The request with what its manifests say. As it is where it has none, where what is declared already goes with
    them, and where it is a batch of too many, which is refused.
    """
    if isinstance(request, PlanBatchRequest):
        if len(request.items) > batch_items_max:
            return request
        items = (replace(item, apply=item.apply and prepared(item.apply, batch_items_max)) for item in request.items)
        return PlanBatchRequest(tuple(items))
    reads = isinstance(request, ApplyRequest | CapacityRequest) or (
        isinstance(request, ExplainRequest) and bool(request.manifests) and not request.name
    )
    return replace(request, manifests=read_texts(request.manifests)) if reads else request
