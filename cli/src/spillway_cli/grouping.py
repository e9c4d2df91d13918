"""Groups a set of files by workload: each ConfigMap, Service and PlacementPolicy goes with its workloads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.core.manifests import propagation
from spillway_cli.exits import bad_input_error
from spillway_cli.manifests import Document

POLICIES = frozenset(("PlacementPolicy", propagation.KIND))
CONFIG_MAP_FIELDS = frozenset(("configMap", "configMapRef", "configMapKeyRef"))
BESIDE = frozenset(("ConfigMap", "Service", "Secret", *POLICIES))


@dataclass(slots=True)
class RequestGroup:
    """The request for one workload: its manifest first, then the objects that go with it."""

    namespace: str
    name: str
    manifest: Mapping[str, Any]
    documents: list[Document] = field(default_factory=list)

    @property
    def workload_key(self) -> str:
        return f"{self.namespace}/{self.name}"


def group_by_workload(documents: Sequence[Document]) -> list[RequestGroup]:
    """Returns the workloads of the documents, in their order. Every document must name its namespace.

    A ConfigMap goes with the workload whose pods name it. A Service goes with the workload whose pods it selects, or
    which names it. A single policy goes with all workloads. Of several policies, a PlacementPolicy goes with the
    workload of its name, and a PropagationPolicy with the workloads that it selects. Raises CommandFailed if a
    document fits none of these.
    """
    values = [(document, json.loads(document.text)) for document in documents]
    groups = [
        RequestGroup(*_namespace_and_name_of(value), value, [document])
        for document, value in values
        if value["kind"] not in BESIDE
    ]
    if not groups:
        raise bad_input_error(f"{documents[0].where}: no workload: expected a Deployment, StatefulSet or Job")
    _refuse_duplicate_workloads(groups)
    policies = [(document, value) for document, value in values if value["kind"] in POLICIES]
    for document, value in values:
        if value["kind"] in BESIDE - POLICIES:
            _only_group_for(document, value, groups).documents.append(document)
    for document, value in policies:
        for group in groups if len(policies) == 1 else _groups_governed_by(document, value, groups):
            group.documents.append(document)
    return groups


def _refuse_duplicate_workloads(groups: Sequence[RequestGroup]) -> None:
    seen: dict[str, RequestGroup] = {}
    for group in groups:
        first = seen.setdefault(group.workload_key, group)
        if first is not group:
            where = f"{first.documents[0].where} and {group.documents[0].where}"
            raise bad_input_error(f"{where}: both declare workload {group.workload_key}: expected each workload once")


def _namespace_and_name_of(value: Mapping[str, Any]) -> tuple[str, str]:
    metadata = value.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _only_group_for(document: Document, value: Mapping[str, Any], groups: Sequence[RequestGroup]) -> RequestGroup:
    if len(groups) == 1:
        return groups[0]
    owners = [group for group in groups if _is_part_of_group(value, group)]
    if len(owners) == 1:
        return owners[0]
    named = " and ".join(group.workload_key for group in owners) or "none of the workloads"
    name = _namespace_and_name_of(value)[1]
    text = f"{document.where}: {value['kind']} {name} goes with {named}: expected exactly one workload"
    raise bad_input_error(f"{text}; apply it alone with its workload")


def _groups_governed_by(
    document: Document, value: Mapping[str, Any], groups: Sequence[RequestGroup]
) -> list[RequestGroup]:
    """Returns the workloads that one of several policies is for."""
    if value["kind"] != propagation.KIND:
        return [_group_of_same_name(document, value, groups)]
    owners = [group for group in groups if propagation.is_workload_selected(value, group.manifest)]
    if not owners:
        text = "expected spec.resourceSelectors that select one of the workloads"
        raise bad_input_error(
            f"{document.where}: {value['kind']} {_namespace_and_name_of(value)[1] or 'without a name'}: {text}"
        )
    return owners


def _group_of_same_name(document: Document, value: Mapping[str, Any], groups: Sequence[RequestGroup]) -> RequestGroup:
    namespace, name = _namespace_and_name_of(value)
    owners = [group for group in groups if group.name == name and namespace in ("", group.namespace)]
    if len(owners) != 1:
        raise bad_input_error(
            f"{document.where}: {value['kind']} {name or 'without a name'}: expected the name of one of the workloads, "
            "or one policy for all of them"
        )
    return owners[0]


def _is_part_of_group(value: Mapping[str, Any], group: RequestGroup) -> bool:
    namespace, name = _namespace_and_name_of(value)
    if namespace != group.namespace:
        return False
    spec = _object_at(group.manifest, "spec")
    if value["kind"] != "Service":
        return name in set(_config_map_names(spec.get("template")))
    labels = _object_at(spec, "template", "metadata", "labels")
    selector = _object_at(value, "spec", "selector")
    selects = bool(selector) and all(label in labels and labels[label] == wanted for label, wanted in selector.items())
    return selects or name == spec.get("serviceName")


def _object_at(value: Any, *path: str) -> Mapping[str, Any]:
    """Returns the object at a path. If it is something else, returns an empty object; the planner then reports it."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _config_map_names(value: Any) -> Iterator[str]:
    """Yields the names of the ConfigMaps in a pod template."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in CONFIG_MAP_FIELDS and isinstance(inner, dict):
                yield str(inner.get("name", ""))
            yield from _config_map_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _config_map_names(inner)
