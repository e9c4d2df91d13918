"""The namespaces of a request, and the check whether its caller may use them."""

from spillway.api import ExplainRequest, FreezeRequest, PlanBatchRequest, RequestError, UnfreezeRequest
from spillway.api_scaling import DeclarePolicyRequest, ReportRequest
from spillway.kubernetes.manifest_text import read_object
from spillway.rpc.callers import Caller
from spillway.rpc.manifest_fields import manifests_of
from spillway.scopes import read_scope

CLUSTER_WIDE_VERBS = frozenset({"list_clusters"})
"""Verbs without a namespace that callers limited to some namespaces may use too. Verbs that change a cluster or the
fleet are not among them, nor is Export: these concern all namespaces."""
DEFAULT_NAMESPACE = "default"
GO_WITH_THEIR_WORKLOAD = frozenset({"PlacementPolicy", "PropagationPolicy", "ConfigMap", "Service"})
"""Kinds whose manifests, if they name no namespace, belong to the namespace of the workload in the same request."""


def check_namespaces(caller: Caller, verb: str, request: object) -> None:
    """Raises PERMISSION_DENIED when the request touches a namespace that the caller may not use.

    Reads manifests only for callers that are restricted; slow for large YAML (ManifestReading).
    """
    if not caller.is_restricted or verb in CLUSTER_WIDE_VERBS:
        return
    if isinstance(request, PlanBatchRequest):
        for item in request.items:
            for inner, asked in (("apply", item.apply), ("scale", item.scale)):
                if asked is not None:
                    check_namespaces(caller, inner, asked)
        return
    if isinstance(request, DeclarePolicyRequest):
        caller.require_verb_in_namespace(verb, _namespace_of_manifest(request.manifest, "manifest"))
        return
    if isinstance(request, ReportRequest):
        for namespace in {reported.namespace for reports in (request.loads, request.backlogs) for reported in reports}:
            caller.require_verb_in_namespace(verb, namespace or DEFAULT_NAMESPACE)
        return
    if isinstance(request, ExplainRequest) and (request.name or not request.manifests):
        caller.require_verb_in_namespace(verb, request.namespace or DEFAULT_NAMESPACE)
    if getattr(request, "manifests", None) is None:
        caller.require_verb_in_namespace(verb, _namespace_of_request(request))
    for where, manifest in manifests_of(request):
        if namespace := _namespace_of_manifest(manifest, where):
            caller.require_verb_in_namespace(verb, namespace)


def check_batch_items(caller: Caller, request: object) -> None:
    """Raises PERMISSION_DENIED when a batch has an item that the caller may not ask for alone."""
    for item in request.items if isinstance(request, PlanBatchRequest) else ():
        caller.require_verb("apply" if item.apply is not None else "scale")


def _namespace_of_request(request: object) -> str:
    """Returns the namespace of a request; empty if it is about all namespaces, the fleet or a cluster."""
    if isinstance(request, FreezeRequest | UnfreezeRequest):
        return read_scope(request.scope).namespace
    namespace: str = getattr(request, "namespace", "")
    return namespace


def _namespace_of_manifest(manifest: str, where: str) -> str:
    """Returns a manifest's namespace; empty: the same as its workload's. Raises RequestError if it cannot be read."""
    value = read_object(manifest, where)
    goes_along = value["kind"] in GO_WITH_THEIR_WORKLOAD
    metadata = value.get("metadata")
    if metadata is None and goes_along:
        return ""
    namespace = metadata.get("namespace", "") if isinstance(metadata, dict) else None
    if not isinstance(namespace, str):
        expected = "expected an object with a name and a namespace"
        raise RequestError("INVALID_ARGUMENT", f"{where}.metadata: {expected}")
    return namespace or ("" if goes_along else DEFAULT_NAMESPACE)
