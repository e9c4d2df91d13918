"""One Kubernetes object of a request, written as JSON or YAML, with bounds on what it may cost to look at."""

import json
import re
from typing import Any, Final

import yaml

from spillway.api import RequestError, invalid
from spillway.yaml_text import read_yaml

MANIFEST_BYTES_MAX: Final = 900 * 1024
"""Bound on each object, so that a record stays under 1 MiB."""
DEPTH_MAX: Final = 64
"""Of objects and lists in each other: the API's own kinds need a third of it, and what walks a manifest recurses."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABEL_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def read_object(text: str, where: str) -> dict[str, Any]:
    """The object. Raises RequestError that says what is wrong with it, under the name `where`."""
    size = len(text.encode())
    if size > MANIFEST_BYTES_MAX:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {size} bytes: expected at most {MANIFEST_BYTES_MAX}")
    try:
        parsed = json.loads(text) if text.lstrip().startswith("{") else read_yaml(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: neither JSON nor YAML: {str(error)[:200]}") from None
    _check_extent(parsed, size, where)
    if "\\u" in text or "\\U" in text:
        _check_characters(parsed, where)
    if not isinstance(parsed, dict):
        raise invalid(where, parsed, "a Kubernetes object")
    if not isinstance(parsed.get("kind"), str):
        raise invalid(f"{where}.kind", parsed.get("kind"), "a kind")
    return parsed


def canonical(value: object) -> bytes:
    """As JSON in which equal values are equal bytes. Raises RequestError for what JSON does not have, as NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RequestError("INVALID_ARGUMENT", f"manifests: not representable as JSON: {error}") from None


def _check_extent(parsed: object, size: int, where: str) -> None:
    """Refuses what is nested too deep, and YAML that is far larger when its aliases are followed."""
    values, waiting = 0, [(parsed, 0)]
    while waiting:
        value, depth = waiting.pop()
        values += 1
        if depth > DEPTH_MAX:
            raise RequestError("INVALID_ARGUMENT", f"{where}: nested deeper than {DEPTH_MAX}")
        if values > size + 1:  # Every value that is written out takes a byte.
            raise RequestError("INVALID_ARGUMENT", f"{where}: aliases that repeat more than the text has bytes")
        if isinstance(value, dict):
            waiting.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            waiting.extend((inner, depth + 1) for inner in value)


def _check_characters(parsed: object, where: str) -> None:
    """Refuses halves of surrogate pairs, which only an escape can say and no record can hold."""
    try:
        json.dumps(parsed, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start].encode("unicode_escape").decode()
        raise RequestError("INVALID_ARGUMENT", f"{where}: {half}: half a character; expected the pair") from None


def check_name(name: object, where: str, pattern: re.Pattern[str] = NAME, length_max: int = 253) -> str:
    """A Kubernetes name, or RequestError."""
    if not isinstance(name, str) or len(name) > length_max or not pattern.fullmatch(name):
        raise invalid(where, name, f"lower-case letters, digits and '-', at most {length_max}")
    return name
