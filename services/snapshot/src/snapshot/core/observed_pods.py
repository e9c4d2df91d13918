"""Makes the records of the pods of workloads with a scale policy, with their newest samples."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from snapshot.core.pod_details import PodDetail, PodDetails, milli_amounts
from snapshot.core.workloads import WorkloadKey, WorkloadTable
from spillway.addresses import Tombstone, pods_address
from spillway.events_scaling import ContainerUsage, ObservedPod, PodRequests, PodsObserved
from spillway.kubernetes.pod_metrics import PodMetrics, duration_ms, unix_ms

NOT_ASKED = "metrics: not asked for yet"
POD_BYTES = 64
"""The approximate bytes of a pod's numbers in a record. Each name and amount adds NAMED_BYTES and its length."""
NAMED_BYTES = 16
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class _Samples:
    """The samples of one namespace, by pod. trouble: the reason why there are none; else empty."""

    by_pod: Mapping[str, PodMetrics]
    trouble: str


class ObservedPods:
    """The pods of one cluster's scaled workloads.

    A workload has a record while it has a scale policy and exists in the cluster. After that, its key gets a tombstone.
    No record is due before the workloads with a policy are known.
    """

    def __init__(self, cluster: str, bytes_max: int, details: PodDetails, workloads: WorkloadTable) -> None:
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._details = details
        self._workloads = workloads
        self._followed: frozenset[WorkloadKey] | None = None
        self._by_namespace: dict[str, list[WorkloadKey]] = {}
        self._dirty: set[WorkloadKey] = set()
        self._said: dict[WorkloadKey, PodsObserved] = {}
        self._shortened: set[WorkloadKey] = set()
        self._samples: dict[str, _Samples] = {}
        self._sequence = 0

    @property
    def knows_policies(self) -> bool:
        return self._followed is not None

    @property
    def has_changes(self) -> bool:
        """Returns whether take_due_records() may have new records."""
        self._mark_changed_workloads()
        return bool(self._dirty) and self.knows_policies

    def namespaces_to_sample(self) -> list[str]:
        """Returns the namespaces for which samples are needed, because they have a workload with a policy."""
        return [name for name, keys in self._by_namespace.items() if any(map(self._workloads.has_workload, keys))]

    def set_scaled_workloads(self, keys: Collection[WorkloadKey]) -> None:
        """Sets the complete set of workloads with a policy."""
        before, self._followed = self._followed or frozenset(), frozenset(keys)
        self._dirty |= before ^ self._followed
        self._by_namespace = {}
        for key in sorted(self._followed):
            self._by_namespace.setdefault(key[0], []).append(key)
        self._samples = {name: found for name, found in self._samples.items() if name in self._by_namespace}

    def store_samples(self, namespace: str, samples: Iterable[PodMetrics]) -> None:
        self._replace_samples(namespace, _Samples({one.metadata.name: one for one in samples}, ""))

    def drop_samples(self, namespace: str, why: str) -> None:
        """Drops the samples of a namespace, because new ones could not be read. why: the reason, for the records."""
        self._replace_samples(namespace, _Samples({}, why))

    def begin_epoch(self) -> None:
        """Starts a new epoch: all records are written again under it."""
        self._sequence = 0
        self._dirty |= self._said.keys() | (self._followed or set())
        self._said = {key: replace(said, epoch=-1) for key, said in self._said.items()}

    def make_record_due(self, key: WorkloadKey) -> None:
        """Makes the workload's record due again, because the log may lack it or has another writer's after it."""
        self._said.setdefault(key, PodsObserved(*key, self._cluster, -1, 0, 0, "", (), ()))
        self._said[key] = replace(self._said[key], epoch=-1)
        self._dirty.add(key)

    def shorten_record(self, key: WorkloadKey) -> None:
        """Leaves the pods out of the workload's records, which then have only their number: they are too large."""
        self._shortened.add(key)

    def has_record_of(self, key: WorkloadKey) -> bool:
        """Returns whether the workload has a record: it has a policy and exists in the cluster."""
        return self._followed is not None and key in self._followed and self._workloads.has_workload(key)

    def take_due_records(self, epoch: int, observed_ms: int) -> list[PodsObserved | Tombstone]:
        """Returns the records that are due. observed_ms: the time for which the cluster's state is known."""
        self._mark_changed_workloads()
        if not self.knows_policies:
            return []
        records: list[PodsObserved | Tombstone] = []
        for key in sorted(self._dirty):
            if self.has_record_of(key):
                records += self._record_if_changed(key, epoch, observed_ms)
            elif self._said.pop(key, None) is not None:
                self._shortened.discard(key)
                records.append(Tombstone(pods_address(*key, self._cluster)))
        self._dirty.clear()
        return records

    def _record_if_changed(self, key: WorkloadKey, epoch: int, observed_ms: int) -> Iterable[PodsObserved]:
        found, said = self._record_of_workload(key, epoch), self._said.get(key)
        if found == said:
            return
        self._said[key] = found
        self._sequence += 1
        yield replace(found, sequence=self._sequence, observed_ms=observed_ms)

    def _record_of_workload(self, key: WorkloadKey, epoch: int) -> PodsObserved:
        """Returns the record without sequence and time, so that an unchanged record can be found by comparison."""
        samples = self._samples.get(key[0], _Samples({}, NOT_ASKED))
        details = self._details.pods_of_owners(self._workloads.pod_owners_of(key))
        table: dict[PodRequests, int] = {}
        pods: list[ObservedPod] = []
        bytes_estimate = 0
        for one in () if key in self._shortened else details:
            if one.requests not in table:
                table[one.requests] = len(table)
                bytes_estimate += _requests_bytes_estimate(one.requests)
            pods.append(_observed_pod(one, table[one.requests], samples.by_pod.get(one.name)))
            bytes_estimate += _pod_bytes_estimate(pods[-1])
            if bytes_estimate > self._bytes_max:
                break
        left_out = sum(1 for one in details[len(pods) :] if not one.deleting and one.phase not in ENDED)
        place = *key, self._cluster, epoch, 0, 0
        return PodsObserved(*place, samples.trouble, tuple(table), tuple(pods), left_out)

    def _replace_samples(self, namespace: str, samples: _Samples) -> None:
        keys = self._by_namespace.get(namespace, ())
        if keys:  # Otherwise the last policy was removed while samples were read.
            self._samples[namespace] = samples
            self._dirty.update(keys)

    def _mark_changed_workloads(self) -> None:
        """Marks the workloads whose pods or owners changed, if they have a policy or a record."""
        changed = self._workloads.moved | {
            key for owner in self._details.dirty_owners if (key := self._workloads.workload_of(owner)) is not None
        }
        self._workloads.moved.clear()
        self._details.dirty_owners.clear()
        self._dirty |= changed & (self._said.keys() | (self._followed or set()))


def _pod_bytes_estimate(pod: ObservedPod) -> int:
    return POD_BYTES + len(pod.name) + sum(_named_bytes_estimate(one.name, one.usage) for one in pod.usage)


def _requests_bytes_estimate(requests: PodRequests) -> int:
    return sum(_named_bytes_estimate(one.name, one.requests) for one in requests.containers) + _named_bytes_estimate(
        "", requests.pod
    )


def _named_bytes_estimate(name: str, amounts: tuple[tuple[str, int], ...]) -> int:
    return NAMED_BYTES + len(name) + sum(NAMED_BYTES + len(resource) for resource, _ in amounts)


def _observed_pod(detail: PodDetail, requests: int, sample: PodMetrics | None) -> ObservedPod:
    usage: tuple[ContainerUsage, ...] = ()
    sampled_ms = window_ms = 0
    if sample is not None:
        sampled_ms, window_ms = unix_ms(sample.timestamp), duration_ms(sample.window)
        usage = tuple(ContainerUsage(one.name, milli_amounts(one.usage.items())) for one in sample.containers)
    return ObservedPod(
        detail.name,
        detail.phase,
        detail.deleting,
        detail.started_ms,
        detail.ready,
        detail.ready_changed_ms,
        requests,
        sampled_ms,
        window_ms,
        usage,
    )
