"""Label, field and node selectors: parsed once, matched often."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: frozenset[str] = frozenset()


Selector = tuple[Requirement, ...]
"""Requirements that must all hold. The empty selector matches everything."""

_SET_FORM = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL_FORM = re.compile(r"([^\s!=,]+)\s*(==|!=|=)\s*([^\s!=,]*)")
_KEY_FORM = re.compile(r"(!?)\s*([^\s!=,()]+)")


def parse_selector(text: str) -> Selector:
    """Returns a selector in the form of `labelSelector=`. Raises ValueError when it cannot be read."""
    return tuple(_parse_requirement(part.strip()) for part in _split_requirements(text) if part.strip())


def selector_of(declared: Mapping[str, Any]) -> Selector:
    """Returns a selector in the form with matchLabels and matchExpressions."""
    exact = [Requirement(key, "In", frozenset({value})) for key, value in (declared.get("matchLabels") or {}).items()]
    return (*exact, *requirements_of(declared.get("matchExpressions") or ()))


def requirements_of(expressions: Any) -> Selector:
    return tuple(
        Requirement(one["key"], one["operator"], frozenset(str(value) for value in one.get("values") or ()))
        for one in expressions
    )


def matches_labels(selector: Selector, labels: Labels) -> bool:
    return all(_meets_requirement(requirement, labels.get(requirement.key)) for requirement in selector)


def _meets_requirement(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _meets_comparison(requirement, value)
    return False


def _meets_comparison(requirement: Requirement, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(next(iter(requirement.values)))
    except (ValueError, StopIteration):
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _split_requirements(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _parse_requirement(text: str) -> Requirement:
    if found := _SET_FORM.fullmatch(text):
        values = frozenset(value.strip() for value in found.group(3).split(","))
        return Requirement(found.group(1), "In" if found.group(2) == "in" else "NotIn", values)
    if found := _EQUAL_FORM.fullmatch(text):
        return Requirement(found.group(1), "NotIn" if found.group(2) == "!=" else "In", frozenset({found.group(3)}))
    if found := _KEY_FORM.fullmatch(text):
        return Requirement(found.group(2), "DoesNotExist" if found.group(1) else "Exists")
    raise ValueError(f"unable to parse requirement: {text!r}")


_FIELDS_EVERYWHERE = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS_BY_PLURAL: Mapping[str, frozenset[str]] = {
    "pods": frozenset({"spec.nodeName", "status.phase", "spec.schedulerName", "spec.serviceAccountName"}),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "events": frozenset(
        {"reason", "type", *(f"involvedObject.{field}" for field in ("kind", "name", "namespace", "uid"))}
    ),
}


def parse_field_selector(plural: str, text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Returns a `fieldSelector=` as a test of objects. Raises ValueError for a field that cannot be used to select."""
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(r"([\w.]+)(==|!=|=)(.*)", part)
        if not found:
            raise ValueError(f"invalid selector: {part!r}; can't understand it")
        field = found.group(1)
        if field not in _FIELDS_EVERYWHERE and field not in _FIELDS_BY_PLURAL.get(plural, ()):
            raise ValueError(f"field label not supported: {field}")
        tests.append((tuple(field.split(".")), found.group(3), found.group(2) != "!="))
    return lambda found_object: all(
        (_field_text(found_object, path) == value) == wanted for path, value, wanted in tests
    )


def node_in_field_selector(text: str) -> str:
    """Returns the node that a field selector of pods asks for; empty for none, or for all except one."""
    found = re.search(r"(?:^|,)\s*spec\.nodeName==?([^,=\s]+)", text)
    return found.group(1) if found else ""


def _field_text(found_object: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = found_object
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
