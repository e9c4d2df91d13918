"""Updates the metrics of a snapshot service."""

from collections.abc import Iterable
from contextlib import suppress

from snapshot.core.capacity_stream import is_heartbeat
from snapshot.core.collection import Collection, Record
from spillway import metrics
from spillway.events import CapacityChanged, CapacityReported


def count_unreachable(reason: str) -> None:
    metrics.CLUSTER_UNREACHABLE.labels(reason).inc()


def count_written_records(records: Iterable[Record]) -> None:
    for record in records:
        match record:
            case CapacityReported():
                metrics.CAPACITY_RECORDS_REPORTED.inc()
                metrics.CAPACITY_BYTES.observe(len(record.columns))
            case CapacityChanged() if is_heartbeat(record):
                metrics.CAPACITY_RECORDS_HEARTBEAT.inc()
            case CapacityChanged():
                metrics.CAPACITY_RECORDS_CHANGED.inc()
                metrics.CAPACITY_BYTES.observe(len(record.columns))


def update_cluster_gauges(core: Collection, now: float) -> None:
    metrics.NODES.labels(core.cluster).set(len(core.state.nodes.nodes))
    metrics.PODS_UNSCHEDULABLE.labels(core.cluster).set(core.pending.pod_count)
    metrics.PROBE_AGE_SECONDS.labels(core.cluster).set(core.age.age_ms(now) / 1000)


def remove_cluster_gauges(cluster: str) -> None:
    for gauge in (metrics.NODES, metrics.PODS_UNSCHEDULABLE, metrics.PROBE_AGE_SECONDS):
        with suppress(KeyError):  # No record was ever written for this cluster.
            gauge.remove(cluster)
