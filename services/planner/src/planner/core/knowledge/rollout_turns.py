"""Decides which cluster gets a workload's newest template next, or why none does now (README: "A new template")."""

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.events import STATE_PRESENT, WorkloadObserved
from spillway.model import Part
from spillway.status_details import text_with_hold
from spillway.texts import counted_noun


@dataclass(frozen=True, slots=True)
class RolloutPart:
    """One cluster's part in a rollout.

    number: the template generation that the part has.
    newest: whether that is the template generation to roll out.
    alike: whether the part has an earlier generation whose template equals the newest, so that nothing has to roll.
    lost: the cluster is lost for this workload.
    observed: the last status of the object, at any version.
    """

    part: Part
    number: int
    newest: bool
    lost: bool
    observed: WorkloadObserved | None
    alike: bool = False

    @property
    def is_taking_part(self) -> bool:
        """Returns whether the part takes part in the rollout. Parts that leave or were replaced elsewhere do not."""
        return self.part.replicas_kept > 0 and not self.part.removing

    @property
    def may_run_newest_template(self) -> bool:
        """Returns whether the newest template may run there, even if the part leaves or its cluster is lost."""
        return self.newest and self.part.replicas > 0 and not self.part.removing

    @property
    def is_to_roll(self) -> bool:
        return self.is_taking_part and not self.newest and not self.alike and not self.lost

    @property
    def is_carried_out(self) -> bool:
        """Returns whether the cluster reported the part at its current version."""
        return self.observed is not None and self.observed.version == self.part.version

    @property
    def has_earlier_template_alone(self) -> bool:
        """Returns whether the part has an earlier template and was seen with no pods of another one."""
        seen = self.observed
        return not self.newest and seen is not None and self.is_carried_out and seen.updated == seen.replicas

    @property
    def has_mixed_templates(self) -> bool:
        """Returns whether the part was last seen with pods of two templates."""
        return self.observed is not None and self.observed.updated < self.observed.replicas

    @property
    def may_have_mixed_templates(self) -> bool:
        """Returns whether the part was seen with pods of two templates, or may have them by now."""
        return self.has_mixed_templates or not self.is_carried_out

    @property
    def is_in_full(self) -> bool:
        """Returns whether all replicas of the part are updated and available, and no others exist."""
        seen = self.observed
        return (
            seen is not None
            and self.is_carried_out
            and seen.state == STATE_PRESENT
            and seen.updated == seen.replicas == seen.available >= self.part.replicas
        )


@dataclass(frozen=True, slots=True)
class RolloutTurn:
    """The clusters that may roll next, or the cluster that the rollout waits for.

    candidates: the cluster whose turn it is, then the clusters that may go first if it has no room.
    blocked_by: the cluster that must be available first. If both are empty, nothing is left that could roll.
    done, total: clusters that were given the newest template, and all that take part.
    """

    candidates: tuple[str, ...]
    blocked_by: str
    done: int
    total: int

    def progress_text(self, waits_for: str) -> str:
        """Returns a text for users with the rollout's progress. waits_for: the last part of the text."""
        return f"rollout {self.done} of {counted_noun(self.total, 'cluster')}: {waits_for}"


def next_rollout_turn(standings: Sequence[RolloutPart]) -> RolloutTurn:
    """Chooses the cluster that rolls next. Clusters roll one after the other.

    The next cluster rolls once all clusters with the newest template are available in full. Until one cluster has been
    available in full, the rollout also waits for lost clusters and for parts that leave.
    A cluster that is already rolling comes first. So a template that never gets ready is replaced in place, and no
    second cluster is touched meanwhile. Among rolling clusters the order is: clusters seen with pods of two templates,
    clusters that may have them, clusters whose pods are only unavailable. If several clusters may have them and none
    was seen with them, the rollout waits for the next status. If no cluster is rolling, the cluster with the fewest
    replicas is next; other clusters may go before it when it has no room.
    """
    taking_part = [entry for entry in standings if entry.is_taking_part]
    done = [entry for entry in taking_part if entry.newest]
    waiting = [entry for entry in taking_part if entry.is_to_roll]
    oldest = min((entry.number for entry in taking_part), default=0)
    rolling = [entry for entry in waiting if _is_between_templates(entry, oldest)]
    unknown = [entry for entry in waiting if not entry.is_carried_out]
    having = [entry for entry in standings if entry.may_run_newest_template]
    available_once = any(entry.is_in_full for entry in having)
    blocking = [
        entry
        for entry in having
        if not entry.is_in_full and not (available_once and (entry.lost or not entry.is_taking_part))
    ]
    unsure = [entry for entry in rolling or waiting if not entry.is_carried_out]
    if not blocking and len(unsure) > 1 and not any(entry.has_mixed_templates for entry in rolling):
        blocking = unsure  # One of them may be about to roll.
    candidates = sorted(
        rolling or unknown or waiting,
        key=lambda entry: (
            not entry.has_mixed_templates,
            not entry.may_have_mixed_templates,
            entry.part.replicas,
            entry.part.cluster,
        ),
    )
    blocked_by = min((entry.part.cluster for entry in blocking), default="")
    in_turn = tuple(entry.part.cluster for entry in candidates) if not blocking else ()
    return RolloutTurn(in_turn[:1] if rolling or unknown else in_turn, blocked_by, len(done), len(taking_part))


def _is_between_templates(entry: RolloutPart, oldest: int) -> bool:
    """Returns whether the part is already rolling between two earlier templates. Its pods are replaced anyway."""
    return entry.has_mixed_templates or (entry.number > oldest and not entry.is_in_full)


def rollout_progress_text(part: Part, observed: WorkloadObserved | None) -> str:
    """Returns a text for users: how far a cluster has rolled out the template of its part."""
    if observed is None or observed.version != part.version:
        return text_with_hold("not carried out yet", observed)
    if observed.state != STATE_PRESENT:
        return f"{observed.state}: {observed.message}" if observed.message else observed.state
    updated = min(observed.updated, part.replicas)
    return f"{updated} of {part.replicas} updated, {observed.available} available"
