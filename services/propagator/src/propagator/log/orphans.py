"""Counts and reports orphans, objects with our label that no placement lists. It never touches them.

ConfigMaps and Services of a workload that no placement lists are orphans, too, with or without its object.
"""

import asyncio
from collections.abc import Callable

import structlog

from propagator.cluster.mirror import ObjectMirror
from propagator.core.desired import DesiredState, PartTarget
from propagator.log.log_proof import LogProof
from propagator.metrics import EMPTY_LOG, ORPHANS

log = structlog.get_logger()


class Orphans:
    """The orphans of one cluster.

    changed: called for each target that became an orphan, changed as one, or is none any more.

    An object may be seen before its placement is read, because another instance may have created it. So it is an orphan
    only after all records are read that were in the log when it was noticed. And only while that proof holds.
    """

    def __init__(
        self,
        cluster: str,
        mirror: ObjectMirror,
        desired: DesiredState,
        proof: LogProof,
        changed: Callable[[PartTarget], None],
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._desired = desired
        self._proof = proof
        self._changed = changed
        self._noticed: dict[PartTarget, float] = {}
        """The time at which each target was first noticed, on the loop's clock."""
        self._unsure: dict[PartTarget, None] = {}
        self._empty_log = False
        self._counted = ORPHANS.labels(cluster)

    def check_target(self, target: PartTarget) -> None:
        """Checks whether the target is an orphan now: its object, or what the log wants of it, may have changed."""
        orphan = self._mirror.has_objects_of_target(target) and not self._desired.is_target_listed(target)
        if orphan and target not in self._noticed:
            self._noticed[target] = asyncio.get_running_loop().time()
            self._unsure[target] = None
        if orphan or target in self._noticed:
            self._changed(target)
        if not orphan:
            self._noticed.pop(target, None)
            self._unsure.pop(target, None)
        self._update_orphan_gauge()

    def report_certain_orphans(self) -> None:
        """Reports the orphans that have become certain, because the whole log was proven read."""
        for target in [one for one in self._unsure if self.is_orphan(one)]:
            del self._unsure[target]
            log.warning(
                "an orphan: an object has our label, but no placement lists it; it is left as it is",
                cluster=self._cluster,
                workload=f"{target.namespace}/{target.name}",
            )
            self._changed(target)
        self._update_orphan_gauge()

    def republish_statuses(self) -> None:
        """Queues the status of every possible orphan: it is published again, or deleted if it is no orphan any more.

        Call it after every kind was listed.
        """
        for target in self._mirror.targets_with_objects() | self._desired.logged_orphans(self._cluster):
            self._changed(target)

    def is_orphan(self, target: PartTarget) -> bool:
        """Returns whether the target certainly is an orphan."""
        noticed_at = self._noticed.get(target)
        return noticed_at is not None and self._proof.is_log_read_up_to(noticed_at)

    def _update_orphan_gauge(self) -> None:
        self._counted.set(len(self._noticed) - len(self._unsure))

    def warn_of_empty_log(self) -> None:
        """Warns when objects have our label and the log has no placement at all: the log has lost records."""
        empty = self._desired.has_no_placements and bool(self._mirror.workloads)
        if empty and not self._empty_log:
            log.critical(
                "the log contains no placement at all, but a cluster has objects of this fleet: they are left alone",
                cluster=self._cluster,
                objects=len(self._mirror.workloads),
            )
        self._empty_log = empty
        EMPTY_LOG.labels(self._cluster).set(empty)

    def close(self) -> None:
        for gauge in (ORPHANS, EMPTY_LOG):
            gauge.labels(self._cluster).set(0)
