"""Answers requests about policies: one, all of them, and why a workload has its present size. Pure."""

from collections.abc import Iterator
from typing import Final

from hpa.core.heard.cluster_pods import is_lost
from hpa.core.kubernetes.deciding import ScaleTargetSize, replica_context_of
from hpa.core.kubernetes.go_numbers import INT64_MAX, INT64_MIN
from hpa.core.kubernetes.pods import READY, RUNNING
from hpa.core.kubernetes.policy import UTILIZATION, VALUE, Metric
from hpa.core.kubernetes.proposals import FAILURES, propose_replicas
from hpa.core.kubernetes.replicas import Proposal
from hpa.core.manifests.scale_policy import ScalePolicy
from hpa.core.scaled import RefusedPolicy, ScaledWorkload
from hpa.core.sizing.composing import MetricRead, SizingCase, SizingResult
from hpa.core.state import HpaState
from spillway.api import RequestError, invalid_argument_error
from spillway.api_scaling import (
    DeletePolicyRequest,
    ExplainedMetric,
    ExplainPolicyReply,
    ExplainPolicyRequest,
    GetPolicyRequest,
    ListPoliciesReply,
    ListPoliciesRequest,
    PodsInCluster,
    PolicyReply,
    ScaleCondition,
)
from spillway.texts import cut_text_to_bytes

PAGE_SIZE_MAX: Final = 100
"""The most policies on a page. The page computes the metrics of each one, which takes time."""
PAGE_BYTES_MAX: Final = 1024 * 1024
"""The bytes of texts on a page after which no more policy is added to it."""
TARGETS_MAX: Final = 1024
"""The most bytes of the line that shows all metrics of a policy."""
CONDITION_TYPES: Final = {
    "able_to_scale": "AbleToScale",
    "scaling_active": "ScalingActive",
    "scaling_limited": "ScalingLimited",
    "scaled_to_zero": "ScaledToZero",
    "ready": "Ready",
    "active": "Active",
    "fallback": "Fallback",
    "paused": "Paused",
    "autoscaler_active": "HPAActive",
}
STATUSES: Final = {True: "True", False: "False"}

Named = GetPolicyRequest | DeletePolicyRequest | ExplainPolicyRequest


def find_policy(state: HpaState, request: Named) -> ScaledWorkload | RefusedPolicy:
    """Returns the policy of a workload, or of that name.

    Raises RequestError NOT_FOUND when there is none, and INVALID_ARGUMENT when several have the name or none is given.
    """
    namespace = request.namespace or "default"
    if request.name:
        one = state.policies.policy_of((namespace, request.name))
        found = [] if one is None else [one]
    elif request.policy:
        found = state.policies.policies_named(namespace, request.policy)
    else:
        raise invalid_argument_error("name, policy", "", "the workload's name, or the policy's own")
    found = [one for one in found if request.kind in ("", one.declared.kind)]
    if not found:
        raise RequestError("NOT_FOUND", f"{namespace}/{request.name or request.policy}: no scale policy of this name")
    if len(found) > 1:
        kinds = ", ".join(f"{one.declared.kind} of {one.key[1]}" for one in found)
        raise invalid_argument_error("policy", request.policy, f"a policy with the workload's name, or a kind: {kinds}")
    return found[0]


def policy_reply(
    state: HpaState, one: ScaledWorkload | RefusedPolicy, *, changed: bool = False, manifest: bool = True
) -> PolicyReply:
    decided = state.decided.get(one.key)
    warnings: tuple[str, ...]
    if isinstance(one, RefusedPolicy):
        least = most = -1
        warnings, targets = (f"refused: {one.why}; nothing is decided from it",), "refused"
    else:
        least, most, warnings = one.policy.least, one.policy.most, one.policy.warnings
        targets = _targets_text(state, one)
    return PolicyReply(
        namespace=one.key[0],
        name=one.key[1],
        kind=one.declared.kind,
        policy=one.declared.policy,
        generation=one.declared.generation,
        manifest=one.declared.manifest.decode(errors="replace") if manifest else "",
        declared_ms=one.declared.declared_ms,
        changed=changed,
        warnings=warnings,
        replicas_min=least,
        replicas_max=most,
        replicas=state.current_replicas(one.key),
        replicas_desired=decided.replicas if decided is not None else -1,
        targets=targets,
    )


def _targets_text(state: HpaState, scaled: ScaledWorkload) -> str:
    """Shows metrics against their targets in one line, as many metrics as fit."""
    said, size = list[str](), 0
    for one in explained_metrics(state, scaled):
        said.append(f"{one.metric}: {one.value or '<unknown>'}/{one.target}")
        size += len(said[-1])
        if size > TARGETS_MAX:
            break
    return cut_text_to_bytes(", ".join(said), TARGETS_MAX)


class PolicyPage:
    """A page of policies, in the order of their workloads.

    The caller adds one policy at a time, so that other requests are answered in between.

    The page ends at the number of policies that was asked for, or at the bound of its texts. It has at least one policy
    if there is any. Declaring or deleting a policy meanwhile changes no policy that is on the page.
    """

    def __init__(self, state: HpaState, request: ListPoliciesRequest) -> None:
        """Begins a page. Raises RequestError if page_size is negative."""
        if request.page_size < 0:
            raise invalid_argument_error("page_size", request.page_size, "0 or more")
        self._state = state
        self._namespace = request.namespace
        self._size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
        namespace, _, name = request.page_token.partition("/")
        self._last = (namespace, name) if request.page_token else None
        self._policies: list[PolicyReply] = []
        self._bytes = 0

    def add_next_policy(self) -> bool:
        """Adds the next policy. Returns False if there is no further policy, or the page is full."""
        one = self._next_policy()
        if one is None or len(self._policies) >= self._size or self._bytes >= PAGE_BYTES_MAX:
            return False
        reply = policy_reply(self._state, one, manifest=False)
        size = sum(len(text.encode()) for text in (*one.key, reply.policy, reply.targets, *reply.warnings))
        if self._policies and self._bytes + size > PAGE_BYTES_MAX:
            self._bytes = PAGE_BYTES_MAX  # A later policy must not be added before this one.
            return False
        self._policies.append(reply)
        self._bytes += size
        self._last = one.key
        return True

    def reply(self) -> ListPoliciesReply:
        token = "/".join(self._last) if self._last is not None and self._next_policy() is not None else ""
        return ListPoliciesReply(tuple(self._policies), token, stale=False)

    def _next_policy(self) -> ScaledWorkload | RefusedPolicy | None:
        return self._state.policies.next_policy_after(self._last, self._namespace)


def list_policies(state: HpaState, request: ListPoliciesRequest) -> ListPoliciesReply:
    """Returns a page of policies in one call, without a pause for other requests. Raises RequestError."""
    page = PolicyPage(state, request)
    while page.add_next_policy():
        pass
    return page.reply()


def explain_workload(state: HpaState, scaled: ScaledWorkload | RefusedPolicy) -> ExplainPolicyReply:
    """Explains why a workload has its present size. Returns its metrics, the rules that apply, conditions and pods."""
    if isinstance(scaled, RefusedPolicy):
        return _explain_refused_policy(state, scaled)
    sized = state.last_sizing_result(scaled)
    decided = state.decided.get(scaled.key)
    return ExplainPolicyReply(
        policy=policy_reply(state, scaled),
        decided_ms=scaled.remembered.at_ms,
        asked=-1 if sized.asked is None else sized.asked,
        asked_by=sized.asked_by,
        metrics=tuple(explained_metrics(state, scaled)),
        rules=sized.rules,
        conditions=tuple(_scale_conditions(scaled, sized)),
        pods=tuple(_pods_by_cluster(state, scaled)),
        due_ms=scaled.due.at_ms if scaled.due is not None else 0,
        due_why=scaled.due.why if scaled.due is not None else "",
        changed_ms=scaled.changed_ms,
        reason=_reason_of_size(sized, decided.reason if decided is not None else ""),
    )


def _reason_of_size(sized: SizingResult, of_last_change: str) -> str:
    """Returns the reason of the last change of the size; "" if rules keep the size, because the reply lists them."""
    kept = sized.replicas is None and sized.rules
    return "" if kept else sized.reason or of_last_change


def _explain_refused_policy(state: HpaState, refused: RefusedPolicy) -> ExplainPolicyReply:
    condition = ScaleCondition(CONDITION_TYPES["scaling_active"], STATUSES[False], "PolicyRefused", refused.why)
    return ExplainPolicyReply(
        policy=policy_reply(state, refused),
        decided_ms=0,
        asked=-1,
        asked_by="",
        metrics=(),
        rules=(),
        conditions=(condition,),
        pods=(),
        due_ms=0,
        due_why="",
        changed_ms=0,
        reason="",
    )


def _scale_conditions(scaled: ScaledWorkload, sized: SizingResult) -> Iterator[ScaleCondition]:
    for one in scaled.remembered.scaling.conditions:
        yield ScaleCondition(CONDITION_TYPES[one.kind], STATUSES[one.status], one.reason, one.message)
    for kind, status, reason in sized.extra:
        yield ScaleCondition(CONDITION_TYPES[kind], status.capitalize(), reason, "")


def _pods_by_cluster(state: HpaState, scaled: ScaledWorkload) -> Iterator[PodsInCluster]:
    at_ms = scaled.remembered.at_ms
    inputs = state.inputs.get(scaled.key)
    for name, cluster in sorted(inputs.clusters.by_name.items() if inputs is not None else ()):
        fresh_ms = at_ms - state.rules.sample_age_max_ms
        yield PodsInCluster(
            cluster=name,
            pods=len(cluster.pods),
            ready=sum(
                1 for key, pod in cluster.pods.items() if (pod.phase, pod.ready, key.cluster) == (RUNNING, READY, name)
            ),
            sampled=sum(1 for pod in cluster.pods.values() if pod.usage and pod.sampled_ms >= fresh_ms),
            lost=is_lost(cluster, at_ms, state.rules),
            age_ms=max(at_ms - cluster.observed_ms, 0),
            trouble=cluster.troubles_text,
        )


# ── Metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def explained_metrics(state: HpaState, scaled: ScaledWorkload) -> Iterator[ExplainedMetric]:
    """Yields each metric with its target, and the number that it alone asks for."""
    case = state.sizing_case(scaled, max(scaled.remembered.at_ms, scaled.declared.declared_ms))
    for said in state.last_sizing_result(scaled).reads:
        read = said.read
        proposal = _proposal_of_metric(case, said)
        unit = _milli_per_unit(said.metric)
        yield ExplainedMetric(
            metric=said.name,
            source=read.source,
            target=_target_text(case, said),
            value=_value_text(said, proposal),
            value_milli=min(read.value_milli or 0, INT64_MAX),
            target_milli=(said.metric.target.amount or 0) * unit if said.metric is not None else 0,
            age_ms=max(case.now_ms - read.oldest_ms, 0) if read.oldest_ms else -1,
            replicas=proposal.replicas if proposal is not None else -1 if said.replicas is None else said.replicas,
            active=read.active,
            trouble=read.trouble,
            detail=read.detail,
        )


def _milli_per_unit(metric: Metric | None) -> int:
    """Returns the thousandths in one unit of a target's amount. Percents are whole numbers."""
    return 1000 if metric is not None and metric.target.kind == UTILIZATION else 1


def _proposal_of_metric(case: SizingCase, said: MetricRead) -> Proposal | None:
    autoscaler = case.policy.autoscaler
    if said.metric is None or autoscaler is None or case.current < 0:
        return None
    scale = ScaleTargetSize(case.current, case.inputs.status_replicas(case.current))
    seen = case.inputs.clusters.pods_seen(case.now_ms, case.rules)
    scene = replica_context_of(autoscaler, scale, seen, case.rules.settings, case.now_ms)
    try:
        return propose_replicas(said.metric, said.read.reading, scene)
    except FAILURES:
        return None


def _target_text(case: SizingCase, said: MetricRead) -> str:
    if said.metric is None:
        wanted = case.policy.wanted
        if isinstance(wanted, ScalePolicy) and wanted.drain is not None and said.name == "drain":
            return f"drained in {wanted.drain.target.within_s:g} s"
        return "what is idle"
    amount = said.metric.target.amount or 0
    if said.metric.target.kind == UTILIZATION:
        return f"{amount}%"
    return quantity_text(amount) + ("" if said.metric.target.kind == VALUE else " (avg)")


def _value_text(said: MetricRead, proposal: Proposal | None) -> str:
    if said.metric is None:
        return said.read.detail
    if proposal is None:
        return ""
    if said.metric.target.kind == UTILIZATION:
        return f"{proposal.percent}%" if proposal.percent is not None else ""
    if proposal.milli == INT64_MIN:  # This is Kubernetes' average over no replicas.
        return "" if said.read.value_milli is None else quantity_text(said.read.value_milli)
    return "" if proposal.milli is None else quantity_text(proposal.milli)


def quantity_text(milli: int) -> str:
    """Returns an amount as Kubernetes writes it: whole, or in thousandths."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
