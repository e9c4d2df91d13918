"""Objects that bear our label and that no placement lists: counted and said, never touched.

A workload's ConfigMaps and Services are its own: where no placement lists it, they are orphans with it, or without.
"""

from collections.abc import Callable

import structlog

from propagator.core.desired import Desired, Target
from propagator.metrics import EMPTY_LOG, ORPHANS
from propagator.mirror import Mirror

log = structlog.get_logger()


class Orphans:
    """changed: told of each target that became an orphan, is one and changed, or is none any more."""

    def __init__(self, cluster: str, mirror: Mirror, desired: Desired, changed: Callable[[Target], None]) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._desired = desired
        self._changed = changed
        self._orphans: set[Target] = set()
        self._empty_log = False
        self._counted = ORPHANS.labels(cluster)

    def note(self, target: Target) -> None:
        """The object, or what is wanted of it, may have changed."""
        orphan = self._mirror.has(target) and not self._desired.lists(target)
        if orphan and target not in self._orphans:
            self._orphans.add(target)
            log.warning(
                "orphan: our label, but no placement lists it; left as it is",
                cluster=self._cluster,
                workload=f"{target.namespace}/{target.name}",
            )
        if orphan or target in self._orphans:
            self._changed(target)
        if not orphan:
            self._orphans.discard(target)
        self._counted.set(len(self._orphans))

    def note_all(self) -> None:
        """Everything has been listed: what was said of orphans before holds, or is to be taken back."""
        for target in self._mirror.targets() | self._desired.orphans_said(self._cluster):
            self._changed(target)

    def has(self, target: Target) -> bool:
        return target in self._orphans

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
