"""The fields of requests that hold manifests. All checks of manifests use this module, so that none misses a field."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spillway.api import AdoptRequest, PlanBatchRequest
from spillway.api_scaling import DeclarePolicyRequest


def manifests_of(request: Any) -> list[tuple[str, str]]:
    """Returns (field name, manifest) for each field. For a batch these are the fields of all its items."""
    if isinstance(request, PlanBatchRequest):
        return [pair for item in request.items for pair in manifests_of(item.apply)]
    if isinstance(request, DeclarePolicyRequest):
        return [("manifest", request.manifest)]
    if isinstance(request, AdoptRequest):
        return [("policy", request.policy)] if request.policy else []
    return [(f"manifests[{index}]", text) for index, text in enumerate(getattr(request, "manifests", ()))]


def with_replaced_manifests(request: Any, read: Callable[[str], str]) -> Any:
    """Returns the request with each manifest replaced by the result of `read`."""
    if isinstance(request, PlanBatchRequest):
        items = (
            replace(item, apply=item.apply and with_replaced_manifests(item.apply, read)) for item in request.items
        )
        return PlanBatchRequest(tuple(items))
    if isinstance(request, DeclarePolicyRequest):
        return replace(request, manifest=read(request.manifest))
    if isinstance(request, AdoptRequest):
        return replace(request, policy=read(request.policy))
    return replace(request, manifests=tuple(map(read, request.manifests)))
