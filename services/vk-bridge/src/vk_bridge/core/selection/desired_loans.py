"""Decides which of an owner's nodes are to be lent or recalled, by rules, waiting pods, recalls and idle times."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spillway.events_lending import CAUSE_ASKED, LendingRule
from spillway.lending_marks import CHECKING, LENT
from spillway.model import Generation
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.node.loan import OWNED, Manifest, Observation
from vk_bridge.core.node.marks import read_owner_node
from vk_bridge.core.node.steps import DesiredLoan
from vk_bridge.core.node.virtual_node import VirtualNodeSpec
from vk_bridge.core.pod.parsing import GRACE_SECONDS
from vk_bridge.core.selection.candidates import NodeVerdict, decide_verdicts_in_slices, rule_for_labels
from vk_bridge.core.selection.owner_cache import OwnerCache

IDLE = "idle"
MILLI = 1000
NO_RULE = LendingRule("", (), IDLE, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class KubeletAddress:
    """The address that virtual nodes show.

    port_by_pool: the port of the kubelet API for each pool. Virtual nodes of other pools show no kubelet API.
    """

    host: str
    port_by_pool: Mapping[str, int]


class DesiredLoans:
    """Decides the desired loans of one cluster.

    wall_ms: returns the Unix time. Cooldowns need it, because they begin at a time that is in the log.
    """

    def __init__(
        self,
        cluster: str,
        fleet: str,
        state: LendingLogState,
        owner_cache: OwnerCache,
        address: KubeletAddress,
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._state = state
        self._owner_cache = owner_cache
        self._address = address
        self._wall_ms = wall_ms
        self._verdicts: dict[str, tuple[NodeVerdict, str]] = {}
        """Each verdict with the register's state at that time.

        A verdict on a lent node is not valid once it is back.
        """

    def review_nodes(self, slice_nodes: int) -> Iterator[str]:
        """Decides anew for each node whether it should be lent.

        Yields the nodes to work on: nodes to lend, unwanted nodes in state checking, and lent nodes if the cluster must
        not lend. Before these it yields an empty name after every slice_nodes nodes, so that other work can go on.
        """
        owner_cache, lends = self._owner_cache, self._state.lending_in_force(self._cluster)
        candidates = [owner_cache.candidate_node(name, self._returned_seconds(name)) for name in owner_cache.nodes]
        found: dict[str, NodeVerdict] = {}
        yield from (
            ""
            for _ in decide_verdicts_in_slices(
                candidates, lends, self._state.needed_shapes(self._cluster), slice_nodes, found
            )
        )
        self._verdicts = {one.name: (found[one.name], one.state) for one in candidates}
        yield from (
            one.name
            for one in candidates
            if (one.state == OWNED and found[one.name].is_wanted)
            or (one.state == CHECKING and not found[one.name].is_wanted)
            or (one.state == LENT and lends is None)
        )

    def forget_verdict(self, node: str) -> None:
        """Forgets the verdict on a node whose loan is over; the next review decides again."""
        self._verdicts.pop(node, None)

    def desired_loan_of_node(
        self,
        node: str,
        observation: Observation,
        generation: Generation,
        *,
        pool_joined: bool,
        log_away: bool,
        left_in: tuple[str, ...] = (),
    ) -> DesiredLoan:
        """Returns the desired loan of a node. generation: for a new loan. The other parameters: as in DesiredLoan."""
        register = observation.node
        loan = (
            register.loan
            if register is not None
            else observation.virtual.loan
            if observation.virtual is not None
            else None
        )
        lent = self._state.lent_record(self._cluster, node)
        return DesiredLoan(
            lend=pool_joined and self._is_wanted(node, register.state if register is not None else OWNED),
            loan=generation,
            recall=self._recall_cause(node, loan),
            frozen=self._state.is_frozen(self._cluster),
            logged=lent.loan if lent is not None else None,
            pool=self.declared_pool(),
            log_away=log_away,
            left_in=left_in,
            pool_joined=pool_joined,
        )

    def grace_seconds(self, node: str, observation: Observation) -> int:
        """Returns the grace of the node's recall, or the declared grace if there is no recall."""
        recall = self._state.recall_of(
            self._cluster, node, observation.node.loan if observation.node is not None else None
        )
        declared = self._state.declared.get(self._cluster)
        if recall is not None:
            return recall.grace_seconds
        return declared.grace_seconds if declared is not None else GRACE_SECONDS

    def declared_pool(self) -> str:
        """Returns the declared pool; empty if there is none, or it is not in the fleet."""
        declared = self._state.declared.get(self._cluster)
        return declared.pool if declared is not None and declared.pool in self._state.clusters else ""

    def pool_of_node(self, node: str) -> str:
        """Returns the pool of the node's loan, by its register or else by the log; without a loan the declared pool."""
        known, lent = self._owner_cache.nodes.get(node), self._state.lent_record(self._cluster, node)
        of_register = known.register.pool if known is not None else ""
        return of_register or (lent.pool if lent is not None else "") or self.declared_pool()

    def lending_rule_for_labels(self, labels: dict[str, str]) -> LendingRule:
        """Returns the lending rule for a node with these labels; NO_RULE if it has none."""
        declared = self._state.declared.get(self._cluster)
        return (rule_for_labels(labels, declared.rules) if declared is not None else None) or NO_RULE

    def virtual_node_spec(self, node: Manifest) -> VirtualNodeSpec:
        """Returns the facts that the node's virtual node should show.

        If the log has the loan, the supply class is the one with which the loan began.
        """
        rule = self.lending_rule_for_labels(node["metadata"].get("labels") or {})
        register = read_owner_node(node, self._fleet)
        loan, pool = register.loan or Generation(0, 0), register.pool or self.declared_pool()
        supply_class, cost_per_hour = rule.supply_class, rule.cost_per_hour
        lent = self._state.lent_record(self._cluster, node["metadata"]["name"])
        if lent is not None and lent.loan == loan:
            supply_class, cost_per_hour = lent.supply_class, self._cost_per_hour(lent.rule, rule)
        port = self._address.port_by_pool.get(pool, 0)
        return VirtualNodeSpec(self._cluster, loan, supply_class, cost_per_hour, self._address.host, port)

    def _cost_per_hour(self, rule_name: str, instead: LendingRule) -> float:
        """Returns the cost that the rule of this name declares now. instead: the rule to use if it is gone."""
        declared = self._state.declared.get(self._cluster)
        rules = declared.rules if declared is not None else ()
        return next((rule for rule in rules if rule.name == rule_name), instead).cost_per_hour

    def _is_wanted(self, node: str, state: str) -> bool:
        verdict, of_state = self._verdicts.get(node, (None, ""))
        # A verdict from before the node came back did not check its idle time, so that it cannot begin a new loan.
        return verdict is not None and verdict.is_wanted and (state != OWNED or of_state == OWNED)

    def _recall_cause(self, node: str, loan: Generation | None) -> str:
        """Returns the cause of the node's recall, or "". A cluster that should not lend recalls all its nodes."""
        if self._state.lending_in_force(self._cluster) is None:
            return CAUSE_ASKED
        recall = self._state.recall_of(self._cluster, node, loan)
        return recall.cause if recall is not None else ""

    def _returned_seconds(self, node: str) -> float | None:
        """Returns the seconds since the node's last loan; 0 if the node is back and its end is not in the log yet."""
        if self._state.lent_record(self._cluster, node) is not None:
            return 0.0
        returned_ms = self._state.returned_ms(self._cluster, node)
        return None if returned_ms is None else max(0.0, (self._wall_ms() - returned_ms) / MILLI)
