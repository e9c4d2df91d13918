"""Finds the smallest changes with which more replicas would have a place.

A change is a lower request, a toleration, more nodes or a larger maximum. It is tried by planning: the workload is
divided as if placed anew on the present fleet with that change. Bisection finds the smallest amount that is enough.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from planner.core.division.situation import Division
from planner.core.division.tier_division import clusters_by_tier
from planner.core.explaining.supposing import Supposition, empty_copies_of_node
from planner.core.feasibility.kept_shapes import is_node_local
from planner.core.feasibility.quantities import quantity_text
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.placement.dividing import DivisionOptions, divide_over_fleet
from spillway.api import ExplainedChange, ExplainedCluster
from spillway.columns import columns_of
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.fit import compute_fit, replicas_on_group_node
from spillway.feasibility.node_match import TRANSIENT_TAINTS, find_untolerated_taint
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import ClusterLimit, NodeGroup, Shape, Taint, Toleration
from spillway.texts import counted_noun

PLANS_MAX = 250
NODES_MAX = 4096
CLUSTERS_TRIED_MAX = 4
TAINTS_TRIED_MAX = 8
CHANGES_OF_A_KIND_MAX = 2
BRING_ROOM = ("Nodes", "NodeGroup")
"""The kinds of changes that add nodes to the fleet. Other workloads gain room by them, too."""
STEP_BY_RESOURCE = {"cpu": 1, "memory": 2**20, "ephemeral-storage": 2**20}
"""The step by which a request is lowered; 1 for any other resource."""

Steps = Generator[None, None, None]


@dataclass(frozen=True, slots=True)
class ReplicaOutcome:
    """The replicas without a place, and the replicas outside the first tier. Fewer is better; `unplaced` counts first.

    placed: all replicas with a place. With copies in every cluster there are more than were asked for.
    """

    unplaced: int
    outside: int
    placed: int = field(default=0, compare=False)

    def is_better(self, other: "ReplicaOutcome") -> bool:
        return (self.unplaced, self.outside) < (other.unplaced, other.outside)


@dataclass(frozen=True, slots=True)
class ChangeTrial:
    """One change to try, in different amounts.

    before: the present value. most: the largest amount to try.
    plan, after, text: return, for an amount, the outcome, the new value, and the text for users.
    """

    kind: str
    cluster: str
    subject: str
    before: int
    most: int
    plan: Callable[[int], ReplicaOutcome]
    after: Callable[[int], int]
    text: Callable[[int], str]


class ChangeSearch:
    """Searches for changes in steps. found: the changes so far. notes: texts for users about the search.

    clusters: the explained clusters; without any, nothing is searched. search_changes() raises IndistinguishablePods
    when the workload's own pods cannot be distinguished from other pods.
    """

    def __init__(
        self, state: PlannerState, subject: PlacementSubject, moment: Moment, clusters: Sequence[ExplainedCluster]
    ) -> None:
        self.found: list[ExplainedChange] = []
        self.notes: list[str] = []
        self._state = state
        self._subject = replace(subject, known=None)
        self._known = subject.known
        self._supposition = Supposition(state, subject.known)
        self._moment = moment
        self._clusters = clusters
        self._plans = 0
        self._base = ReplicaOutcome(0, 0)

    def search_changes(self) -> Steps:
        """Searches in steps: plans the workload anew without a change, then with each kind of change by itself.

        It ends early if all replicas would have a good place without a change. Of each kind, the changes that place
        most replicas are kept, smaller amounts first. Notes tell when other workloads could use new room first.
        """
        if not self._clusters:
            return
        yield from self._supposition.compute_rooms(self._subject.replica_shape, self._moment.now)
        self._base = self._plan_outcome(self._supposition.supposed_state(), self._subject)
        yield
        waiting = any(entry.bound not in ("Enough", "Policy") for entry in self._clusters)
        if self._base == ReplicaOutcome(0, 0) or (self._base.unplaced == 0 and waiting):
            if waiting:
                self.notes.append("placed anew all would have a place: nothing that runs is moved to make room")
            return
        for trials in (
            self._request_trials(),
            self._toleration_trials(),
            self._node_trials(),
            self._node_group_trials(),
            self._maximum_trials(),
        ):
            found: list[ExplainedChange] = []
            for trial in trials:
                yield
                change = yield from self._smallest_change(trial)
                if change is not None:
                    found.append(change)
            found.sort(key=lambda change: (-change.placed_after, abs(change.after - change.before), change.subject))
            self.found.extend(found[:CHANGES_OF_A_KIND_MAX])
        ahead = self._replicas_waiting_ahead() if any(change.kind in BRING_ROOM for change in self.found) else {}
        if ahead:
            others = f"{counted_noun(sum(ahead.values()))} of {counted_noun(len(ahead), 'other workload')}"
            self.notes.append(f"{others} with no place go before it: they may take what more nodes bring")
        if self._plans >= PLANS_MAX:
            self.notes.append(f"the search for changes ended after {PLANS_MAX} plans")

    def _replicas_waiting_ahead(self) -> dict[WorkloadKey, int]:
        """Returns the unplaced replicas of workloads that get room before this one: those of higher priority, and those
        of the same priority that have waited longer."""
        priority = self._subject.declared.policy.priority
        since = self._known.waiting_since if self._known is not None else None
        ahead: dict[WorkloadKey, int] = {}
        for key in self._state.waiting:
            other = self._state.workloads[key]
            longer = since is None or (other.waiting_since is not None and other.waiting_since <= since)
            before = other.declared.policy.priority, longer
            if key != self._subject.workload_key and other.unplaced and before > (priority, False):
                ahead[key] = other.unplaced
        return ahead

    # ── Planning ────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan_outcome(self, state: PlannerState, subject: PlacementSubject) -> ReplicaOutcome:
        self._plans += 1
        return outcome_of_division(divide_over_fleet(state, subject, {}, self._moment, DivisionOptions(settled=True)))

    def _smallest_change(self, trial: ChangeTrial) -> Generator[None, None, ExplainedChange | None]:
        """Returns the smallest amount of a change that reaches the whole goal. If no amount does, returns the smallest
        one that improves the outcome; None if none does."""
        if trial.most < 1 or self._plans >= PLANS_MAX:
            return None
        best = trial.plan(trial.most)
        if not best.is_better(self._base):
            return None

        def is_enough(outcome: ReplicaOutcome) -> bool:
            """Returns whether the outcome reaches the goal: all replicas placed, or all in the first tier.

            If the largest change does not reach the goal, it returns whether the outcome is better than without one.
            """
            if best.unplaced == 0 and self._base.unplaced:
                return outcome.unplaced == 0
            return outcome == best if best == ReplicaOutcome(0, 0) else outcome.is_better(self._base)

        low, high, found = 0, trial.most, best
        while high - low > 1 and self._plans < PLANS_MAX:
            yield
            middle = (low + high) // 2
            outcome = trial.plan(middle)
            if is_enough(outcome):
                high, found = middle, outcome
            else:
                low = middle
        return self._explained_change(trial, high, found)

    def _explained_change(self, trial: ChangeTrial, amount: int, outcome: ReplicaOutcome) -> ExplainedChange:
        before, after = self._base.placed, outcome.placed
        if self._base.unplaced:
            effect = f"place all {after}" if outcome.unplaced == 0 else f"place {after} instead of {before}"
        else:
            effect = f"leave {outcome.outside} instead of {self._base.outside} replicas outside the first tier"
        text = f"{trial.text(amount)} would {effect}"
        return ExplainedChange(
            trial.kind, trial.cluster, trial.subject, trial.before, trial.after(amount), before, after, text
        )

    # ── What is tried ───────────────────────────────────────────────────────────────────────────────────────────

    def _request_trials(self) -> Iterator[ChangeTrial]:
        """Yields lower requests of each resource, even if no node lacks it: a quota or a promise may limit it."""
        for name, amount in self._subject.replica_shape.requests:
            if name != "pods":
                yield self._request_trial(name, amount)

    def _request_trial(self, name: str, amount: int) -> ChangeTrial:
        step = STEP_BY_RESOURCE.get(name, 1)

        def lowered_amount(steps: int) -> int:
            return amount - steps * step

        return ChangeTrial(
            kind="Request",
            cluster="",
            subject=name,
            before=amount,
            most=(amount - 1) // step,
            plan=lambda steps: self._outcome_with_shape(
                shape_with_request(self._subject.replica_shape, name, lowered_amount(steps))
            ),
            after=lowered_amount,
            text=lambda steps: (
                f"a request of {quantity_text(name, lowered_amount(steps))} {name} "
                f"instead of {quantity_text(name, amount)}"
            ),
        )

    def _toleration_trials(self) -> Iterator[ChangeTrial]:
        tolerations = self._subject.replica_shape.tolerations
        taints: dict[Taint, None] = {}
        for view in self._allowed_clusters():
            for index in sorted(set(view.nodes.taint_set[view.nodes.live_mask].tolist())):
                taint = find_untolerated_taint(view.nodes.taint_sets[index], tolerations)
                if taint is not None and not taint.key.startswith(TRANSIENT_TAINTS):
                    taints[taint] = None
        return map(self._toleration_trial, list(taints)[:TAINTS_TRIED_MAX])

    def _toleration_trial(self, taint: Taint) -> ChangeTrial:
        shape = self._subject.replica_shape
        toleration = Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
        tolerant = replace(shape, tolerations=(*shape.tolerations, toleration))
        return ChangeTrial(
            kind="Toleration",
            cluster="",
            subject=str(taint),
            before=0,
            most=1,
            plan=lambda _: self._outcome_with_shape(tolerant),
            after=lambda amount: amount,
            text=lambda _: f"a toleration of the taint {taint}",
        )

    def _node_trials(self) -> Iterator[ChangeTrial]:
        """Yields trials with more nodes in the first clusters of the policy. They are of the class that takes most."""
        for view in list(self._allowed_clusters())[:CLUSTERS_TRIED_MAX]:
            row, takes = self._best_node_class(view)
            if takes:
                yield self._more_nodes_trial(view, row, takes)

    def _more_nodes_trial(self, view: ClusterView, row: int, takes: int) -> ChangeTrial:
        like, most = view.nodes.names[row], self._most_nodes_to_try(takes)
        more = empty_copies_of_node(view, row, most)

        def plan_with_nodes(count: int) -> ReplicaOutcome:
            return self._plan_outcome(
                self._supposition.supposed_state().with_nodes(view.name, more[:count]), self._subject
            )

        return ChangeTrial(
            kind="Nodes",
            cluster=view.name,
            subject=like,
            before=0,
            most=most,
            plan=plan_with_nodes,
            after=lambda count: count,
            text=lambda count: f"{count} more node{'s' * (count != 1)} like {like} in {view.name}",
        )

    def _node_group_trials(self) -> Iterator[ChangeTrial]:
        clusters = [entry.cluster for entry in self._clusters if entry.node_groups]
        for cluster in clusters[:CLUSTERS_TRIED_MAX]:
            for group, _ in self._state.clusters[cluster].node_groups():
                takes = replicas_on_group_node(self._state.shape_in(cluster, self._subject.replica_shape), group)
                if takes:
                    yield self._wider_group_trial(cluster, group, takes)

    def _wider_group_trial(self, cluster: str, group: NodeGroup, takes: int) -> ChangeTrial:
        def plan_with_wider_group(count: int) -> ReplicaOutcome:
            return self._plan_outcome(
                self._supposition.supposed_state().with_wider_group(cluster, group.name, count), self._subject
            )

        where = f"in node group {group.name} of {cluster}"
        return ChangeTrial(
            kind="NodeGroup",
            cluster=cluster,
            subject=group.name,
            before=group.nodes_max,
            most=self._most_nodes_to_try(takes),
            plan=plan_with_wider_group,
            after=lambda count: group.nodes_max + count,
            text=lambda count: f"at most {group.nodes_max + count} nodes instead of {group.nodes_max} {where}",
        )

    def _maximum_trials(self) -> Iterator[ChangeTrial]:
        replicas = self._subject.declared.replicas
        for limit in self._subject.declared.policy.limits:
            if 0 <= limit.replicas_max < replicas:
                yield self._maximum_trial(limit, replicas)

    def _maximum_trial(self, limit: ClusterLimit, replicas: int) -> ChangeTrial:
        policy, most = self._subject.declared.policy, limit.replicas_max

        def plan_with_maximum(count: int) -> ReplicaOutcome:
            raised = replace(limit, replicas_max=most + count)
            limits = tuple(raised if entry == limit else entry for entry in policy.limits)
            declared = replace(self._subject.declared, policy=replace(policy, limits=limits))
            return self._plan_outcome(self._supposition.supposed_state(), replace(self._subject, declared=declared))

        return ChangeTrial(
            kind="Maximum",
            cluster=limit.cluster,
            subject="",
            before=most,
            most=replicas - most,
            plan=plan_with_maximum,
            after=lambda count: most + count,
            text=lambda count: f"a maximum of {most + count} instead of {most} in {limit.cluster}",
        )

    def _outcome_with_shape(self, shape: Shape) -> ReplicaOutcome:
        subject = replace(self._subject, template=replace(self._subject.template, shape=shape))
        return self._plan_outcome(
            self._supposition.supposed_state().with_shape(self._subject.replica_shape, shape), subject
        )

    def _allowed_clusters(self) -> Iterator[ClusterView]:
        """Yields the clusters whose existing nodes the policy allows, in the order of its tiers."""
        for name in dict.fromkeys(entry.cluster for entry in self._clusters if entry.tier and not entry.node_groups):
            view = self._state.clusters.get(name)
            if view is not None and view.joined is not None:
                yield view

    def _best_node_class(self, view: ClusterView) -> tuple[int, int]:
        """Returns (row, replicas) of the class whose empty node takes most; 0 replicas when none takes one."""
        shape = self._state.shape_in(view.name, self._subject.replica_shape)
        rows = [row for row, _ in view.nodes.node_classes()]
        most, row = max(
            zip(replicas_on_empty_nodes(shape, view.nodes, rows), [-row for row in rows], strict=True), default=(0, 0)
        )
        return -row, most

    def _most_nodes_to_try(self, takes: int) -> int:
        wanted = self._base.unplaced or self._base.outside
        return min(NODES_MAX, -(-wanted // takes) * 4 + 4)


def outcome_of_division(division: Division) -> ReplicaOutcome:
    assert division.basis is not None, "what is planned is divided"
    tiers = clusters_by_tier(division.basis.situation)
    first = set(tiers[0][1]) if tiers and not tiers[0][0].node_groups else set()
    kept = {name: count - division.new.get(name, 0) for name, count in division.replicas.items()}
    inside = sum(count for name, count in kept.items() if name in first)
    placed = sum(division.replicas.values())
    return ReplicaOutcome(division.unplaced, placed - inside, placed)


def shape_with_request(shape: Shape, resource: str, amount: int) -> Shape:
    requests = ((name, amount if name == resource else before) for name, before in shape.requests)
    return replace(shape, requests=tuple(requests))


def replicas_on_empty_nodes(shape: Shape, nodes: ClusterNodes, rows: Sequence[int]) -> list[int]:
    """Returns the replicas that an empty node of each row's class takes."""
    if not is_node_local(shape):
        return [compute_fit(shape, _emptied_nodes(nodes, (row,))).largest for row in rows]
    takes: list[int] = compute_fit(shape, _emptied_nodes(nodes, rows)).per_node[: len(rows)].tolist()
    return takes


def _emptied_nodes(nodes: ClusterNodes, rows: Sequence[int]) -> ClusterNodes:
    """Returns a table of nodes with empty copies of these rows only."""
    alone = ClusterNodes()
    alone.upsert_nodes(columns_of([nodes.empty_node_like(row, nodes.names[row]) for row in rows]), 0)
    return alone
