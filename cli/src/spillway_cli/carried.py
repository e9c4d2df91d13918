"""Reads from users' files the objects that Spillway accepts: workloads with their dependencies, and scale policies.

Published files contain many other objects. They are refused by name before anything is sent, so that no file is applied
only in part.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.core.manifests import policy, propagation
from planner.core.manifests.kinds import KINDS
from planner.core.manifests.request import DEPENDENCY_KINDS, read_manifests
from spillway.api import RequestError
from spillway_cli.exits import bad_input_error
from spillway_cli.grouping import RequestGroup
from spillway_cli.manifests import Document, documents_with_namespace, read_documents, text_with_places
from spillway_cli.scale_policies import GROUPS, split_off_policies

SHOWN_OF_A_KIND = 3

PLACED: Mapping[str, str] = {
    **{kind.name: kind.api_version for kind in KINDS.values()},
    **DEPENDENCY_KINDS,
    policy.KIND: policy.API_VERSION,
    propagation.KIND: propagation.API_VERSION,
}
"""The apiVersion of each kind that the planner takes, by kind."""


def read_planner_documents(files: Sequence[str], given: str | None, otherwise: str) -> tuple[Document, ...]:
    """Returns the documents that the planner takes, each with a namespace.

    given: the namespace that a flag names. otherwise: the namespace of documents that name none, without that flag.
    """
    documents = documents_with_namespace(read_documents(files), given, otherwise)
    _refuse_other_kinds(documents, PLACED)
    return documents


def read_documents_and_policies(
    files: Sequence[str], given: str | None, otherwise: str
) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Returns (the documents that the planner takes, the scale policies) of the files."""
    documents = documents_with_namespace(read_documents(files), given, otherwise)
    _refuse_other_kinds(documents, {**PLACED, **GROUPS})
    return split_off_policies(documents)


def check_request_groups(groups: Sequence[RequestGroup]) -> None:
    """Refuses documents that the planner would refuse for their form, before the first workload is applied."""
    for group in groups:
        try:
            read_manifests(tuple(document.text for document in group.documents))
        except RequestError as error:
            first, text = group.documents[0], text_with_places(error.text, group.documents)
            raise error.with_text(f"{first.where}: {group.manifest['kind']} {group.workload_key}: {text}") from None


def _refuse_other_kinds(documents: Sequence[Document], known: Mapping[str, str]) -> None:
    """Refuses documents of other kinds. known: the apiVersion of each kind, or only its group."""
    others: dict[str, list[str]] = {}
    for document in documents:
        value = json.loads(document.text)
        kind, version = value["kind"], value["apiVersion"]
        if kind not in known or _api_group_of(version) != _api_group_of(known[kind]):
            of = f"{kind} of {version}" if kind in known else kind
            others.setdefault(of, []).append(f"{_name_or_placeholder(value)} in {document.where}")
    if not others:
        return
    count = sum(map(len, others.values()))
    lines = [f"  {of}: {_first_places_text(places)}" for of, places in others.items()]
    objects = "1 object is of a kind" if count == 1 else f"{count} objects are of kinds"
    expected = (
        f"expected {', '.join(known)}; create the others in each cluster (kubectl apply), and leave them out here"
    )
    raise bad_input_error("\n".join((f"{objects} that Spillway does not place; nothing was sent:", *lines, expected)))


def _api_group_of(version: str) -> str:
    """Returns the API group: the part of `group/version` before the slash, or a group as it is. For `v1` it is ""."""
    return version.partition("/")[0] if "/" in version or "." in version else "" if version == "v1" else version


def _first_places_text(places: Sequence[str]) -> str:
    more = len(places) - SHOWN_OF_A_KIND
    return ", ".join(places[:SHOWN_OF_A_KIND]) + (f", and {more} more" if more > 0 else "")


def _name_or_placeholder(value: Mapping[str, Any]) -> str:
    return str((value.get("metadata") or {}).get("name") or "without a name")
