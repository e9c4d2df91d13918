"""Defines the propagator's metrics that spillway.metrics does not have."""

from typing import Final

from prometheus_client import Gauge

ORPHANS: Final = Gauge(
    "spillway_orphans", "Objects that have this fleet's label and are in no placement; they are left alone", ["cluster"]
)
EMPTY_LOG: Final = Gauge(
    "spillway_empty_log",
    "1 while a cluster has objects of this fleet and the log contains no placement at all",
    ["cluster"],
)
