"""Which cluster gets a workload's newest template next, and why none does now (README: "A new template")."""

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.events import STATE_PRESENT, WorkloadObserved
from spillway.model import Part
from spillway.status_details import with_hold
from spillway.texts import counted


@dataclass(frozen=True, slots=True)
class Standing:
    """One cluster's part in a rollout.

    number: the template generation that the part bears; newest: whether that is the one to be rolled out; alike: it is
    an earlier one, of which the newest is a copy, so that nothing is to roll. lost: the cluster is lost for this
    workload. observed: what was last said of the object, at any version.
    """

    part: Part
    number: int
    newest: bool
    lost: bool
    observed: WorkloadObserved | None
    alike: bool = False

    @property
    def counts(self) -> bool:
        """Whether it takes part: what is to go, or was replaced elsewhere, rolls nowhere and blocks nobody."""
        return self.part.replicas_kept > 0 and not self.part.removing

    @property
    def has_newest(self) -> bool:
        """Whether the newest template may run there, be it only until it leaves, or is heard of again."""
        return self.newest and self.part.replicas > 0 and not self.part.removing

    @property
    def is_to_roll(self) -> bool:
        return self.counts and not self.newest and not self.alike and not self.lost

    @property
    def carried_out(self) -> bool:
        """Whether its cluster was seen to have the part as it is."""
        return self.observed is not None and self.observed.version == self.part.version

    @property
    def of_one_template(self) -> bool:
        """Whether it bears an earlier template and was seen to have no pods of another one."""
        seen = self.observed
        return not self.newest and seen is not None and self.carried_out and seen.updated == seen.replicas

    @property
    def was_mixed(self) -> bool:
        """Whether it was last seen to have pods of two templates."""
        return self.observed is not None and self.observed.updated < self.observed.replicas

    @property
    def may_be_mixed(self) -> bool:
        """Whether it was seen to have pods of two templates, or may have them by now."""
        return self.was_mixed or not self.carried_out

    @property
    def in_full(self) -> bool:
        """Whether all its replicas are of the template that it is to have, and available."""
        seen = self.observed
        return (
            seen is not None
            and self.carried_out
            and seen.state == STATE_PRESENT
            and seen.updated == seen.replicas == seen.available >= self.part.replicas
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """candidates: whose turn it is, and those that may go first when there is no room for it. blocked_by: who must be
    available first. Neither: nothing is left that could roll.

    done and total: clusters that were given the newest template, of all that take part.
    """

    candidates: tuple[str, ...]
    blocked_by: str
    done: int
    total: int

    def text(self, waits_for: str) -> str:
        """For people."""
        return f"rollout {self.done} of {counted(self.total, 'cluster')}: {waits_for}"


def next_turn(standings: Sequence[Standing]) -> Turn:
    """One cluster after the other: the next when all that have the newest template are available in full.

    Lost ones, and those that it leaves, are waited for as long as it is not known to be available in any cluster.
    A cluster that is rolling already comes first, so that a template that never gets ready is replaced where it is, and
    no second cluster is touched meanwhile: one that was seen with pods of two templates, then one that may have them,
    then one whose pods are merely unavailable. Where several may, and none was seen, the next status tells which. Else
    it is the one with the fewest replicas, and the others may go before it.
    """
    taking_part = [entry for entry in standings if entry.counts]
    done = [entry for entry in taking_part if entry.newest]
    waiting = [entry for entry in taking_part if entry.is_to_roll]
    oldest = min((entry.number for entry in taking_part), default=0)
    rolling = [entry for entry in waiting if _is_rolling(entry, oldest)]
    unknown = [entry for entry in waiting if not entry.carried_out]
    having = [entry for entry in standings if entry.has_newest]
    available_once = any(entry.in_full for entry in having)
    blocking = [
        entry for entry in having if not entry.in_full and not (available_once and (entry.lost or not entry.counts))
    ]
    unsure = [entry for entry in rolling or waiting if not entry.carried_out]
    if not blocking and len(unsure) > 1 and not any(entry.was_mixed for entry in rolling):
        blocking = unsure  # One of them may be about to roll.
    candidates = sorted(
        rolling or unknown or waiting,
        key=lambda entry: (not entry.was_mixed, not entry.may_be_mixed, entry.part.replicas, entry.part.cluster),
    )
    blocked_by = min((entry.part.cluster for entry in blocking), default="")
    in_turn = tuple(entry.part.cluster for entry in candidates) if not blocking else ()
    return Turn(in_turn[:1] if rolling or unknown else in_turn, blocked_by, len(done), len(taking_part))


def _is_rolling(entry: Standing, oldest: int) -> bool:
    """Whether it is on its way from one earlier template to another, so that the newest costs it nothing more."""
    return entry.was_mixed or (entry.number > oldest and not entry.in_full)


def figures(part: Part, observed: WorkloadObserved | None) -> str:
    """How far a cluster is with the template that it is to have, for people."""
    if observed is None or observed.version != part.version:
        return with_hold("not carried out yet", observed)
    if observed.state != STATE_PRESENT:
        return f"{observed.state}: {observed.message}" if observed.message else observed.state
    updated = min(observed.updated, part.replicas)
    return f"{updated} of {part.replicas} updated, {observed.available} available"
