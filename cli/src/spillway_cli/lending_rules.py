"""Reads how a cluster lends: from a file with the fields of docs/lending.md, or one rule from flags."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from spillway.api_lending import DeclareLendingRequest
from spillway.events_lending import LendingRule
from spillway.model import SUPPLY_DEDICATED, Requirement
from spillway_cli.exits import bad_input_error
from spillway_cli.manifests import bounded_json_text, read_yaml_values

NUMBER_MAX = 2**31 - 1
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
"""A number that a field of the request can hold. The descheduler checks whether it is allowed."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
"""A number of 1 or more. In the request 0 means the default, so a 0 that a user writes is refused."""
VALUE_CHARACTERS_SHOWN = 80


class RequirementFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


class RuleFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    nodes: tuple[RequirementFields, ...] = ()
    supply_class: str = ""
    share_percent: Positive = 0
    reserve_nodes: Number = 0
    idle_seconds: Number | None = None
    cost_per_hour: float = 0


class LendingFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    pool: str
    rules: tuple[RuleFields, ...] = (RuleFields("all"),)
    grace_seconds: Positive = 0
    cooldown_seconds: Positive = 0
    recalls_per_minute: Number = 0


def lending_requests_of(files: Sequence[str] | None, flags: LendingFields) -> list[tuple[DeclareLendingRequest, str]]:
    """Returns the requests to declare, with their places: from files, or from the flags of one cluster, never both."""
    if files and flags != LendingFields("", ""):
        raise bad_input_error(
            "-f together with a cluster or lending flags: expected either the file or the cluster with flags"
        )
    if files:
        return read_lending_files(files)
    if not flags.cluster or not flags.pool:
        missing = "--pool" if flags.cluster else "CLUSTER"
        raise bad_input_error(f"lending declare: no {missing}: expected CLUSTER --pool POOL, or -f FILE")
    return [(declare_request_of(flags), "")]


def read_lending_files(files: Sequence[str]) -> list[tuple[DeclareLendingRequest, str]]:
    """Returns the request in each document of the files, with its place. No two may be for the same cluster."""
    found = [
        (declare_request_of(_decode_lending_fields(value, where)), where) for value, where in read_yaml_values(files)
    ]
    if not found:
        raise bad_input_error(f"{', '.join(files)}: no declaration in the file: expected cluster, pool and rules")
    clusters = [request.cluster for request, _ in found]
    for index, (request, where) in enumerate(found):
        if request.cluster in clusters[:index]:
            raise bad_input_error(f"{where}: cluster: {request.cluster!r}: expected each cluster once")
    return found


def declare_request_of(fields: LendingFields) -> DeclareLendingRequest:
    return DeclareLendingRequest(
        cluster=fields.cluster,
        pool=fields.pool,
        rules=tuple(_lending_rule_of(rule) for rule in fields.rules),
        grace_seconds=fields.grace_seconds,
        cooldown_seconds=fields.cooldown_seconds,
        recalls_per_minute=fields.recalls_per_minute,
    )


def parse_label_requirements(given: Sequence[str]) -> tuple[RequirementFields, ...]:
    """Reads texts KEY=VALUE[,VALUE]… and KEY: a label with one of the values, or with any value."""
    found = []
    for text in given:
        key, sign, values = text.partition("=")
        if not key or (sign and not all(values.split(","))):
            raise bad_input_error(f"--nodes {text!r}: expected KEY, or KEY=VALUE[,VALUE]")
        found.append(
            RequirementFields(key, "In", tuple(values.split(","))) if sign else RequirementFields(key, "Exists")
        )
    return tuple(found)


def _lending_rule_of(fields: RuleFields) -> LendingRule:
    nodes = tuple(Requirement(one.key, one.operator, one.values) for one in fields.nodes)
    if fields.idle_seconds == 0 and fields.supply_class != SUPPLY_DEDICATED:
        raise bad_input_error(
            f"rule {fields.name}: idle_seconds: 0: expected 1 or more, or the class {SUPPLY_DEDICATED}"
        )
    return LendingRule(
        fields.name,
        nodes,
        fields.supply_class,
        fields.share_percent,
        fields.reserve_nodes,
        fields.idle_seconds or 0,
        fields.cost_per_hour,
    )


def _decode_lending_fields(value: Any, where: str) -> LendingFields:
    text = bounded_json_text(value, where)  # YAML aliases can expand to more than all memory.
    try:
        return msgspec.json.decode(text, type=LendingFields)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        shown = repr(_value_at_path(msgspec.json.decode(text), field))[:VALUE_CHARACTERS_SHOWN] if field else ""
        raise bad_input_error(": ".join(part for part in (where, field, shown, what) if part)) from None


def _value_at_path(value: Any, path: str) -> Any:
    """Returns the value at a path like rules[0].share_percent."""
    for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", path):
        value = value[int(index)] if index else value[name]
    return value
