"""Translates the downward API, so that containers read the values of the pool pod and not those of the real pod.

Fields that differ on the real pod become annotations there, and references point to these. A value written into an
environment variable would not do: Kubernetes would expand a `$(NAME)` in it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from spillway.lending_marks import digest_of_parts
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.propagated_metadata import DOWNWARD_PREFIX, is_carried_key

ANNOTATION_BY_FIELD: Final = {
    "metadata.name": "name",
    "metadata.namespace": "namespace",
    "metadata.uid": "uid",
    "metadata.labels": "labels",
    "metadata.annotations": "annotations",
    "spec.nodeName": "node-name",
    "spec.serviceAccountName": "service-account-name",
}
"""Fields whose values come from the pool pod. Labels and annotations that are not carried over are such fields, too.

All other fields have the real pod's own values.
"""
_ONE_OF_MANY: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)


def translated_field(path: str, prefixes: Sequence[str]) -> tuple[str, bool]:
    """Returns the path on the real pod, and whether an annotation has to carry it. prefixes: the carried ones."""
    one = _ONE_OF_MANY.fullmatch(path)
    told = path in ANNOTATION_BY_FIELD or (one is not None and not is_carried_key(one[2], prefixes))
    return (f"metadata.annotations['{_annotation_key(path)}']", True) if told else (path, False)


def _annotation_key(path: str) -> str:
    return DOWNWARD_PREFIX + (ANNOTATION_BY_FIELD.get(path) or f"field-{digest_of_parts(path)}")


def downward_annotations(pod: Manifest, virtual_node: str, fields: Iterable[str]) -> dict[str, str]:
    """Returns the annotations that carry these fields."""
    metadata, spec = pod["metadata"], pod["spec"]
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "metadata.labels": _text_of_map(metadata.get("labels") or {}),
        "metadata.annotations": _text_of_map(metadata.get("annotations") or {}),
        "spec.nodeName": virtual_node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
    }
    return {
        _annotation_key(path): _label_or_annotation_value(metadata, path) if path not in values else values[path]
        for path in fields
    }


def _label_or_annotation_value(metadata: Manifest, path: str) -> str:
    """Returns the value of a label or an annotation; empty if there is none, as a kubelet does."""
    one = _ONE_OF_MANY.fullmatch(path)
    assert one is not None
    value: str = (metadata.get(one[1]) or {}).get(one[2], "")
    return value


def _text_of_map(pairs: Manifest) -> str:
    """Returns a map as a kubelet writes it: key="value", Go-quoted, sorted, one a line."""
    return "\n".join(f"{key}={_go_quoted_text(value)}" for key, value in sorted(pairs.items()))


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"} | {
    "\f": "\\f",
    "\v": "\\v",
}


def _go_quoted_text(text: str) -> str:
    """Returns the text as Go's strconv.Quote would, for the characters that annotations can hold."""
    return '"' + "".join(_ESCAPES.get(letter) or _escaped_letter(letter) for letter in text) + '"'


def _escaped_letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
