"""The specs and statuses of quotas, volume claims and volumes: the few fields that we read, as in objects.py."""

from typing import Any

from msgspec import Struct

from spillway.kubernetes.quantities import Quantity


class ScopeRequirement(Struct, frozen=True, gc=False, rename="camel"):
    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Struct, frozen=True, gc=False, rename="camel"):
    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Struct, frozen=True, gc=False, rename="camel"):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ClaimSpec(Struct, frozen=True, gc=False, rename="camel"):
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()


class ClaimStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""


class NodeRequirement(Struct, frozen=True, gc=False, rename="camel"):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class RequiredNodeSelectorTerm(Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class RequiredNodeSelector(Struct, frozen=True, gc=False, rename="camel"):
    node_selector_terms: tuple[RequiredNodeSelectorTerm, ...] = ()


class VolumeNodeAffinity(Struct, frozen=True, gc=False, rename="camel"):
    required: RequiredNodeSelector | None = None


class VolumeSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_affinity: VolumeNodeAffinity | None = None
    csi: dict[str, Any] | None = None
