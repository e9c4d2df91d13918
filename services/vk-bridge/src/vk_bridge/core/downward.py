"""The downward API of a pool pod: what a container is told of itself is what the pool says of it.

Fields that differ on the real pod become annotations of it, to which the references then point: an environment variable
with the value itself would expand what looks like a variable in it.
"""

from collections.abc import Iterable
from typing import Final

from vk_bridge.core.loan import Manifest

DOWNWARD_PREFIX: Final = "pool.spillway.io/"
ANNOTATION_BY_FIELD: Final = {
    "metadata.name": "name",
    "metadata.namespace": "namespace",
    "metadata.uid": "uid",
    "metadata.labels": "labels",
    "metadata.annotations": "annotations",
    "spec.nodeName": "node-name",
    "spec.serviceAccountName": "service-account-name",
}
"""Fields that the pool says; all others (single labels and annotations, addresses) are the real pod's own."""


def translated_field(path: str) -> tuple[str, bool]:
    """The path on the real pod, and whether an annotation has to tell it."""
    name = ANNOTATION_BY_FIELD.get(path)
    return (f"metadata.annotations['{DOWNWARD_PREFIX}{name}']", True) if name else (path, False)


def downward_annotations(pod: Manifest, virtual_node: str, fields: Iterable[str]) -> dict[str, str]:
    """The annotations that tell these fields."""
    metadata, spec = pod["metadata"], pod["spec"]
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "metadata.labels": _lines(metadata.get("labels") or {}),
        "metadata.annotations": _lines(metadata.get("annotations") or {}),
        "spec.nodeName": virtual_node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
    }
    return {DOWNWARD_PREFIX + ANNOTATION_BY_FIELD[field]: values[field] for field in fields}


def _lines(pairs: Manifest) -> str:
    """As a kubelet writes maps: key="value", Go-quoted, sorted, one a line."""
    return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(pairs.items()))


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"} | {
    "\f": "\\f",
    "\v": "\\v",
}


def _quoted(text: str) -> str:
    """Go's strconv.Quote for what annotations hold."""
    return '"' + "".join(_ESCAPES.get(letter) or _printed(letter) for letter in text) + '"'


def _printed(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
