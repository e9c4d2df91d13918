"""Reads one Kubernetes object of a request from JSON or YAML, with limits on the cost."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from spillway.api import RequestError, invalid_argument_error
from spillway.yaml_text import NODES_MAX, REPEATED_BYTES_MAX, ValueBudget, read_yaml_within_budget

MANIFEST_BYTES_MAX: Final = 900 * 1024
"""The most bytes of one object, so that a record stays under 1 MiB."""
DEPTH_MAX: Final = 64
"""The deepest nesting of objects and lists. Kubernetes' own kinds need a third of it. The code that walks a manifest
recurses."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABEL_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class ReadManifest(str):
    """A manifest that was read once: its text, and a form that is quick to read again.

    json: the manifest as JSON; empty if the text is JSON already, or has values that JSON lacks.
    trouble: the reason why it is refused; empty if it is accepted.
    """

    __slots__ = ("json", "trouble")
    json: str
    trouble: str


class _UnreadableText(Exception):
    """Raised if a manifest cannot be read. The error names the fault; the caller adds which manifest it is."""


def read_manifest_once(text: str, budget: ValueBudget) -> ReadManifest:
    """Reads a manifest within the budget. Raises nothing: the next reader reports its faults."""
    manifest = ReadManifest(text)
    manifest.json, manifest.trouble = "", ""
    try:
        parsed = _parse_text(text, budget)
        if not _is_json(text):
            manifest.json = _json_of(parsed)
    except _UnreadableText as bad:
        manifest.trouble = str(bad)
    return manifest


def check_size(text: str, where: str) -> int:
    """Returns the size of a manifest in bytes, without reading it. Raises RequestError beyond MANIFEST_BYTES_MAX."""
    size = len(text.encode())
    if size > MANIFEST_BYTES_MAX:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {size} bytes: expected at most {MANIFEST_BYTES_MAX}")
    return size


def read_object(text: str, where: str) -> dict[str, Any]:
    """Returns the object in a manifest. Raises RequestError. where: the manifest's name in the error's text."""
    check_size(text, where)
    try:
        parsed = _read_again(text) if isinstance(text, ReadManifest) else _parse_text(text, ValueBudget(NODES_MAX))
    except _UnreadableText as bad:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {bad}") from None
    if "\\u" in text or "\\U" in text:
        _check_characters(parsed, where)
    if not isinstance(parsed, dict):
        raise invalid_argument_error(where, parsed, "a Kubernetes object")
    if not isinstance(parsed.get("kind"), str):
        raise invalid_argument_error(f"{where}.kind", parsed.get("kind"), "a kind")
    return parsed


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _parse_text(text: str, budget: ValueBudget) -> Any:
    """Parses the text as JSON or YAML, and takes its values from the budget.

    For YAML they are taken during the parsing; for JSON after it, before the values are checked.
    """
    size, is_json = len(text.encode()), _is_json(text)
    try:
        if is_json:
            budget.take_values()  # Reads nothing if the budget is used up.
            parsed = json.loads(text, object_pairs_hook=_without_repeats)
        else:
            # More entries would be more values than _checked_text_bytes allows. It is called after the values are made.
            parsed = read_yaml_within_budget(text, budget, merged_max=size)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise _UnreadableText(f"neither JSON nor YAML: {str(error)[:200]}") from None
    repeated = max(0, _checked_text_bytes(parsed, size, budget if is_json else None) - size)
    if not budget.take_repeated_bytes(repeated):
        expected = f"expected at most {REPEATED_BYTES_MAX} in all that is read together"
        raise _UnreadableText(f"{repeated} bytes that its aliases repeat: {expected}")
    return parsed


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the (key, value) pairs of a JSON object as a dict.

    Raises ValueError for a repeated key: parsers differ on it, and the API server refuses it, too.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return value


def _read_again(manifest: ReadManifest) -> Any:
    if manifest.trouble:
        raise _UnreadableText(manifest.trouble)
    if manifest.json or _is_json(manifest):  # The first reading has checked its limits.
        return json.loads(manifest.json or str(manifest))
    return _parse_text(str(manifest), ValueBudget(NODES_MAX))


def _json_of(value: object) -> str:
    """Returns a value as JSON; empty where JSON would change it: keys that are no text, NaN, bytes."""
    try:
        text = json.dumps(value, allow_nan=False)
        return text if json.loads(text) == value else ""
    except (TypeError, ValueError, RecursionError):
        return ""


def canonical_json(value: object) -> bytes:
    """Returns JSON that is the same for equal values. Raises RequestError for values that JSON lacks, such as NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RequestError("INVALID_ARGUMENT", f"manifests: cannot be written as JSON: {error}") from None


def expanded_text_bytes(value: object) -> int:
    """Returns the bytes of a value's texts and keys, repeated for each alias.

    The value is from read_object, so it is bounded.
    """
    return sum(_own_bytes(inner) for inner, _ in _nested_values(value))


def _checked_text_bytes(parsed: object, size: int, budget: ValueBudget | None) -> int:
    """Returns expanded_text_bytes of the value.

    Refuses a value that is nested too deep, and YAML that becomes far larger when its aliases are followed.

    budget: values, keys included, are taken from it. The outermost value is not counted. None when they were counted
    before.
    """
    said = 0
    for values, (value, depth) in enumerate(_nested_values(parsed), 1):
        if budget is not None and isinstance(value, dict | list):
            _take_from_budget(budget, len(value) * (2 if isinstance(value, dict) else 1))
        said += _own_bytes(value)
        if depth > DEPTH_MAX:
            raise _UnreadableText(f"nested deeper than {DEPTH_MAX}")
        if values > size + 1:  # Every value that is written out takes a byte.
            raise _UnreadableText("aliases that repeat more than the text has bytes")
        if said > MANIFEST_BYTES_MAX:
            raise _UnreadableText(f"more than {MANIFEST_BYTES_MAX} bytes with what its aliases repeat")
    return said


def _take_from_budget(budget: ValueBudget, values: int) -> None:
    try:
        budget.take_values(values)
    except yaml.YAMLError as error:
        raise _UnreadableText(str(error)) from None


def _nested_values(parsed: object) -> Iterator[tuple[object, int]]:
    """Yields each value and its depth, repeated for each alias. Tuples and sets are YAML's !!pairs and !!set."""
    waiting = [(parsed, 0)]
    while waiting:
        value, depth = waiting.pop()
        yield value, depth
        if isinstance(value, dict):
            waiting.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend((inner, depth + 1) for inner in value)


def _own_bytes(value: object) -> int:
    """Returns the bytes of a text, or of a mapping's keys. For a number, returns a little less than its digits."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))
    if isinstance(value, int):
        return value.bit_length() // 4
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_own_bytes, value)) if isinstance(value, dict) else 0


def _check_characters(parsed: object, where: str) -> None:
    """Refuses lone surrogates, which only an escape can express and no record can hold."""
    try:
        json.dumps(parsed, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start].encode("unicode_escape").decode()
        raise RequestError(
            "INVALID_ARGUMENT", f"{where}: {half}: half of a surrogate pair; expected both halves"
        ) from None


def check_name(name: object, where: str, pattern: re.Pattern[str] = NAME, length_max: int = 253) -> str:
    """Returns a Kubernetes name. Raises RequestError for any other value."""
    if not isinstance(name, str) or len(name) > length_max or not pattern.fullmatch(name):
        raise invalid_argument_error(where, name, f"lower-case letters, digits and '-', at most {length_max}")
    return name
