"""Chooses the nodes that a cluster lends: of each class the longest idle, within its share and reserve.

A node that waiting pods might need is not lent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spillway.events_lending import LendingDeclared, LendingRule
from spillway.feasibility.node_match import TRANSIENT_TAINTS, find_untolerated_taint
from spillway.kubernetes.pod_shape import matches_labels
from spillway.lending_marks import LEND, LENDING, NEVER
from spillway.model import Shape, Taint
from vk_bridge.core.node.loan import OWNED

WHOLE_PERCENT = 100


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node of the owner.

    allocatable: amounts in the units of Shape's requests.
    state: the state of its register.
    idle_seconds: counted up to the cluster's watermark.
    returned_seconds: since its last loan ended; None: no ended loan is known.
    foreign: whether it has another fleet's marks.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    ready: bool
    unschedulable: bool
    state: str
    idle_seconds: float
    returned_seconds: float | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The decision on one node.

    rule: the name of its lending rule; empty without one.
    why: the reason why the node is not lent, as a text for users; empty if it should be lent.
    """

    rule: str
    why: str

    @property
    def is_wanted(self) -> bool:
        return not self.why


@dataclass(slots=True)
class _Class:
    """The nodes of one lending rule. away: nodes that are lent, being lent, or on their way back."""

    rule: LendingRule
    nodes: int = 0
    away: int = 0
    idle: list[CandidateNode] = field(default_factory=list)


def verdict_by_node(
    candidates: Iterable[CandidateNode], declared: LendingDeclared | None, needs: Sequence[Shape | None]
) -> dict[str, NodeVerdict]:
    """Returns for each node by name whether it should be, or stay, lent to the pool.

    needs: the shapes of waiting pods and of the replicas in CapacityNeeded. None in it is an unknown shape, for which
        any node might be of use. A verdict does not end a loan: only a recall does.
    """
    found: dict[str, NodeVerdict] = {}
    for _ in decide_verdicts_in_slices(candidates, declared, needs, 1, found):
        pass
    return found


def decide_verdicts_in_slices(
    candidates: Iterable[CandidateNode],
    declared: LendingDeclared | None,
    needs: Sequence[Shape | None],
    slice_nodes: int,
    found: dict[str, NodeVerdict],
) -> Iterator[None]:
    """Does the same as `verdict_by_node`, into `found`, which is complete at the end.

    It yields after every slice_nodes nodes, so that other work of the process can go on.
    """
    if declared is None or declared.withdrawing:
        found.update((node.name, NodeVerdict("", "no lending is declared")) for node in candidates)
        return
    needs = tuple(dict.fromkeys(needs))
    classes = {rule.name: _Class(rule) for rule in declared.rules}
    for number, node in enumerate(candidates, 1):
        if number % slice_nodes == 0:
            yield
        rule = rule_for_labels(node.labels, declared.rules)
        if rule is None:
            found[node.name] = NodeVerdict("", "no rule is about it")
            continue
        kind = classes[rule.name]
        kind.nodes += 1
        why = _reason_not_to_lend(node, rule, declared, needs)
        if node.state != OWNED:
            kind.away += 1
            found[node.name] = NodeVerdict(rule.name, why)
        elif why:
            found[node.name] = NodeVerdict(rule.name, why)
        else:
            kind.idle.append(node)
    for kind in classes.values():
        found.update(_verdicts_within_share(kind))


def rule_for_labels(labels: Mapping[str, str], rules: Iterable[LendingRule]) -> LendingRule | None:
    """Returns the first rule that covers a node with these labels."""
    return next((rule for rule in rules if matches_labels(rule.nodes, labels)), None)


def may_use_node(need: Shape | None, node: CandidateNode) -> bool:
    """Returns whether a pod of this shape might run on the node if it were empty; False only if it certainly cannot.

    Only the node's own properties count, not what runs there or elsewhere. A wrong True only keeps a node from being
    lent.
    """
    if need is None:
        return True
    if any(amount > node.allocatable.get(name, 0) for name, amount in need.requests):
        return False
    if need.node_name and need.node_name != node.name:
        return False
    if any(node.labels.get(key) != value for key, value in need.node_selector):
        return False
    labels_met = (matches_labels(term.labels, node.labels) for term in need.node_terms)
    if need.node_terms and not any(labels_met):
        return False
    lasting = [taint for taint in node.taints if taint.key != LENDING and not taint.key.startswith(TRANSIENT_TAINTS)]
    return find_untolerated_taint(lasting, need.tolerations) is None


def _reason_not_to_lend(
    node: CandidateNode, rule: LendingRule, declared: LendingDeclared, needs: Sequence[Shape | None]
) -> str:
    if node.foreign:
        return "another fleet has marked it"
    if node.labels.get(LEND) == NEVER:
        return f"label {LEND}={NEVER}"
    if declared.paused:
        return "lending is paused"
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    if any(may_use_node(need, node) for need in needs):
        return "pods of its owner wait, and might use it"
    if node.state != OWNED:
        return ""
    if node.idle_seconds < rule.idle_seconds:
        return f"idle for {node.idle_seconds:.0f} s of {rule.idle_seconds} s"
    if node.returned_seconds is not None and node.returned_seconds < declared.cooldown_seconds:
        return f"returned {node.returned_seconds:.0f} s ago, of {declared.cooldown_seconds} s"
    return ""


def _verdicts_within_share(kind: _Class) -> Iterable[tuple[str, NodeVerdict]]:
    """Yields the verdicts on the idle nodes of a class.

    The longest idle come first, then the order of names decides.
    """
    share = kind.nodes * kind.rule.share_percent // WHOLE_PERCENT - kind.away
    above_reserve = len(kind.idle) - kind.rule.reserve_nodes
    in_order = sorted(kind.idle, key=lambda node: (-node.idle_seconds, node.name))
    for place, node in enumerate(in_order):
        why = ""
        if place >= share:
            why = f"the share of {kind.rule.share_percent} % is lent"
        elif place >= above_reserve:
            why = f"kept as one of {kind.rule.reserve_nodes} in reserve"
        yield node.name, NodeVerdict(kind.rule.name, why)
