"""One workload as the planner knows it: its declaration, its templates, its placement and the statuses of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.core.feasibility.admitted import unmodelled_with_overhead
from planner.core.manifests.templates import (
    BadDeclaration,
    RolloutTemplate,
    read_earlier_templates,
    read_template,
    template_number,
)
from spillway.events import (
    STATE_CONTESTED,
    STATE_DEPENDENCY_MISSING,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_REFUSED,
    Event,
    PlacementDecided,
    WorkloadDeclared,
    WorkloadObserved,
)
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import SPLITS, STRATEGIES, ObjectReference, Part, Policy, Shape

COUNT_MAX: Final = 10**9
NOT_CREATED: Final = (STATE_REFUSED, STATE_NOT_OWNED, STATE_DEPENDENCY_MISSING, STATE_CONTESTED)
"""States of a part that its cluster did not carry out: its object does not exist, or is not as decided."""
UNNAMED: Final = (ObjectReference("something", "", "that its template names"),)
"""The missing objects to show when a propagator of an older version reports that objects are missing without a list."""


@dataclass(slots=True)
class Workload:
    """One workload and what the planner remembers of it. A restart forgets all fields from waiting_since on.

    template: read from the declaration's manifest. earlier: templates that some parts still have, by template
    generation.
    waiting_since, settled: when replicas began to wait for binds, and whether that wait is over.
    lent_since: when replicas began to wait for lent nodes.
    home_needs: by home cluster, the overflow replicas that can go home only once nodes that the cluster lent are back.
    gone_at: the time since which no part of a deleted workload is left.
    looked_at: the reasons to move that were handled as far as room allowed, and the brakes' revision at that time.
    held_by: by (cause, cluster), a text for users: the brake, confirmation or budget that moves wait for.
    barred: by (source, frozen target cluster), the replicas that would move if the target were not frozen.
    for_minima, ruled_out, tier_bits: results that misplaced.py keeps here, each with the inputs that it was computed
    from.
    """

    declared: WorkloadDeclared
    template: RolloutTemplate
    earlier: dict[int, RolloutTemplate]
    placement: PlacementDecided | None = None
    statuses: dict[str, WorkloadObserved] = field(default_factory=dict)
    waiting_since: float | None = None
    lent_since: float | None = None
    home_needs: Mapping[str, int] = field(default_factory=dict)
    settled: bool = False
    gone_at: float | None = None
    looked_at: object = None
    held_by: Mapping[tuple[str, str], str] = field(default_factory=dict)
    barred: Mapping[tuple[str, str], int] = field(default_factory=dict)
    for_minima: tuple[tuple[object, ...], Mapping[str, int]] = field(default=((), {}), repr=False, compare=False)
    ruled_out: tuple[tuple[object, ...], dict[str, int]] = field(default=((), {}), repr=False, compare=False)
    tier_bits: tuple[tuple[object, ...], tuple[int, ...]] = field(default=((), ()), repr=False, compare=False)
    _parts: tuple[PlacementDecided | None, Mapping[str, Part]] = field(default=(None, {}), init=False, repr=False)

    @property
    def workload_key(self) -> WorkloadKey:
        return (self.declared.namespace, self.declared.name)

    @property
    def replica_shape(self) -> Shape:
        """Returns the shape of a replica of the newest template."""
        return self.template.shape

    @property
    def unmodelled_names(self) -> tuple[str, ...]:
        """Returns the requirements of a replica that the planner ignores, as names to show to users."""
        return unmodelled_with_overhead(self.template.unmodelled, self.replica_shape)

    def template_of(self, part: Part) -> RolloutTemplate:
        """Returns the template that a part has."""
        if not self.earlier:
            return self.template
        return self.earlier.get(template_number(part, self.declared), self.template)

    def possible_shapes_in(self, cluster: str) -> tuple[Shape, Shape]:
        """Returns the two shapes that a new replica in a cluster may have: the newest template's and the part's."""
        part = self.parts.get(cluster)
        return self.replica_shape, self.replica_shape if part is None or part.removing else self.template_of(part).shape

    def shapes_of_templates(self) -> tuple[Shape, ...]:
        """Returns the shapes of all templates that may have pods."""
        return self.replica_shape, *(one.shape for one in self.earlier.values()), *self.declared.rolling_from

    @property
    def has_volume_claims(self) -> bool:
        """Returns whether any template that may have pods names a volume claim."""
        return any(shape.volume_claims for shape in self.shapes_of_templates())

    @property
    def parts(self) -> Mapping[str, Part]:
        """Returns the parts of the placement, by cluster."""
        placement, parts = self._parts
        if placement is not self.placement:
            parts = {part.cluster: part for part in self.placement.parts} if self.placement else {}
            self._parts = self.placement, parts
        return parts

    @property
    def unplaced(self) -> int:
        return self.placement.unplaced if self.placement else self.declared.replicas


def check_decidable(event: Event) -> None:
    """Raises BadDeclaration for an event that this planner cannot decide on.

    A number of replicas may be out of range: an array could not hold the sums. Or the policy has a strategy or split
    that this version does not know: a later version may have written it.
    """
    counts: tuple[int, ...] = ()
    if isinstance(event, WorkloadDeclared):
        counts = (event.replicas,)
        _check_policy(event.policy)
    elif isinstance(event, PlacementDecided):
        of_parts = (
            (part.replicas, part.replicas_new, part.ceiling, part.replicas_lost, part.replicas_leaving)
            for part in event.parts
        )
        counts = (event.unplaced, *(count for of_part in of_parts for count in of_part))
    for count in counts:
        if not 0 <= count <= COUNT_MAX:
            raise BadDeclaration(f"{type(event).__name__}: {count} replicas: expected 0 to {COUNT_MAX}")


def _check_policy(policy: Policy) -> None:
    if policy.strategy is not None and policy.strategy.name not in STRATEGIES:
        raise BadDeclaration(f"strategy {policy.strategy.name!r}: expected one of {', '.join(STRATEGIES)}")
    for tier in policy.tiers:
        if tier.split not in SPLITS:
            raise BadDeclaration(f"split {tier.split!r} of tier {tier.name}: expected one of {', '.join(SPLITS)}")


def read_workload(declared: WorkloadDeclared) -> Workload:
    """Returns a workload from its declaration, which was checked before. Raises BadDeclaration if unreadable."""
    return Workload(declared, read_template(declared.manifest, declared.namespace), read_earlier_templates(declared))


def is_orphan(said: WorkloadObserved) -> bool:
    return said.state == STATE_ORPHANED


def is_blocked_by_orphan(workload: Workload, part: Part) -> bool:
    """Returns whether an orphan with the workload's name blocks the part. The part then leaves the placement.

    The part's cluster must have reported the orphan at the part's version. An adopting part takes the object over.
    """
    said = workload.statuses.get(part.cluster)
    return said is not None and is_orphan(said) and said.version == part.version and not part.adopting


def refusal_status(workload: Workload, part: Part) -> WorkloadObserved | None:
    """Returns the status of a part at its version if the cluster did not create the object as decided. Else None."""
    observed = workload.statuses.get(part.cluster)
    if observed is None or observed.version != part.version or observed.state not in NOT_CREATED:
        return None
    return observed


def reported_missing_objects(part: Part, said: WorkloadObserved | None) -> tuple[ObjectReference, ...]:
    """Returns the objects that a cluster reports as missing for this version of the part; empty if it reports none."""
    if said is None or said.version != part.version or said.state != STATE_DEPENDENCY_MISSING:
        return ()
    return said.missing or UNNAMED


def may_change_missing_wait(workload: Workload | None, before: WorkloadObserved | None, said: WorkloadObserved) -> bool:
    """Returns whether a status may begin or end a wait for a missing object.

    It may if the previous status or this one reports a missing object. While the part waits, a status of the part's
    version may, too. before: the previous status.
    """
    part = workload.parts.get(said.cluster) if workload is not None else None
    waits = part is not None and bool(part.missing)
    return waits or any(one is not None and one.state == STATE_DEPENDENCY_MISSING for one in (before, said))


def templates_of(declared: WorkloadDeclared) -> tuple[object, ...]:
    return declared.manifest, declared.earlier_templates


def is_workload_gone(workload: Workload) -> bool:
    """Returns whether a workload is deleted or disowned, and every cluster has confirmed it."""
    return (workload.declared.deleting or workload.declared.disowning) and not workload.parts
