"""Reads settings from environment variables into a frozen dataclass.

The error for a wrong variable is one clear sentence.
A dataclass has two kinds of fields. A `setting` is a variable that operators may change. A `constant` has no variable,
and a text with the reason. Our own code and tests may construct the dataclass with other values of both.
"""

import dataclasses
import difflib
import logging
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_REQUIRED = dataclasses.MISSING
CONSTANTS = "SPILLWAY_CONSTANTS"
"""A variable for development only. It overrides constants of this process: NAME=value, separated by commas. A constant
is named as its variable would be: SPILLWAY_PLANNER_TICK_SECONDS=0.5. Each override is logged as a warning."""
_TYPO_RATIO = 0.8
"""The least similarity (difflib's ratio) to a known name at which an unknown name is reported as a typing error."""

_SECRET = re.compile("PASSWORD|TOKEN|SECRET|KEY")
"""Words in the name of an unknown variable that mark its value as a possible secret. The operator may have put a secret
where the name of its file belongs."""


log = logging.getLogger(__name__)


class OperatorError(Exception):
    """Raised if the process cannot run with this setup. The text is for the operator: what to change. Exit code 2."""


class SettingsError(OperatorError):
    """Raised if a variable is wrong, unknown or missing."""


def setting(default: T, doc: str, *, secret: bool = False, least: float | None = None, most: float | None = None) -> T:
    """Returns a dataclass field for a setting. doc: its meaning, unit included. A secret's value is never shown.

    least, most: the range of a number, both included. A required field is `field(metadata={"doc": "…"})`.
    """
    meaning = {"doc": doc, "secret": secret, "least": least, "most": most}
    return dataclasses.field(default=default, repr=not secret, metadata=meaning)


def constant(default: T, doc: str, reason: str) -> T:
    """Returns a dataclass field for a constant. reason: why no operator needs to change it. doc: as for a setting."""
    return dataclasses.field(default=default, metadata={"doc": doc, "reason": reason})


def settings_from_environment(kind: type[T], environ: Mapping[str, str], prefix: str, *, shared: bool = False) -> T:
    """Returns the settings of a frozen dataclass.

    Field log_level is the variable <prefix>LOG_LEVEL; tuples have commas.
    Raises SettingsError for a wrong value, a missing variable, and a variable with this prefix that names no field. A
    variable that names a constant has no effect, and a warning is logged.
    shared: other dataclasses have variables under this prefix too (SPILLWAY_ before SPILLWAY_KAFKA_…), so only a
    variable that looks like a typing error is refused.
    """
    names, constants = fields_by_variable(kind, prefix), _constants_by_variable(kind, prefix)
    for variable in environ:
        if variable in constants:
            _warn_of_constant(variable, constants[variable])
        elif variable.startswith(prefix) and variable not in names and variable != CONSTANTS:
            _refuse_unknown(variable, environ[variable], list(names), prefix, shared)
    hints = typing.get_type_hints(kind, include_extras=True)
    values = _overridden_constants(environ, constants, hints, "" if shared else prefix)
    for variable, field in names.items():
        if variable in environ:
            values[field.name] = _parse_value(variable, environ[variable], hints[field.name], field)
        elif _default_of(field) is _REQUIRED:
            raise SettingsError(f"{variable}: not set: expected {_expected_text(hints[field.name], field)}")
    try:
        return kind(**values)
    except ValueError as error:
        raise SettingsError(f"{prefix}*: {error}") from error


def describe_variables(kind: type, prefix: str) -> str:
    """Returns a text with one line for each variable: its name, its default and its meaning."""
    rows = [
        (name, _shown_default(field), field.metadata.get("doc", ""))
        for name, field in fields_by_variable(kind, prefix).items()
    ]
    wide_name = max((len(name) for name, _, _ in rows), default=0)
    wide_default = min(max((len(default) for _, default, _ in rows), default=0), 32)
    return "\n".join(f"  {name:<{wide_name}}  {default:<{wide_default}}  {doc}".rstrip() for name, default, doc in rows)


def help_text(summary: str, *sections: tuple[type, str]) -> str:
    """Returns the text of a service's --help: the summary, then every variable of each (dataclass, prefix)."""
    tables = "\n".join(describe_variables(kind, prefix) for kind, prefix in sections)
    return f"{summary.strip()}\n\nSettings are environment variables:\n{tables}"


def fields_by_variable(kind: type, prefix: str) -> dict[str, dataclasses.Field[Any]]:
    """Returns the fields of a dataclass that operators may set, by the names of their variables."""
    return {
        prefix + field.name.upper(): field
        for field in dataclasses.fields(kind)
        if field.init and not _is_constant(field)
    }


def _constants_by_variable(kind: type, prefix: str) -> dict[str, dataclasses.Field[Any]]:
    return {prefix + field.name.upper(): field for field in dataclasses.fields(kind) if _is_constant(field)}


def _is_constant(field: dataclasses.Field[Any]) -> bool:
    return "reason" in field.metadata


def _warn_of_constant(variable: str, field: dataclasses.Field[Any]) -> None:
    value, doc, reason = _shown_default(field), field.metadata["doc"], field.metadata["reason"]
    log.warning("%s: has no effect: it is a constant now, %s (%s): %s", variable, value, doc, reason)


def _overridden_constants(
    environ: Mapping[str, str], constants: Mapping[str, dataclasses.Field[Any]], hints: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    """Returns the values that the variable CONSTANTS sets for these constants, by field.

    prefix: a name in it with this prefix must be one of the constants. Empty: unknown names are ignored.
    """
    values: dict[str, Any] = {}
    for entry in filter(None, map(str.strip, environ.get(CONSTANTS, "").split(","))):
        name, equals, text = entry.partition("=")
        if not equals:
            raise SettingsError(f"{CONSTANTS}: {_short_repr(entry)}: expected NAME=value, with commas between")
        if field := constants.get(name):
            values[field.name] = _parse_value(name, text, hints[field.name], field)
            log.warning("%s, for development alone: %s is %s, not %s", CONSTANTS, name, text, _shown_default(field))
        elif prefix and name.startswith(prefix):
            raise SettingsError(f"{CONSTANTS}: {name}: no such constant")
    return values


def _refuse_unknown(variable: str, value: str, known: list[str], prefix: str, shared: bool) -> None:
    short = {name.removeprefix(prefix): name for name in known}
    close = difflib.get_close_matches(variable.removeprefix(prefix), short, n=1, cutoff=_TYPO_RATIO if shared else 0.5)
    if shared and not close:
        return
    hint = f"did you mean {short[close[0]]}?" if close else f"expected one of {', '.join(sorted(known))}"
    shown = "(hidden)" if _SECRET.search(variable) else _short_repr(value)
    raise SettingsError(f"{variable}: {shown}: no such setting: {hint}")


def _parse_value(variable: str, text: str, hint: Any, field: dataclasses.Field[Any]) -> Any:
    shown = "(hidden)" if field.metadata.get("secret") else _short_repr(text)
    try:
        value = msgspec.convert(_msgspec_input(text, hint), hint, strict=False, dec_hook=_decode_path)
    except (msgspec.ValidationError, ValueError) as error:
        raise SettingsError(
            f"{variable}: {shown}: expected {_expected_text(hint, field)}{_bound_text(str(error), field)}"
        ) from error
    broken = _broken_range(value, field)
    if broken:
        raise SettingsError(f"{variable}: {shown}: expected {_expected_text(hint, field)}, {broken}")
    return value


def _broken_range(value: object, field: dataclasses.Field[Any]) -> str:
    """Returns the range of a field if a number is outside it, as text; empty otherwise, and for other values."""
    numbers = [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int | float)]
    least, most = field.metadata.get("least"), field.metadata.get("most")
    if any(not math.isfinite(one) for one in numbers):
        return "finite"
    if least is not None and any(one < least for one in numbers):
        return f"at least {least:g}"
    if most is not None and any(one > most for one in numbers):
        return f"at most {most:g}"
    return ""


def _msgspec_input(text: str, hint: Any) -> object:
    """Returns a variable's text in the form that msgspec converts: a list for a tuple, None for an empty option."""
    bare = _unannotated_hint(hint)
    if typing.get_origin(bare) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if typing.get_origin(bare) in (typing.Union, types.UnionType) and not text.strip():
        return None
    return text if bare is str else text.strip()


def _decode_path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"settings of type {kind} cannot be read from text")


def _unannotated_hint(hint: Any) -> Any:
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def _expected_text(hint: Any, field: dataclasses.Field[Any]) -> str:
    doc = field.metadata.get("doc", "")
    return f"{_type_name(hint)}{f' ({doc})' if doc else ''}"


def _bound_text(error: str, field: dataclasses.Field[Any]) -> str:
    """Returns the part of msgspec's error that names a bound, a pattern or a length; empty if it names only a type."""
    found = re.search(r"[<>]=? -?[\d.]+|multiple of .*|matching regex .*|length .*", error)
    return f", {found.group(0)}" if found else ""


def _type_name(hint: Any) -> str:
    bare = _unannotated_hint(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin is tuple:
        return f"a list of {_type_name(arguments[0])}, separated by commas"
    if origin is typing.Literal:
        return "one of " + ", ".join(str(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [_type_name(argument) for argument in arguments if argument is not type(None)]
        return " or ".join(kinds) + " or nothing"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return words.get(bare, getattr(bare, "__name__", str(bare)))


def _default_of(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not _REQUIRED:
        return field.default_factory()
    return field.default


def _shown_default(field: dataclasses.Field[Any]) -> str:
    value = _default_of(field)
    if value is _REQUIRED:
        return "(required)"
    if field.metadata.get("secret") and value:
        return "(hidden)"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value) or "(none)"
    if isinstance(value, bool):
        return str(value).lower()
    return "(none)" if value in (None, "") else str(value)


def _short_repr(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 120 else shown[:120] + "…"
