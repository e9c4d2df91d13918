"""The messages of hpa's gRPC API as values. Each call is described in proto/spillway/v1/scaling.proto.

Times are whole milliseconds of Unix time, ages are milliseconds, amounts are milli-units. -1 means unknown.
"""

from dataclasses import dataclass

from spillway.events_scaling import BacklogObserved, LoadObserved
from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class DeclarePolicyRequest:
    """Declares a scale policy. manifest: one object as JSON or YAML. plan_only: nothing is stored."""

    manifest: str
    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class DeletePolicyRequest:
    """Deletes a scale policy. name: of the workload.

    policy, kind: used when name is empty. policy: the policy's own name. kind: selects one of two policies of one name.
    """

    namespace: str
    name: str = ""
    policy: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GetPolicyRequest:
    """Asks for a scale policy, selected as in DeletePolicyRequest."""

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
    """Asks why a scale policy decided as it did. The policy is selected as in DeletePolicyRequest."""

    namespace: str
    name: str = ""
    policy: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """A scale policy of the workload `name`.

    replicas: the declared size. replicas_desired: the size of the last decision. changed: True if this call changed it.
    stale: True if a standby answers. targets: a line for the user, with all metrics and their targets.
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
    """The value of a metric, and the replicas that it asked for.

    age_ms: the age of its oldest sample at the instant of the decision. target, value: texts with units.
    active: for a trigger, True if there is work. detail: the true lag, or the failures in a row.
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
    """A rule that changed the number: pods, window, rate, bounds, calendar, activation, cooldown or fallback."""

    rule: str
    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class ScaleCondition:
    """A condition. type, status, reason, message: in Kubernetes' words; for a ScaledObject also in KEDA's."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodsInCluster:
    """The pods of a workload in one cluster.

    sampled: the number of pods with a usable sample. lost: True if the cluster is lost; the numbers are the last known.
    """

    cluster: str
    pods: int
    ready: int
    sampled: int
    lost: bool
    age_ms: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ExplainPolicyReply:
    """The explanation of a scale policy's last decision.

    asked: the largest number that a metric asked for. asked_by: that metric. rules: the rules that changed it
    afterwards.
    decided_ms: the instant of the last decision, 0 for none.
    due_ms: the instant at which it may change without a new record; 0 for none.
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
    """The answer to one reported value.

    code: OK, or the name of a gRPC status. text: names the field, its value and the expected value.
    """

    code: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReportReply:
    """The answers to a report, in the order of the request."""

    loads: tuple[ReportAnswer, ...]
    backlogs: tuple[ReportAnswer, ...]
