"""Declares how clusters lend: checks requests, returns the changed declarations, and shows them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from descheduler.core.recalling import GRACE_SECONDS, Written
from descheduler.core.state import DeschedulerState
from spillway import api_lending as lending
from spillway.amounts import clamp_to_int64
from spillway.api import RequestError, invalid_argument_error
from spillway.events_lending import LOAN_LENT, LendingDeclared, LendingRule, NodeLent
from spillway.feasibility.cluster_view import ClusterView
from spillway.kubernetes.label_text import check_label_key, check_label_value
from spillway.kubernetes.pod_shape import is_integer
from spillway.model import NO_GENERATION, NODE_LENT, SUPPLY_DEDICATED, SUPPLY_IDLE, Generation, Requirement

COOLDOWN_SECONDS = 1_800
IDLE_SECONDS = 600
WHOLE_PERCENT = 100
GRACE_SECONDS_MAX = 24 * 3_600
COOLDOWN_SECONDS_MAX = IDLE_SECONDS_MAX = 30 * 24 * 3_600
NAME_LENGTH_MAX = 253
REASON_LENGTH_MAX = 500
RULES_MAX = 64
REQUIREMENTS_MAX = 64
"""The most requirements of a rule."""
VALUES_MAX = 256
"""The most values of a requirement."""
RULES_BYTES_MAX = 256 * 1024
"""The most bytes of all texts in a cluster's rules. They are one record, and bridges keep the newest one of each
cluster."""
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
VALUE_OPERATORS = ("In", "NotIn", "Gt", "Lt")


@dataclass(frozen=True, slots=True)
class LendingRequest:
    """The caller, the time, and the generation for the records of this request."""

    by: str
    generation: Generation
    now_ms: int


Answer = tuple[Sequence[Written], lending.LendingReply]


def declare_lending(state: DeschedulerState, request: lending.DeclareLendingRequest, asked: LendingRequest) -> Answer:
    """Decides a request to declare a cluster's lending. Returns the events and the answer.

    Raises RequestError: INVALID_ARGUMENT with the field, NOT_FOUND with the cluster, or FAILED_PRECONDITION while
    lending is withdrawn or nodes are lent to another pool.
    """
    _check_cluster(state, "cluster", request.cluster)
    _check_cluster(state, "pool", request.pool)
    if request.cluster == request.pool:
        raise invalid_argument_error("pool", request.pool, "a cluster other than the owner")
    _check_within("grace_seconds", request.grace_seconds, GRACE_SECONDS_MAX)
    _check_within("cooldown_seconds", request.cooldown_seconds, COOLDOWN_SECONDS_MAX)
    if request.recalls_per_minute < 0:
        raise invalid_argument_error("recalls_per_minute", request.recalls_per_minute, "0 or more")
    known = state.declared.get(request.cluster)
    if known is not None and known.withdrawing:
        raise RequestError("FAILED_PRECONDITION", f"cluster {request.cluster}: its lending is being withdrawn")
    if known is not None and known.pool != request.pool and state.open_loans_by_node(request.cluster):
        raise RequestError("FAILED_PRECONDITION", f"cluster {request.cluster}: nodes are still lent to {known.pool}")
    wanted = LendingDeclared(
        cluster=request.cluster,
        generation=known.generation if known is not None else NO_GENERATION,
        pool=request.pool,
        rules=_checked_rules(request.rules),
        grace_seconds=request.grace_seconds or GRACE_SECONDS,
        cooldown_seconds=request.cooldown_seconds or COOLDOWN_SECONDS,
        recalls_per_minute=request.recalls_per_minute,
        paused=known is not None and known.paused,
        withdrawing=False,
        by=known.by if known is not None else "",
        reason=known.reason if known is not None else "",
        at_ms=known.at_ms if known is not None else 0,
    )
    if wanted == known:
        return (), _lending_reply(state, (known,), changed=False)
    event = replace(wanted, generation=asked.generation, by=asked.by, reason="", at_ms=asked.now_ms)
    if request.plan_only:
        return (), _lending_reply(state, (event,), changed=True)
    return _answer_with_events(state, [event])


def withdraw_lending(state: DeschedulerState, request: lending.WithdrawLendingRequest, asked: LendingRequest) -> Answer:
    """Withdraws the lending of a cluster. All its nodes come back; the tombstone follows once none is lent."""
    check_reason(request.reason)
    known = _find_declaration(state, request.cluster)
    if known.withdrawing:
        return (), _lending_reply(state, (known,), changed=False)
    return _answer_with_events(state, [_changed_declaration(known, asked, request.reason, withdrawing=True)])


def pause_lending(state: DeschedulerState, request: lending.PauseLendingRequest, asked: LendingRequest) -> Answer:
    return _set_paused(state, request.cluster, asked, request.reason, paused=True)


def resume_lending(state: DeschedulerState, request: lending.ResumeLendingRequest, asked: LendingRequest) -> Answer:
    return _set_paused(state, request.cluster, asked, "", paused=False)


def list_declared(state: DeschedulerState, request: lending.ListLendingRequest) -> lending.LendingReply:
    return _lending_reply(state, _declarations_named(state, request.cluster), changed=False)


def _set_paused(state: DeschedulerState, cluster: str, asked: LendingRequest, reason: str, *, paused: bool) -> Answer:
    check_reason(reason)
    named = _declarations_named(state, cluster)
    events = {
        one.cluster: _changed_declaration(one, asked, reason, paused=paused) for one in named if one.paused != paused
    }
    replies = tuple(
        _make_cluster_lending(state, events.get(one.cluster, one), changed=one.cluster in events) for one in named
    )
    return tuple(events.values()), lending.LendingReply(replies)


def _changed_declaration(known: LendingDeclared, asked: LendingRequest, reason: str, **fields: bool) -> LendingDeclared:
    return replace(
        known, generation=asked.generation, by=asked.by, reason=reason, at_ms=asked.now_ms, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def _answer_with_events(state: DeschedulerState, events: Sequence[LendingDeclared]) -> Answer:
    return events, _lending_reply(state, events, changed=True)


def _declarations_named(state: DeschedulerState, cluster: str) -> tuple[LendingDeclared, ...]:
    if cluster:
        return (_find_declaration(state, cluster),)
    return tuple(declared for _, declared in sorted(state.declared.items()))


def _find_declaration(state: DeschedulerState, cluster: str) -> LendingDeclared:
    known = state.declared.get(cluster)
    if known is None:
        raise RequestError("NOT_FOUND", f"cluster {cluster}: no lending is declared for this cluster")
    return known


def _check_cluster(state: DeschedulerState, field: str, cluster: str) -> None:
    if not 0 < len(cluster) <= NAME_LENGTH_MAX:
        raise invalid_argument_error(field, cluster, "the name of a cluster")
    view = state.views.get(cluster)
    if view is None or view.joined is None:
        raise RequestError("NOT_FOUND", f"{field} {cluster}: no cluster of this name has joined")


def check_reason(reason: str) -> None:
    if len(reason) > REASON_LENGTH_MAX or not reason.isprintable():
        raise invalid_argument_error("reason", reason, f"printable characters in one line, at most {REASON_LENGTH_MAX}")


def _check_within(field: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise invalid_argument_error(field, value, f"0 to {most}")


def _checked_rules(rules: Sequence[LendingRule]) -> tuple[LendingRule, ...]:
    if not 0 < len(rules) <= RULES_MAX:
        raise invalid_argument_error("rules", len(rules), f"1 to {RULES_MAX} rules")
    names = [rule.name for rule in rules]
    for index, rule in enumerate(rules):
        if not rule.name or rule.name in names[:index]:
            raise invalid_argument_error(f"rules[{index}].name", rule.name, "a name that no other rule has")
        if len(rule.name) > NAME_LENGTH_MAX or not rule.name.isprintable():
            expected = f"printable characters in one line, at most {NAME_LENGTH_MAX}"
            raise invalid_argument_error(f"rules[{index}].name", rule.name, expected)
    checked = tuple(_checked_rule(rule, f"rules[{index}]") for index, rule in enumerate(rules))
    total = sum(map(_rule_text_bytes, checked))
    if total > RULES_BYTES_MAX:
        expected = f"at most {RULES_BYTES_MAX} bytes of names, keys and values in all rules together"
        raise invalid_argument_error("rules", f"{total} bytes", expected)
    return checked


def _rule_text_bytes(rule: LendingRule) -> int:
    texts = (text for one in rule.nodes for text in (one.key, *one.values))
    return len(rule.name.encode()) + sum(len(text.encode()) for text in texts)


def _checked_rule(rule: LendingRule, where: str) -> LendingRule:
    supply_class = rule.supply_class or SUPPLY_IDLE
    if supply_class not in (SUPPLY_IDLE, SUPPLY_DEDICATED):
        raise invalid_argument_error(f"{where}.supply_class", rule.supply_class, f"{SUPPLY_IDLE} or {SUPPLY_DEDICATED}")
    if not 0 <= rule.share_percent <= WHOLE_PERCENT:
        raise invalid_argument_error(
            f"{where}.share_percent", rule.share_percent, f"0 to {WHOLE_PERCENT}; 0 is {WHOLE_PERCENT}"
        )
    _check_within(f"{where}.idle_seconds", rule.idle_seconds, IDLE_SECONDS_MAX)
    for name in ("reserve_nodes", "cost_per_hour"):
        if not 0 <= getattr(rule, name) < inf:
            raise invalid_argument_error(f"{where}.{name}", getattr(rule, name), "0 or more, and finite")
    if len(rule.nodes) > REQUIREMENTS_MAX:
        raise invalid_argument_error(f"{where}.nodes", len(rule.nodes), f"at most {REQUIREMENTS_MAX} requirements")
    for index, requirement in enumerate(rule.nodes):
        _check_requirement(requirement, f"{where}.nodes[{index}]")
    idle_seconds = rule.idle_seconds or (IDLE_SECONDS if supply_class == SUPPLY_IDLE else 0)
    share_percent = rule.share_percent or WHOLE_PERCENT
    return replace(rule, supply_class=supply_class, share_percent=share_percent, idle_seconds=idle_seconds)


def _check_requirement(requirement: Requirement, where: str) -> None:
    check_label_key(requirement.key, f"{where}.key")
    if requirement.operator not in OPERATORS:
        raise invalid_argument_error(f"{where}.operator", requirement.operator, f"one of {', '.join(OPERATORS)}")
    if (requirement.operator in VALUE_OPERATORS) != bool(requirement.values):
        wanted = "at least one value" if requirement.operator in VALUE_OPERATORS else "no value"
        raise invalid_argument_error(f"{where}.values", requirement.values, wanted)
    if len(requirement.values) > VALUES_MAX:
        raise invalid_argument_error(f"{where}.values", len(requirement.values), f"at most {VALUES_MAX} values")
    if requirement.operator in ("Gt", "Lt"):
        if len(requirement.values) != 1 or not is_integer(requirement.values[0]):
            raise invalid_argument_error(f"{where}.values", requirement.values, "one integer")
        return
    for index, value in enumerate(requirement.values):
        check_label_value(value, f"{where}.values[{index}]")


def _lending_reply(
    state: DeschedulerState, declared: Iterable[LendingDeclared], *, changed: bool
) -> lending.LendingReply:
    return lending.LendingReply(tuple(_make_cluster_lending(state, one, changed=changed) for one in declared))


def _make_cluster_lending(
    state: DeschedulerState, declared: LendingDeclared, *, changed: bool
) -> lending.ClusterLending:
    loans = state.open_loans_by_node(declared.cluster)
    open_ones = [loan for loan in loans.values() if loan.state == LOAN_LENT]
    view = state.views.get(declared.cluster)
    return lending.ClusterLending(
        cluster=declared.cluster,
        pool=declared.pool,
        generation=declared.generation,
        rules=declared.rules,
        grace_seconds=declared.grace_seconds,
        cooldown_seconds=declared.cooldown_seconds,
        recalls_per_minute=declared.recalls_per_minute,
        paused=declared.paused,
        withdrawing=declared.withdrawing,
        by=declared.by,
        reason=declared.reason,
        declared_ms=declared.at_ms,
        nodes=view.nodes.own_node_count() if view is not None and view.epoch >= 0 else -1,
        nodes_lent=len(open_ones),
        nodes_recalled=len(loans) - len(open_ones),
        cores_lent_milli=clamp_to_int64(sum(dict(loan.offered).get("cpu", 0) for loan in open_ones)),
        changed=changed,
        warnings=tuple(_lending_warnings(state, declared)),
        nodes_checking=_marked_nodes_without_loan(view, loans) if view is not None else 0,
    )


def _marked_nodes_without_loan(view: ClusterView, loans: Mapping[str, NodeLent]) -> int:
    """Returns the number of nodes that have the mark of lending and no loan in the log yet."""
    return sum(state == NODE_LENT and name not in loans for name, state in view.nodes.loan_states)


def _lending_warnings(state: DeschedulerState, declared: LendingDeclared) -> Iterable[str]:
    if declared.recalls_per_minute:
        yield f"at most {declared.recalls_per_minute} nodes a minute go back to pods that wait for them"
    if state.is_frozen(declared.cluster):
        yield "frozen: nothing new is lent, and no node is recalled for a need"
