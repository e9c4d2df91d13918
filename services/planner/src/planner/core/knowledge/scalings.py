"""Keeps scale policies and their decisions. Lists the workloads whose newest decision is not declared yet."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.manifests.kinds import JOB
from planner.core.manifests.policy import REPLICAS_MAX
from planner.core.manifests.request import Declaration
from planner.core.manifests.templates import BadDeclaration
from spillway.addresses import SCALE, SCALE_POLICIES
from spillway.events import WorkloadDeclared
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation

OWN_KIND = "ScalePolicy"
ScaleEvent = ScalePolicyDeclared | ScaleDecided


class Scalings:
    """The scaling part of the planner's state.

    policies, decided: the newest policy and decision of each workload, even if the workload is not declared. Policies
    are kept without their manifest, which only hpa reads.
    due: workloads whose newest decision can be declared now, the longest due first.
    following: workloads whose policy follows idle capacity, each with the supply classes that the policy names.
    """

    def __init__(self) -> None:
        self.policies: dict[WorkloadKey, ScalePolicyDeclared] = {}
        self.decided: dict[WorkloadKey, ScaleDecided] = {}
        self.due: dict[WorkloadKey, None] = {}
        self.following: dict[WorkloadKey, tuple[str, ...]] = {}

    def apply_event(self, event: ScaleEvent) -> None:
        """Applies one event; an older event is dropped. Raises BadDeclaration for a number of replicas out of range."""
        key = (event.namespace, event.name)
        if isinstance(event, ScalePolicyDeclared):
            known = self.policies.get(key)
            if known is None or event.generation >= known.generation:
                self.policies[key] = replace(event, manifest=b"")
                self._index_followed_classes(key, event)
            return
        if not 0 <= event.replicas <= REPLICAS_MAX:
            raise BadDeclaration(f"replicas: {event.replicas}: expected 0 to {REPLICAS_MAX}")
        decided = self.decided.get(key)
        if decided is None or event.generation > decided.generation:
            self.decided[key] = event

    def _index_followed_classes(self, key: WorkloadKey, event: ScalePolicyDeclared) -> None:
        self.following.pop(key, None)
        classes = _followed_supply_classes(event)
        if classes:
            self.following[key] = classes

    def forget_record(self, topic: str, key: WorkloadKey) -> None:
        """Forgets a policy or a decision after its tombstone."""
        if topic == SCALE_POLICIES.name:
            self.policies.pop(key, None)
            self.following.pop(key, None)
        elif topic == SCALE.name:
            self.decided.pop(key, None)

    def index_workload(self, key: WorkloadKey, workload: Workload | None) -> None:
        """Updates `due`. Call it whenever a workload, its policy or its decision has changed."""
        if (
            workload is not None
            and self.undeclared_decision(workload) is not None
            and not _has_fixed_replicas(workload)
        ):
            self.due.setdefault(key)
        else:
            self.due.pop(key, None)

    def put_off_workload(self, key: WorkloadKey) -> None:
        """Removes a workload from `due` because its decision cannot be declared, until it is indexed again."""
        self.due.pop(key, None)

    def scaled_by(self, one: Declaration | WorkloadDeclared) -> str:
        """Returns kind/name of the policy that sets the workload's replicas; empty when the user sets them."""
        policy = self.policies.get((one.namespace, one.name))
        return "" if policy is None or one.kind == JOB else f"{policy.kind}/{policy.policy}"

    def deciding_policy(self, key: WorkloadKey) -> str:
        """Returns kind/name of the policy of the newest decision."""
        decided = self.decided.get(key)
        return "" if decided is None else f"{decided.policy_kind}/{decided.policy}"

    def newest_generation(self, key: WorkloadKey, last: Generation | None) -> Generation | None:
        """Returns the newest generation decided or declared for this name. An adopted workload begins from it."""
        decided = self.decided.get(key)
        if decided is None:
            return last
        return decided.generation if last is None else max(last, decided.generation)

    def newer_decision(self, one: Declaration | WorkloadDeclared, last: Generation | None) -> ScaleDecided | None:
        """Returns the decision if it is newer than `last`, the last declared one. None without such a decision, or
        without a policy for the workload."""
        decided = self.decided.get((one.namespace, one.name))
        if decided is None or not self.scaled_by(one):
            return None
        return decided if last is None or decided.generation > last else None

    def undeclared_decision(self, workload: Workload) -> ScaleDecided | None:
        """Returns the newest decision if the workload's declaration does not follow it yet; else None."""
        return self.newer_decision(workload.declared, workload.declared.scale_generation)

    def next_due_workloads(self, most: int) -> Iterable[WorkloadKey]:
        """Returns at most `most` of the due workloads, the longest due first."""
        return list(islice(self.due, most))


def _has_fixed_replicas(workload: Workload) -> bool:
    """Returns whether the workload's replicas must not change now: it is being deleted, adopted or disowned."""
    return workload.declared.deleting or is_in_transfer(workload)


def _followed_supply_classes(event: ScalePolicyDeclared) -> tuple[str, ...]:
    """Returns the supply classes that a ScalePolicy names under headroom. Raises BadDeclaration if it is unreadable."""
    if event.kind != OWN_KIND:
        return ()
    try:
        shares = json.loads(event.manifest)["spec"].get("headroom", ())
        return tuple(dict.fromkeys(str(share["supplyClass"]) for share in shares))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadDeclaration(f"{OWN_KIND}.spec.headroom of {event.policy}: cannot be read: {error!r}") from error
