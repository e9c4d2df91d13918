"""Parses the manifests of a request once, so that no later step of the request parses them again."""

from dataclasses import replace
from typing import Any

from planner.core.manifests.request import read_texts
from spillway.api import ApplyRequest, CapacityRequest, ExplainRequest, PlanBatchRequest


def prepare_request(request: Any, batch_items_max: int) -> Any:
    """Returns the request with its manifests parsed.

    Returns it unchanged when it has no manifests, when they belong to a declared workload, or when a batch has too many
    items and will be refused.
    """
    if isinstance(request, PlanBatchRequest):
        if len(request.items) > batch_items_max:
            return request
        items = (
            replace(item, apply=item.apply and prepare_request(item.apply, batch_items_max)) for item in request.items
        )
        return PlanBatchRequest(tuple(items))
    reads = isinstance(request, ApplyRequest | CapacityRequest) or (
        isinstance(request, ExplainRequest) and bool(request.manifests) and not request.name
    )
    return replace(request, manifests=read_texts(request.manifests)) if reads else request
