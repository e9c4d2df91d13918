"""Turns manifests into the next declaration of a workload, and checks what users may declare.

A declaration includes its generations and the templates that still roll.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.core.feasibility.reservation import is_rolling
from planner.core.knowledge.declared import declaration_bytes
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, is_workload_gone
from planner.core.manifests.kinds import first_unchangeable_field, template_content
from planner.core.manifests.request import Declaration
from planner.core.manifests.templates import manifests_by_generation, template_number
from planner.core.placement.outlook import rollout_stopped_in
from planner.core.requests.cluster_names import refusal_naming_clusters, unknown_cluster_error
from spillway.api import RequestError, invalid_argument_error
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX
from spillway.model import Answered, EarlierTemplate, Generation, ObjectReference, Part, Policy, Shape
from spillway.reasons import NAMESPACE_FULL

ROLLING_SHAPES_MAX = 8
TEMPLATES_MAX = 8
"""The most templates of one workload that clusters may have at the same time."""


def next_declaration(state: PlannerState, declaration: Declaration, known: Workload | None) -> WorkloadDeclared:
    references = tuple(ObjectReference(e.kind, declaration.namespace, e.name) for e in declaration.dependencies)
    generation, template_generation = 1, 1
    rolling_from: tuple[Shape, ...] = ()
    answered: tuple[Answered, ...] = ()
    replicas, scale_generation = _declared_replicas(state, declaration, known)
    if known is not None:
        before = known.declared
        answered = before.answered
        old_template = _template_json(before)
        rolling_from = _rolling_shapes(state, known)
        template_generation = before.template_generation
        if old_template != declaration.template:
            template_generation += 1
            borne = (known.template_of(part).shape for part in known.parts.values())
            rolling_from = tuple(dict.fromkeys((*rolling_from, *borne)))[-ROLLING_SHAPES_MAX:]
        changed = (
            before.deleting
            or before.disowning
            or old_template != declaration.template
            or before.replicas != replicas
            or before.policy != declaration.policy
            or before.manifest != declaration.manifest
            or before.dependencies != references
            or _has_changed_dependencies(state, declaration)
        )
        generation = before.generation + 1 if changed else before.generation
    return WorkloadDeclared(
        namespace=declaration.namespace,
        name=declaration.name,
        kind=declaration.kind,
        generation=generation,
        template_generation=template_generation,
        manifest=declaration.manifest,
        replicas=replicas,
        policy=declaration.policy,
        dependencies=references,
        rolling_from=rolling_from,
        answered=answered,
        deleting=False,
        scale_generation=scale_generation,
    )


def _declared_replicas(
    state: PlannerState, declaration: Declaration, known: Workload | None
) -> tuple[int, Generation | None]:
    """Returns the number of replicas, and the generation of the scale policy's decision that it comes from.

    With a scale policy, the manifest's number is only the first one; the policy decides all later numbers.
    """
    before = known.declared if known is not None else None
    last = before.scale_generation if before is not None else None
    is_new = known is None or is_workload_gone(known)
    decided = state.scalings.newer_decision(declaration, None if is_new else last)
    if decided is not None:
        return decided.replicas, decided.generation
    keeps = declaration.replicas is None or (last is not None and state.scalings.scaled_by(declaration) != "")
    if before is not None and not is_new and keeps:
        return before.replicas, last
    return 1 if declaration.replicas is None else declaration.replicas, last


def with_earlier_templates(
    declared: WorkloadDeclared, known: Workload | None, parts: Sequence[Part], *, may_stop: bool = True
) -> WorkloadDeclared:
    """Returns the declaration with the manifests of exactly the earlier templates that these parts have.

    It also names the cluster in which its rollout stopped, if it did. may_stop: whether these parts may stop the
    rollout. Raises RequestError (FAILED_PRECONDITION) when there are too many templates, or they are too large for one
    record.
    """
    if known is None:
        return declared
    numbers = {template_number(part, declared) for part in parts if not part.removing}
    borne = manifests_by_generation(known.declared, numbers - {declared.template_generation})
    name = f"workload {declared.namespace}/{declared.name}"
    if len(borne) >= TEMPLATES_MAX:
        raise RequestError(
            "FAILED_PRECONDITION",
            f"{name}: clusters have {len(borne)} earlier templates: expected fewer than {TEMPLATES_MAX}; "
            "wait for its rollout, or apply with rollout: all",
        )
    size = sum(len(manifest) for manifest in (*borne.values(), declared.manifest))
    if borne and size > MANIFEST_BYTES_MAX:
        raise RequestError(
            "FAILED_PRECONDITION",
            f"{name}: its manifest and those that clusters still have are {size} bytes: expected at most "
            f"{MANIFEST_BYTES_MAX}; wait for its rollout, or apply with rollout: all",
        )
    return replace(
        declared,
        earlier_templates=tuple(EarlierTemplate(*entry) for entry in borne.items()),
        rollout_stopped_in=rollout_stopped_in(known, declared, parts) if may_stop else declared.rollout_stopped_in,
    )


def _template_json(declared: WorkloadDeclared) -> bytes:
    template = template_content(json.loads(declared.manifest))
    return json.dumps(template, sort_keys=True, separators=(",", ":")).encode()


def _rolling_shapes(state: PlannerState, known: Workload) -> tuple[Shape, ...]:
    for part in known.parts.values():
        view = state.clusters.get(part.cluster)
        facts = view.facts.get(known.workload_key) if view is not None else None
        if is_rolling(part, facts, known.declared.rolling_from):
            return known.declared.rolling_from
    return ()


def _has_changed_dependencies(state: PlannerState, declaration: Declaration) -> bool:
    known = (
        state.declared.dependencies.get((entry.kind, declaration.namespace, entry.name))
        for entry in declaration.dependencies
    )
    return any(
        one is None or one.manifest != entry.manifest
        for one, entry in zip(known, declaration.dependencies, strict=True)
    )


def dependency_records(
    state: PlannerState, declaration: Declaration, declared: WorkloadDeclared
) -> tuple[DependencyDeclared, ...]:
    """Returns records of the objects that go along, and records without content for objects that are not listed now.

    Without the second kind, the log and its readers would keep the content as long as the workload exists. These
    records are no tombstones: another workload may have the name by now, with its record in another partition. A reader
    that reads the tombstone last would forget that record.
    """
    owner = f"{declaration.namespace}/{declaration.name}"
    listed = {(entry.kind, entry.name) for entry in declaration.dependencies}
    emptied = (
        replace(entry, workload_generation=declared.generation, manifest=b"")
        for entry in state.declared.dependencies_with_content((declared.namespace, declared.name))
        if (entry.kind, entry.name) not in listed
    )
    return (
        *(
            DependencyDeclared(entry.kind, declared.namespace, entry.name, owner, declared.generation, entry.manifest)
            for entry in declaration.dependencies
        ),
        *emptied,
    )


def check_kind(known: Workload | None, declaration: Declaration) -> None:
    """Raises RequestError if the workload is declared with another kind. A name has one kind until it is deleted."""
    if known is None or is_workload_gone(known):
        return
    name, before = f"workload {declaration.namespace}/{declaration.name}", known.declared
    if before.kind != declaration.kind:
        text = f"{name}: it is a {before.kind}: expected the same kind, not {declaration.kind}; delete it first"
        raise RequestError("FAILED_PRECONDITION", text)


def check_unchangeable(known: Workload | None, declaration: Declaration) -> None:
    """Raises RequestError if a field changes that API servers do not let change, once a cluster may have the object."""
    if known is None or is_workload_gone(known) or not known.parts:
        return
    name = f"workload {declaration.namespace}/{declaration.name}"
    field = first_unchangeable_field(json.loads(known.declared.manifest), json.loads(declaration.manifest))
    if field:
        text = f"{name}: {declaration.kind}.spec.{field} cannot be changed in a cluster; delete it first"
        raise RequestError("FAILED_PRECONDITION", text)


def check_dependencies(state: PlannerState, declaration: Declaration) -> None:
    owner = f"{declaration.namespace}/{declaration.name}"
    seen = set()
    for entry in declaration.dependencies:
        known = state.declared.dependencies.get((entry.kind, declaration.namespace, entry.name))
        if known is not None and known.workload != owner and _is_dependency_listed(state, known):
            raise RequestError(
                "FAILED_PRECONDITION",
                f"{entry.kind} {declaration.namespace}/{entry.name}: it belongs to workload {known.workload}: "
                "expected a dependency of this workload alone",
            )
        if (entry.kind, entry.name) in seen:
            raise invalid_argument_error("manifests", f"{entry.kind} {entry.name} twice", "each object once")
        seen.add((entry.kind, entry.name))


def _is_dependency_listed(state: PlannerState, dependency: DependencyDeclared) -> bool:
    namespace, _, name = dependency.workload.partition("/")
    owner = state.workloads.get((namespace, name))
    wanted = ObjectReference(dependency.kind, dependency.namespace, dependency.name)
    return owner is not None and wanted in owner.declared.dependencies


def check_namespace_limits(state: PlannerState, declared: WorkloadDeclared, along: Iterable[bytes]) -> None:
    """Raises RequestError (FAILED_PRECONDITION) when a declaration makes its namespace larger than allowed.

    A declaration that does not make it larger passes. along: the manifests of the objects that go along; each planner
    and the log keep them as long as they are declared. Answers that are already kept count. The answer to this request
    does not count, because it must be kept.
    """
    key, rules = (declared.namespace, declared.name), state.rules
    held, before = state.declared.usage_of_namespace(declared.namespace), state.declared.workload_bytes(key)
    most, size = rules.namespace_bytes_max, declaration_bytes(declared, along)
    whose = f"workload {declared.namespace}/{declared.name}: namespace {declared.namespace}"
    if key not in state.workloads and held.workloads >= rules.namespace_workloads_max:
        text = (
            f"{whose}: {held.workloads} workloads are declared, or deleted and not forgotten yet: expected fewer than "
            f"{rules.namespace_workloads_max}; delete some that are not needed"
        )
        raise _namespace_full_error(
            text, declared.namespace, "workloads", held.workloads + 1, rules.namespace_workloads_max
        )
    total = held.size - before + size
    if size > before and total > most:
        text = (
            f"{whose}: its manifests and policies, and what is kept with them, would be {total} bytes: "
            f"expected at most {most}; "
            "delete workloads that are not needed, or make their ConfigMaps smaller"
        )
        raise _namespace_full_error(text, declared.namespace, "bytes", total, most)


def _namespace_full_error(text: str, namespace: str, what: str, count: int, most: int) -> RequestError:
    details = {"namespace": namespace, what: str(count), f"{what}_max": str(most)}
    return RequestError("FAILED_PRECONDITION", text, NAMESPACE_FULL, details)


def check_policy(state: PlannerState, declaration: Declaration) -> None:
    """Raises RequestError, in the words of the manifest, for a policy that names an unknown cluster or selects none."""
    try:
        _check_policy_clusters(state, declaration.policy)
    except RequestError as error:
        raise error.with_words(declaration.policy_words) from None


def _check_policy_clusters(state: PlannerState, policy: Policy) -> None:
    """Raises RequestError for the first name of an unknown cluster: in selectors of tiers, in weights, in limits.

    Then raises it if no tier selects any cluster of the fleet.
    """
    clusters = state.joined_clusters()
    names = {cluster.cluster for cluster in clusters}
    weights = [(f"tiers[{index}].weights", tier.weights) for index, tier in enumerate(policy.tiers)]
    weights += [("strategy.weights", policy.strategy.weights)] if policy.strategy is not None else []
    selectors = [(f"tiers[{index}].clusters", tier.clusters) for index, tier in enumerate(policy.tiers)]
    selectors += [
        (f"{field}[{index}].clusters", entry.clusters) for field, those in weights for index, entry in enumerate(those)
    ]
    asked = [(f"{field}.names", name) for field, selector in selectors for name in selector.names]
    asked += [(f"limits[{index}].cluster", limit.cluster) for index, limit in enumerate(policy.limits)]
    for field, name in asked:
        if name not in names:
            raise unknown_cluster_error(state, f"PlacementPolicy.spec.{field}", name)
    if not any(clusters.cluster_index.select_clusters(tier.clusters) for tier in policy.tiers):
        text = "PlacementPolicy.spec.tiers: no cluster of the fleet matches:"
        raise refusal_naming_clusters(state, "FAILED_PRECONDITION", text)
