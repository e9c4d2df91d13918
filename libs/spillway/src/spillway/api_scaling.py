"""What is asked of hpa over gRPC, as values; proto/spillway/v1/scaling.proto says what each call means.

Times are whole milliseconds of Unix time, ages milliseconds, amounts milli-units. -1 stands for a number that there is
not.
"""

from dataclasses import dataclass

from spillway.events_scaling import BacklogObserved, LoadObserved
from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class DeclarePolicyRequest:
    """manifest: one object as JSON or YAML. plan_only: nothing is kept."""

    manifest: str
    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class DeletePolicyRequest:
    """name: of the workload; empty: policy is the policy's own name, and kind says which of two with one name."""

    namespace: str
    name: str = ""
    policy: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GetPolicyRequest:
    """As DeletePolicyRequest."""

    namespace: str
    name: str = ""
    policy: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ListPoliciesRequest:
    namespace: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class ExplainPolicyRequest:
    """As DeletePolicyRequest."""

    namespace: str
    name: str = ""
    policy: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """A policy, of the workload `name`. replicas: declared now. replicas_desired: of the last decision.

    targets: metrics against targets in one line, for people. changed: by this call. stale: from a standby.
    """

    namespace: str
    name: str
    kind: str
    policy: str
    generation: Generation
    manifest: str
    declared_ms: int
    changed: bool
    warnings: tuple[str, ...]
    replicas_min: int
    replicas_max: int
    replicas: int
    replicas_desired: int
    targets: str
    stale: bool = False


@dataclass(frozen=True, slots=True)
class ListPoliciesReply:
    policies: tuple[PolicyReply, ...]
    next_page_token: str
    stale: bool


@dataclass(frozen=True, slots=True)
class ExplainedMetric:
    """What a metric said and asked for. age_ms: of the oldest sample in it, at the decision's instant.

    target, value: as people write them. active: of a trigger, that there is work. detail: true lag, failures in a row.
    """

    metric: str
    source: str
    target: str
    value: str
    value_milli: int
    target_milli: int
    age_ms: int
    replicas: int
    active: bool
    trouble: str
    detail: str


@dataclass(frozen=True, slots=True)
class ExplainedRule:
    """A rule that made another number of one: pods, window, rate, bounds, calendar, activation, cooldown, fallback."""

    rule: str
    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class ScaleCondition:
    """type, status, reason, message: in Kubernetes' (of a ScaledObject also KEDA's) words."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodsInCluster:
    """sampled: those with a sample that counts. lost: they stand here as they were last seen."""

    cluster: str
    pods: int
    ready: int
    sampled: int
    lost: bool
    age_ms: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ExplainPolicyReply:
    """asked: the largest number that a metric asked for, asked_by: that metric. rules: what made the decision of it.

    decided_ms: the instant that it was last decided for, 0 never. due_ms: when time alone may change it, 0 never.
    """

    policy: PolicyReply
    decided_ms: int
    asked: int
    asked_by: str
    metrics: tuple[ExplainedMetric, ...]
    rules: tuple[ExplainedRule, ...]
    conditions: tuple[ScaleCondition, ...]
    pods: tuple[PodsInCluster, ...]
    due_ms: int
    due_why: str
    changed_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRequest:
    loads: tuple[LoadObserved, ...] = ()
    backlogs: tuple[BacklogObserved, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """code: OK, or the name of a gRPC status; text names the field, the value and what was expected."""

    code: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReportReply:
    """In the order of the request."""

    loads: tuple[ReportAnswer, ...]
    backlogs: tuple[ReportAnswer, ...]
