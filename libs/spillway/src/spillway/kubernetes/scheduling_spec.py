"""The fields of a pod's spec about nodes and other pods. They are read strictly, and not interpreted here."""

from typing import Any

import msgspec


class Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: Any = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: Any = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TolerationSpec(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a pod's spec about nodes, except the resources that it requests."""

    node_selector: dict[str, str] = {}
    node_name: str = ""
    affinity: Affinity = Affinity()
    tolerations: tuple[TolerationSpec, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduler_name: str = "default-scheduler"
    runtime_class_name: str = ""
    resource_claims: tuple[dict[str, Any], ...] = ()
    scheduling_gates: tuple[dict[str, Any], ...] = ()
    workload_ref: dict[str, Any] | None = None
    scheduling_group: dict[str, Any] | None = None
    volumes: tuple[dict[str, Any], ...] = ()
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
