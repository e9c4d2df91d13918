"""Decides requests to declare and delete scale policies: which events to write, and the answer. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from hpa.core.draft import Draft
from hpa.core.heard.heard_record import WorkloadKey
from hpa.core.manifests.attached import AttachedPolicy, read_attached
from hpa.core.manifests.scale_policy import ScalePolicy
from hpa.core.own.calendar import SinglePeriod
from hpa.core.requests.answers import find_policy, policy_reply
from hpa.core.scaled import ScaledWorkload
from hpa.core.state import HpaState
from spillway.addresses import SCALE, SCALE_POLICIES, SCALE_STATE, Tombstone, workload_address
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, PolicyReply
from spillway.events import Event
from spillway.events_scaling import ScalePolicyDeclared
from spillway.kubernetes.manifest_text import canonical_json, read_object
from spillway.model import NO_GENERATION, Generation

Written = Event | Tombstone
Unasked = Callable[[ScalePolicyDeclared], tuple[str, ...]]
"""Returns the metrics that a policy needs but hpa does not read itself, as texts for a warning."""


class PolicyDecision(NamedTuple):
    """The events and the answer of a request.

    draft: applied to the state once the records of the events are made; None: the state stays unchanged.
    """

    events: list[Written]
    reply: PolicyReply
    draft: Draft | None = None


class LeftBefore(Exception):
    """Raised if decisions of a workload are still due. They must be made before its policy changes."""

    def __init__(self, key: WorkloadKey) -> None:
        super().__init__(key)
        self.key = key


NOT_DECLARED: Final = (
    "scaleTargetRef: no workload of this name is declared yet; the policy takes effect when it is declared"
)


def read_request(
    state: HpaState, request: DeclarePolicyRequest, generation: Generation, now_ms: int
) -> tuple[AttachedPolicy, ScalePolicyDeclared]:
    """Returns the policy of the request, and the event that declares it. Raises RequestError."""
    text = canonical_json(read_object(request.manifest, "manifest"))
    as_followed = read_object(text.decode(), "manifest, as JSON")  # Reads the text as followers will.
    policy = read_attached(as_followed, state.rules.settings.downscale_stabilization_ms)
    key = (policy.target.namespace, policy.target.name)
    return policy, ScalePolicyDeclared(*key, generation, policy.kind, policy.name, text, now_ms)


def declare_policy(
    state: HpaState, request: DeclarePolicyRequest, generation: Generation, now_ms: int, unasked: Unasked
) -> PolicyDecision:
    """Decides a request to declare a policy. The decision has no events when the same policy was declared before.

    Raises RequestError or LeftBefore. Does not change the state.
    """
    policy, event = read_request(state, request, generation, now_ms)
    key = (event.namespace, event.name)
    text = event.manifest
    known = state.policies.policy_of(key)
    if known is not None and (known.declared.kind, known.declared.policy) != (policy.kind, policy.name):
        raise RequestError(
            "FAILED_PRECONDITION",
            f"{'/'.join(key)}: {known.declared.kind} {known.declared.policy} scales it already:"
            " a workload has at most one scale policy; delete that one first",
        )
    warnings = (
        *unasked(event),
        *_ended_window_warnings(policy, now_ms),
        *_cut_replicas_warnings(policy, state.current_replicas(key)),
    )
    if known is not None and known.declared.manifest == text:
        return PolicyDecision([], _reply_with_warnings(policy_reply(state, known), warnings))
    if request.plan_only:
        planned = ScaledWorkload(replace(event, generation=NO_GENERATION), policy)
        return PolicyDecision([], _reply_with_warnings(policy_reply(state, planned, changed=True), warnings))
    if not state.is_fully_decided(key):
        raise LeftBefore(key)
    events: list[Written] = []
    same = state.policies.policies_named(policy.target.namespace, policy.name, policy.kind)  # For any workload.
    others = [one.key for one in same if one.key != key]
    draft = Draft(state, (key, *others))
    for left in others:
        draft.state.forget_policy(left)
        events.extend(_tombstones_of_policy(*left))
        warnings = (*warnings, f"{'/'.join(left)}: not scaled by it any more, keeps the replicas that it has")
    events.extend(draft.state.put_policy_in_force(event))
    reply = policy_reply(draft.state, draft.state.scaled[key], changed=True)
    return PolicyDecision(events, _reply_with_warnings(reply, warnings), draft)


def _ended_window_warnings(policy: AttachedPolicy, now_ms: int) -> Iterable[str]:
    """Yields a warning for each window of the calendar that ended in the past and never opens again."""
    windows = policy.wanted.calendar if isinstance(policy.wanted, ScalePolicy) else ()
    for index, window in enumerate(windows):
        if isinstance(window.times, SinglePeriod) and 1000 * window.times.until_s <= now_ms:
            yield f"ScalePolicy.spec.calendar[{index}].until: window {window.name} is over: it has no effect"


def _cut_replicas_warnings(policy: AttachedPolicy, replicas: int) -> Iterable[str]:
    """Yields a warning when the policy removes replicas at once, as every HorizontalPodAutoscaler does.

    replicas: the present number of replicas.
    """
    if replicas > policy.most:
        now = f"{policy.target.namespace}/{policy.target.name}: {replicas} replicas now"
        yield f"{now}, above the maximum of {policy.most}: they are cut to {policy.most}"


def _reply_with_warnings(reply: PolicyReply, warnings: tuple[str, ...]) -> PolicyReply:
    not_declared = () if reply.replicas >= 0 else (NOT_DECLARED,)
    return replace(reply, warnings=(*reply.warnings, *warnings, *not_declared))


def delete_policy(state: HpaState, request: DeletePolicyRequest) -> PolicyDecision:
    """Deletes the policy and its state; the workload keeps its size.

    Does not change the state. Raises RequestError NOT_FOUND.
    """
    scaled = find_policy(state, request)
    draft = Draft(state, (scaled.key,))
    draft.state.forget_policy(scaled.key)
    return PolicyDecision(list(_tombstones_of_policy(*scaled.key)), policy_reply(state, scaled, changed=True), draft)


def _tombstones_of_policy(namespace: str, name: str) -> Iterable[Tombstone]:
    return (Tombstone(workload_address(topic, namespace, name)) for topic in (SCALE_POLICIES, SCALE_STATE, SCALE))
