"""Objects that bear our label and that no placement lists: counted and said, never touched.

A workload's ConfigMaps and Services are its own: where no placement lists it, they are orphans with it, or without.
"""

import asyncio
from collections.abc import Callable

import structlog

from propagator.cluster.mirror import Mirror
from propagator.core.desired import Desired, Target
from propagator.log.log_proof import LogProof
from propagator.metrics import EMPTY_LOG, ORPHANS

log = structlog.get_logger()


class Orphans:
    """changed: told of each target that became an orphan, is one and changed, or is none any more.

    An object may be seen before the placement that lists it is read, for a successor may have made it: so it is an
    orphan only once everything has been read that was in the log when it was noticed, and as long as that proof holds.
    """

    def __init__(
        self, cluster: str, mirror: Mirror, desired: Desired, proof: LogProof, changed: Callable[[Target], None]
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._desired = desired
        self._proof = proof
        self._changed = changed
        self._noticed: dict[Target, float] = {}
        """When they were noticed first, on the loop's clock."""
        self._unsure: dict[Target, None] = {}
        self._empty_log = False
        self._counted = ORPHANS.labels(cluster)

    def note(self, target: Target) -> None:
        """The object, or what is wanted of it, may have changed."""
        orphan = self._mirror.has(target) and not self._desired.lists(target)
        if orphan and target not in self._noticed:
            self._noticed[target] = asyncio.get_running_loop().time()
            self._unsure[target] = None
        if orphan or target in self._noticed:
            self._changed(target)
        if not orphan:
            self._noticed.pop(target, None)
            self._unsure.pop(target, None)
        self._count()

    def log_read(self) -> None:
        """The proof was renewed: what is unsure may be said now, and what could not be said meanwhile again."""
        for target in [one for one in self._unsure if self.has(one)]:
            del self._unsure[target]
            log.warning(
                "orphan: our label, but no placement lists it; left as it is",
                cluster=self._cluster,
                workload=f"{target.namespace}/{target.name}",
            )
            self._changed(target)
        self._count()

    def note_all(self) -> None:
        """Everything has been listed: what was said of orphans before holds, or is to be taken back."""
        for target in self._mirror.targets() | self._desired.orphans_said(self._cluster):
            self._changed(target)

    def has(self, target: Target) -> bool:
        noticed_at = self._noticed.get(target)
        return noticed_at is not None and self._proof.covers(noticed_at)

    def _count(self) -> None:
        self._counted.set(len(self._noticed) - len(self._unsure))

    def note_log(self) -> None:
        """A log that places nothing where objects bear our label has lost something."""
        empty = self._desired.empty and bool(self._mirror.workloads)
        if empty and not self._empty_log:
            log.critical(
                "the log places nothing at all, but objects of this fleet are there: nothing is done to the cluster",
                cluster=self._cluster,
                objects=len(self._mirror.workloads),
            )
        self._empty_log = empty
        EMPTY_LOG.labels(self._cluster).set(empty)

    def close(self) -> None:
        for gauge in (ORPHANS, EMPTY_LOG):
            gauge.labels(self._cluster).set(0)
