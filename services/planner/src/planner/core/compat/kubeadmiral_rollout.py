"""Reproduces one call of KubeAdmiral's rollout planner: one maxSurge and one maxUnavailable, spent over all clusters.

Compatible, its oddities included (docs/strategies.md): a cluster left with neither gets one pod of budget all the same.
Our own rollouts (knowledge/rollout_turns.py, placement/outlook.py) never exceed the budget. Only the comparison with
KubeAdmiral (lab/vectors) and tests use this module: no strategy of a policy calls it. Source of the rules:
KubeAdmiral's rollout planner as it was before its removal in August 2023, read in November 2026.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

TOO_LOW = "desired_total_too_low"
OUT_OF_BOUNDS = "planned_total_out_of_bounds"


@dataclass(frozen=True, slots=True)
class RolloutTarget:
    """A cluster in a rollout. All counts are pods.

    desired, replicas: the replicas that the cluster should have, and the replicas in its object now.
    actual, available: the pods that exist, and how many of them are available.
    updated, updated_available: the pods with the new template, and the available ones; 0 until the cluster has it.
    current_new, current_new_available: the pods with the template that the cluster has now, and the available ones.
    template_updated: whether the cluster has the new template.
    max_surge, max_unavailable: the values in its object now.
    """

    cluster: str
    desired: int
    replicas: int
    actual: int
    available: int
    updated: int
    updated_available: int
    current_new: int
    current_new_available: int
    template_updated: bool
    max_surge: int
    max_unavailable: int

    @property
    def is_updating(self) -> bool:
        return self.current_new < self.replicas or (self.template_updated and self.updated < self.replicas)

    @property
    def least_surge(self) -> int:
        """Returns the surge that the cluster may be using already: pods above its replicas."""
        there = max(0, self.actual - self.replicas)
        if not self.is_updating:
            return there
        return max(there, min(self.max_surge, there + self.replicas - self.current_new))

    @property
    def least_unavailable(self) -> int:
        """Returns the unavailable pods that the cluster may have already: how many it lacks of its replicas."""
        there = max(0, self.replicas - self.available)
        if not self.is_updating:
            return there
        return max(there, min(self.max_unavailable, self.replicas - self.current_new_available))


@dataclass(frozen=True, slots=True)
class RolloutFleet:
    """The whole rollout: its budgets in pods, the replicas of all clusters together, and the clusters."""

    max_surge: int
    max_unavailable: int
    replicas: int
    targets: Sequence[RolloutTarget]


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The instructions for a cluster now.

    None means the template's own value for max_surge and max_unavailable, and the desired number for replicas.
    only_replicas: whether the cluster changes its replicas and does not get the new template yet.
    """

    replicas: int | None = None
    max_surge: int | None = None
    max_unavailable: int | None = None
    only_replicas: bool = False


@dataclass(frozen=True, slots=True)
class RolloutBudgets:
    surge: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The steps by cluster; a cluster without one waits. rejected: why no cluster has a step; None if some may."""

    steps: Mapping[str, RolloutStep]
    rejected: str | None = None


def plan_rollout(fleet: RolloutFleet) -> RolloutPlan:
    """Plans one round: the step of each cluster now."""
    if is_scaling(fleet):
        return RolloutPlan({target.cluster: RolloutStep() for target in fleet.targets})
    steps = _Spender(fleet).steps_by_cluster()
    rejected = _rejection_reason(fleet, steps)
    return RolloutPlan({} if rejected else steps, rejected)


def is_scaling(fleet: RolloutFleet) -> bool:
    """Returns whether replicas only grow or only shrink, and every pod is of the newest version."""
    grows = any(target.desired > target.replicas for target in fleet.targets)
    shrinks = any(target.desired < target.replicas for target in fleet.targets)
    return grows != shrinks and all(
        target.updated >= target.replicas and not _is_rolling_by_surge(fleet, target) for target in fleet.targets
    )


def _is_rolling_by_surge(fleet: RolloutFleet, target: RolloutTarget) -> bool:
    """Returns whether the cluster still rolls with maxSurge only, although the fleet does not."""
    by_surge = target.max_surge > 0 and target.max_unavailable == 0
    fleet_by_surge = fleet.max_surge > 0 and fleet.max_unavailable == 0
    return by_surge and not fleet_by_surge and target.updated_available < target.replicas


def remaining_budgets(fleet: RolloutFleet) -> RolloutBudgets:
    """Returns the budgets left to spend; negative when more is in use than allowed."""
    ahead = sum(target.replicas for target in fleet.targets) - fleet.replicas
    surge = fleet.max_surge - ahead - sum(target.least_surge for target in fleet.targets)
    unavailable = fleet.max_unavailable + ahead - sum(target.least_unavailable for target in fleet.targets)
    return RolloutBudgets(surge, unavailable)


class _Spender:
    """Spends the budgets on the clusters in the order of KubeAdmiral's planner."""

    def __init__(self, fleet: RolloutFleet) -> None:
        self._fleet = fleet
        left = remaining_budgets(fleet)
        self._surge, self._unavailable = left.surge, left.unavailable
        self._steps: dict[str, RolloutStep] = {}

    def steps_by_cluster(self) -> dict[str, RolloutStep]:
        targets = sorted(self._fleet.targets, key=lambda target: target.cluster)
        growing = [target for target in targets if target.desired > target.replicas]
        shrinking = [target for target in targets if target.desired < target.replicas]
        same = [target for target in targets if target.desired == target.replicas]
        for target in growing:
            self._plan_update(target, target.replicas)
        for target in shrinking:
            self._plan_shrink(target)
        for target in same:
            self._plan_update(target, None)
        for target in growing:
            self._plan_growth(target)
        for target in shrinking:
            self._plan_shrunk_update(target)
        return self._steps

    def _plan_shrink(self, target: RolloutTarget) -> None:
        least = 0 if target.is_updating else target.least_unavailable
        if self._unavailable <= 0 and least <= 0:
            return
        count = min(self._unavailable + least, target.replicas - target.desired)
        if count < 0:
            return
        self._unavailable -= max(0, count - least)
        self._steps[target.cluster] = RolloutStep(target.replicas - count, only_replicas=True)

    def _plan_growth(self, target: RolloutTarget) -> None:
        if not target.template_updated and target.replicas:
            return
        least = 0 if target.is_updating else target.least_surge
        if self._surge <= 0 and least <= 0:
            return
        count = min(self._surge + least, target.desired - target.replicas)
        if count < 0:
            return
        self._surge -= max(0, count - least)
        before = self._steps.get(target.cluster, RolloutStep(only_replicas=True))
        self._steps[target.cluster] = replace(before, replicas=target.replicas + count)

    def _plan_shrunk_update(self, target: RolloutTarget) -> None:
        """Updates a cluster that shrinks.

        Unavailable pods are removed first, so they use less of the budget. A surge that is in use does not let the
        update begin, unlike in _plan_update.
        """
        step = self._steps.get(target.cluster)
        to = target.replicas if step is None or step.replicas is None else step.replicas
        removed = 0 if target.is_updating else target.replicas - to
        least = max(0, target.least_unavailable - removed)
        if least > 0 or not self._is_out_of_budget(target):
            self._spend_budgets(target, to, least)

    def _plan_update(self, target: RolloutTarget, replicas: int | None) -> None:
        least = target.least_unavailable
        if least > 0 or target.least_surge > 0 or not self._is_out_of_budget(target):
            self._spend_budgets(target, replicas, least)

    def _is_out_of_budget(self, target: RolloutTarget) -> bool:
        spent = self._surge <= 0 and self._unavailable <= 0
        return spent and not target.template_updated and not target.is_updating

    def _spend_budgets(self, target: RolloutTarget, replicas: int | None, least_unavailable: int) -> None:
        least_surge = target.least_surge
        surge = self._allot_budget(self._surge, least_surge, target.max_surge, target.replicas - target.updated)
        short = self._allot_budget(
            self._unavailable, least_unavailable, target.max_unavailable, target.replicas - target.updated_available
        )
        self._surge -= max(0, surge[0] - least_surge)
        self._unavailable -= max(0, short[0] - least_unavailable)
        self._steps[target.cluster] = self._final_step(target, RolloutStep(replicas, surge[1], short[1]))

    @staticmethod
    def _allot_budget(budget: int, least: int, own: int, to_do: int) -> tuple[int, int]:
        value = max(0, min(budget + least, to_do))
        return value, own if budget < 0 and least > own and value > own else value

    def _final_step(self, target: RolloutTarget, step: RolloutStep) -> RolloutStep:
        flips = _is_rolling_by_surge(self._fleet, target)
        if target.updated >= target.replicas and not flips:
            return replace(step, max_surge=None, max_unavailable=None)
        if step.max_surge or step.max_unavailable:
            return step
        if target.max_surge > 0 and target.max_unavailable == 0:
            return replace(step, max_surge=1)
        return replace(step, max_unavailable=1)


def _rejection_reason(fleet: RolloutFleet, steps: Mapping[str, RolloutStep]) -> str | None:
    desired = sum(target.desired for target in fleet.targets)
    current = sum(target.replicas for target in fleet.targets)
    if fleet.replicas - desired > fleet.max_unavailable:
        return TOO_LOW
    planned = sum(_replicas_after_step(target, steps.get(target.cluster)) for target in fleet.targets)
    least = min(current, desired) - fleet.max_unavailable
    most = max(current, desired) + fleet.max_surge
    return None if least <= planned <= most else OUT_OF_BOUNDS


def _replicas_after_step(target: RolloutTarget, step: RolloutStep | None) -> int:
    if step is None:
        return target.replicas
    return target.desired if step.replicas is None else step.replicas
