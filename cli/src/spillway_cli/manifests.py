"""Reads manifests: splits files into objects, and writes the Deployment for the short form of apply."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spillway.yaml_text import BoundedLoader
from spillway_cli.exits import bad_input_error

BYTES_MAX = 16 * 2**20
"""The most bytes of one file, and of one object as JSON. This is gRPC's limit for a whole message.

The planner's own limit is lower. The planner's error names it.
"""


@dataclass(frozen=True, slots=True)
class Document:
    """One object as JSON, and its place in the files, for people."""

    text: str
    where: str


class _Loader(BoundedLoader):
    """A YAML loader that refuses a repeated key, as Kubernetes does."""


def _construct_unique_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        # A merge key (<<) may occur several times: each one adds another mapping.
        if key.value in seen and isinstance(key, yaml.ScalarNode) and key.value != "<<":
            raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} occurs twice", key.start_mark)
        seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique_mapping)


def read_documents(files: Sequence[str]) -> tuple[Document, ...]:
    """Returns every object of the files, in order; "-" is stdin. An error names the file and the document."""
    documents = tuple(document for file in files for document in _read_documents_of_file(file))
    if not documents:
        raise bad_input_error(f"{', '.join(files)}: no object in the file: expected a Kubernetes manifest")
    return documents


def name_of_only_workload(documents: Sequence[Document]) -> tuple[str, str]:
    """Returns (namespace, name) of the only workload among the documents; the namespace is "" if it names none."""
    others = {"ConfigMap", "Service", "PlacementPolicy", "PropagationPolicy", "Secret"}
    found = [(document, json.loads(document.text)) for document in documents]
    workloads = [(document, value) for document, value in found if value["kind"] not in others]
    if not workloads:
        raise bad_input_error(f"{documents[0].where}: no workload: expected a Deployment, StatefulSet or Job")
    if len(workloads) > 1:
        names = ", ".join(f"{value['kind']} {_object_name(value)} ({document.where})" for document, value in workloads)
        raise bad_input_error(f"{len(workloads)} workloads: {names}: expected one")
    metadata = workloads[0][1]["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])


def documents_with_namespace(documents: Sequence[Document], given: str | None, otherwise: str) -> tuple[Document, ...]:
    """Returns the documents, each with a namespace: its own, else `given`, else `otherwise`.

    given: the namespace of a flag. As with kubectl, a document must not contradict it.
    """
    return tuple(_document_in_namespace(document, given, otherwise) for document in documents)


def text_with_places(text: str, documents: Sequence[Document]) -> str:
    """Returns the planner's text with each `manifests[2]` replaced by the file and document that the user knows."""

    def place_of_manifest(match: re.Match[str]) -> str:
        index = int(match.group(1))
        return documents[index].where if index < len(documents) else match.group(0)

    return re.sub(r"manifests\[(\d+)\]", place_of_manifest, text)


def read_yaml_values(files: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Yields every non-empty YAML document of the files with its place; "-" is stdin."""
    for file in files:
        shown = "stdin" if file == "-" else file
        values = _read_yaml_values_of_file(file, shown)
        for index, value in enumerate(values):
            yield value, shown if len(values) == 1 else f"{shown} (document {index + 1})"


def _read_documents_of_file(file: str) -> Iterator[Document]:
    for value, where in read_yaml_values((file,)):
        items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
        for number, entry in enumerate(items if isinstance(items, list) else [value]):
            yield _document_of_value(entry, where if items is None else f"{where}, item {number + 1}")


def _read_yaml_values_of_file(file: str, shown: str) -> list[Any]:
    try:
        manifest_bytes = sys.stdin.buffer.read(BYTES_MAX + 1) if file == "-" else _read_bounded_bytes(Path(file))
    except OSError as error:
        raise bad_input_error(f"{shown}: {(error.strerror or str(error)).lower()}") from None
    if len(manifest_bytes) > BYTES_MAX:
        raise bad_input_error(f"{shown}: {len(manifest_bytes)} bytes: expected at most {BYTES_MAX}")
    try:
        return [value for value in yaml.load_all(manifest_bytes.decode(), Loader=_Loader) if value is not None]
    except UnicodeDecodeError as error:
        raise bad_input_error(f"{shown}: not UTF-8 text: {error}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise bad_input_error(f"{shown}: not YAML: {_yaml_error_text(error)}") from None


def _read_bounded_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(BYTES_MAX + 1)


def _document_of_value(value: Any, where: str) -> Document:
    if not isinstance(value, dict):
        raise bad_input_error(f"{where}: {_shortened_repr(value)}: expected a Kubernetes object")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise bad_input_error(f"{where}: {field}: {_shortened_repr(value.get(field))}: expected text")
    _check_metadata(value, where)
    return Document(bounded_json_text(value, where), where)


def _check_metadata(value: dict[str, Any], where: str) -> None:
    metadata, what = value.get("metadata"), f"{where}: {value['kind']}"
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_input_error(f"{what}: metadata: {_shortened_repr(metadata)}: expected an object with a name")
    for field in ("name", "namespace"):
        given = (metadata or {}).get(field)
        if given is not None and not isinstance(given, str):
            raise bad_input_error(f"{what}: metadata.{field}: {_shortened_repr(given)}: expected text")
    if value["kind"] != "PlacementPolicy" and not (metadata or {}).get("name"):
        raise bad_input_error(f"{what}: metadata.name: not set: expected the object's name")


def bounded_json_text(value: Any, where: str) -> str:
    """Returns a value as JSON of bounded size. Without the bound, YAML aliases could expand beyond all memory."""
    parts, size = [], 0
    try:
        for part in json.JSONEncoder(allow_nan=False).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > BYTES_MAX:
                raise bad_input_error(f"{where}: more than {BYTES_MAX} bytes as JSON")
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_input_error(f"{where}: cannot be written as JSON: {error}") from None
    return "".join(parts)


def _document_in_namespace(document: Document, given: str | None, otherwise: str) -> Document:
    value = json.loads(document.text)
    own = (value.get("metadata") or {}).get("namespace")
    if own and given and own != given:
        what = f"{document.where}: {value['kind']} {_object_name(value)}: metadata.namespace: {own!r}"
        raise bad_input_error(f"{what}: expected the namespace of --namespace, {given!r}, or no namespace")
    if value["kind"] == "PlacementPolicy" or own:
        return document
    value["metadata"]["namespace"] = given or otherwise
    return Document(json.dumps(value), document.where)


def _object_name(value: dict[str, Any]) -> str:
    return str((value.get("metadata") or {}).get("name") or "")


def _yaml_error_text(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).replace('in "<unicode string>", ', "at ")[:300]


def _shortened_repr(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "…"


# ── The short form ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ShortForm:
    """The arguments of `spillway apply NAME --image …`."""

    name: str
    namespace: str
    image: str
    replicas: int
    cpu: str
    memory: str
    own_first: bool | None


def documents_of_short_form(short: ShortForm) -> tuple[Document, ...]:
    """Returns the Deployment, and the policy if --own-first or --any-order is given."""
    requests = {name: amount for name, amount in (("cpu", short.cpu), ("memory", short.memory)) if amount}
    labels = {"app.kubernetes.io/name": short.name}
    container = {"name": "main", "image": short.image, "resources": {"requests": requests}}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": short.name, "namespace": short.namespace, "labels": labels},
            "spec": {
                "replicas": short.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    ]
    if short.own_first is not None:
        policy = {"ownFirst": short.own_first}
        objects.append({"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": policy})
    return tuple(Document(json.dumps(value), f"the {value['kind']} of `apply {short.name}`") for value in objects)
