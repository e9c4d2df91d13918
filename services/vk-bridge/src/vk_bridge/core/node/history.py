"""Records when each step of a loan was seen and what its pods lost, for NodeLent and NodeReturned."""

from dataclasses import dataclass, field, replace

from spillway.amounts import clamp_to_int64
from spillway.events_lending import (
    CAUSE_NODE_GONE,
    CAUSE_TAINT_REMOVED,
    LOAN_LENT,
    LOAN_RECALLED,
    LentPod,
    NodeLent,
    NodeReturned,
)
from spillway.lending_marks import LENT, RECALLED
from spillway.model import Generation
from vk_bridge.core.node.loan import OWNED, Observation

MILLI = 1000


@dataclass(frozen=True, slots=True)
class LoanTerms:
    """The fields of a loan that do not change after its beginning."""

    cluster: str
    node: str
    pool: str
    virtual_node: str
    rule: str
    supply_class: str


@dataclass(slots=True)
class _Loan:
    """The history of one loan. Times are in milliseconds of Unix time; 0: not seen.

    lost: by uid of an evicted pod, the work that it loses, in milli-core seconds.
    forced: the uids of real pods that were deleted by force.
    """

    loan: Generation
    cause: str = ""
    lent_ms: int = 0
    recalled_ms: int = 0
    closed_ms: int = 0
    emptied_ms: int = 0
    deleted_ms: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    forced: set[str] = field(default_factory=set)


class LoanHistory:
    """The histories of one cluster's loans, kept by one bridge. Each step has the time at which it was first seen."""

    def __init__(self) -> None:
        self._loans: dict[str, _Loan] = {}

    def recover_loan(self, said: NodeLent) -> None:
        """Takes over the times of a loan that another instance began, from its record in the log."""
        known = self._loans.get(said.node)
        if known is None or known.loan != said.loan:
            self._loans[said.node] = _Loan(said.loan, said.cause, said.lent_ms, said.recalled_ms)

    def note_observation(self, name: str, observation: Observation, at_ms: int) -> None:
        """Records the steps of the loan that a reading shows, for NodeLent and NodeReturned.

        at_ms: Unix time of the reading. If a cluster could not be read, its objects do not count as gone.
        """
        node = observation.node
        if node is not None and node.state in (LENT, RECALLED) and node.loan is not None and not node.foreign:
            known = self._loans.get(name)
            if known is None or known.loan != node.loan:
                known = self._loans[name] = _Loan(node.loan)
            if node.state == LENT:
                known.lent_ms = known.lent_ms or at_ms
                return
            known.cause = known.cause or node.cause
        loan = self._loans.get(name)
        if loan is None or not observation.owner_read:
            return
        if node is None or node.state == OWNED:
            loan.cause = loan.cause or (CAUSE_NODE_GONE if node is None else CAUSE_TAINT_REMOVED)
        loan.recalled_ms = loan.recalled_ms or at_ms
        if observation.pool_read:
            self._note_loan_end(loan, observation, at_ms)

    def note_eviction(self, name: str, pod: LentPod, at_ms: int) -> None:
        """Counts the work that a pod loses because it is evicted, for NodeReturned: its requested cores × run time.

        at_ms: Unix time of the eviction. Only the first eviction of a pod counts.
        """
        loan = self._loans.get(name)
        if loan is not None:
            ran_ms = max(0, at_ms - pod.started_ms) if pod.started_ms else 0
            loan.lost.setdefault(pod.uid, max(0, dict(pod.requests).get("cpu", 0)) * ran_ms // MILLI)

    def note_forced_deletion(self, name: str, uid: str) -> None:
        """Counts a real pod that was deleted by force, because it outlived its grace, for NodeReturned."""
        loan = self._loans.get(name)
        if loan is not None:
            loan.forced.add(uid)

    def lent_record_to_publish(
        self,
        terms: LoanTerms,
        generation: Generation,
        offered: tuple[tuple[str, int], ...],
        pods: tuple[LentPod, ...],
        waiting: str,
    ) -> NodeLent | None:
        """Returns the NodeLent to publish now; None: there is no loan. generation: epoch and sequence of the record."""
        loan = self._loans.get(terms.node)
        if loan is None:
            return None
        return NodeLent(
            cluster=terms.cluster,
            node=terms.node,
            epoch=generation.epoch,
            sequence=generation.sequence,
            loan=loan.loan,
            pool=terms.pool,
            virtual_node=terms.virtual_node,
            rule=terms.rule,
            supply_class=terms.supply_class,
            state=LOAN_RECALLED if loan.recalled_ms else LOAN_LENT,
            cause=loan.cause,
            offered=offered,
            pods=pods,
            lent_ms=loan.lent_ms,
            recalled_ms=loan.recalled_ms,
            waiting=waiting,
        )

    def returned_record_to_publish(
        self, terms: LoanTerms, generation: Generation, loan: Generation, at_ms: int
    ) -> NodeReturned:
        """Returns the NodeReturned of a loan. If this bridge did not see the loan, only its end is known."""
        known = self._loans.get(terms.node)
        found = known if known is not None and known.loan == loan else _Loan(loan)
        return NodeReturned(
            cluster=terms.cluster,
            node=terms.node,
            epoch=generation.epoch,
            sequence=generation.sequence,
            loan=loan,
            pool=terms.pool,
            rule=terms.rule,
            supply_class=terms.supply_class,
            cause=found.cause,
            lent_ms=found.lent_ms,
            recalled_ms=found.recalled_ms,
            closed_ms=found.closed_ms,
            emptied_ms=found.emptied_ms,
            deleted_ms=found.deleted_ms,
            returned_ms=at_ms,
            evicted=len(found.lost),
            forced=len(found.forced),
            lost_core_seconds=clamp_to_int64(sum(found.lost.values()) // MILLI),
        )

    def forget_loan(self, name: str) -> None:
        """Forgets the node's loan, after NodeReturned is acknowledged."""
        self._loans.pop(name, None)

    @staticmethod
    def _note_loan_end(loan: _Loan, observation: Observation, at_ms: int) -> None:
        """Stores the first time of each step of a return: closed, emptied, deleted. A virtual node that is gone or is
        not ours takes no pod any more, so it counts as closed."""
        virtual = observation.virtual if observation.virtual is not None and observation.virtual.ours else None
        if virtual is None or not virtual.open:
            loan.closed_ms = loan.closed_ms or at_ms
        if not observation.real_pods and not any(pod.is_blocking_return for pod in observation.pool_pods):
            loan.emptied_ms = loan.emptied_ms or at_ms
        if virtual is None:
            loan.deleted_ms = loan.deleted_ms or at_ms


def is_worth_publishing(before: NodeLent | None, now: NodeLent) -> bool:
    """Returns whether the record differs from the one in the log, apart from epoch and sequence."""
    return before is None or replace(before, epoch=now.epoch, sequence=now.sequence) != now
