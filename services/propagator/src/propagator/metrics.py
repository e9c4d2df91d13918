"""Defines the propagator's metrics that spillway.metrics does not have."""

from typing import Final

from prometheus_client import Gauge

ORPHANS: Final = Gauge(
    "spillway_orphans", "Objects that bear this fleet's label and that no placement lists; they are left", ["cluster"]
)
EMPTY_LOG: Final = Gauge(
    "spillway_empty_log", "1 while a cluster has objects of ours and the log places nothing at all", ["cluster"]
)
