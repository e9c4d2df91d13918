"""Decides how each pod of all clusters counts (ready, unready, missing or ignored), and what it requests. Pure.

Source of the rules: kubernetes v1.36.1, pkg/controller/podautoscaler/replica_calculator.go (groupPods,
calculatePodRequests). Two things are added. Pods are keyed by (cluster, namespace, name). And the last reported
pods of a lost cluster stay, without samples: they count as missing, not as deleted.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

CPU: Final = "cpu"
NEVER_MS: Final = -(10**15)
"""The value of a time that was not set. It is before all others."""

PENDING: Final = "Pending"
FAILED: Final = "Failed"
RUNNING: Final = "Running"

READY: Final = "true"
NOT_READY: Final = "false"


class PodKey(NamedTuple):
    """The key of a pod. Its name is unique only in its namespace of its cluster."""

    cluster: str
    namespace: str
    name: str


class PodContainer(Struct, frozen=True, gc=False):
    """A container. requests: milli-units by resource; restartable: an init container that goes on running."""

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    restartable: bool = False


Amounts = tuple[tuple[str, int], ...]
"""Milli-units by resource."""


class CountedPod(Struct, frozen=True, gc=False):
    """The fields of a pod that decide whether and how it counts. Times are milliseconds; None: the pod has none.

    ready: "true", "false", "unknown", or None without such a condition.
    ready_changed_ms: the last transition of that condition.
    pod_requests: the requests of the pod as a whole in milli-units, which replace the sum of its containers.
    usage: the usage of each container at sampled_ms, over the window_ms before; empty without a sample.
    """

    phase: str = RUNNING
    deleting: bool = False
    started_ms: int | None = None
    ready: str | None = None
    ready_changed_ms: int | None = None
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    pod_requests: Mapping[str, int] | None = None
    usage: tuple[tuple[str, Amounts], ...] = ()
    sampled_ms: int = 0
    window_ms: int = 0


class Sample(Struct, frozen=True, gc=False):
    """The usage of one pod in milli-units, the end of the sample, and the time over which it was taken."""

    value_milli: int
    at_ms: int = 0
    window_ms: int = 0


Pods = Mapping[PodKey, CountedPod]
Samples = Mapping[PodKey, Sample]


class Readiness(Struct, frozen=True):
    """The times for which a starting pod's cpu usage does not count, in milliseconds."""

    cpu_initialization_ms: int = 300_000
    initial_delay_ms: int = 30_000


DEFAULT_READINESS: Final = Readiness()


COUNTED: Final = "ready"
UNREADY: Final = "unready"
MISSING: Final = "missing"
IGNORED: Final = "ignored"
"""The four groups: ready pods count normally, unready and missing pods by careful assumptions, ignored ones never."""


class MissingRequest(Exception):
    """Raised when a container that counts has no request. The whole metric fails."""


class ContainerNotFound(Exception):
    """Raised when a pod has no container of the metric's name. The whole metric fails."""


def pod_group_of(pod: CountedPod, sample: Sample | None, resource: str, readiness: Readiness, now_ms: int) -> str:
    """Returns one of the four groups, by Kubernetes' rules in their order.

    resource: the resource of the metric; "" for a metric that is not of a resource.
    """
    if pod.deleting or pod.phase == FAILED:
        return IGNORED
    if pod.phase == PENDING:
        return UNREADY
    if sample is None:
        return MISSING
    if resource == CPU and _is_cpu_sample_ignored(pod, sample, readiness, now_ms):
        return UNREADY
    return COUNTED


def _is_cpu_sample_ignored(pod: CountedPod, sample: Sample, readiness: Readiness, now_ms: int) -> bool:
    if pod.ready is None or pod.started_ms is None:
        return True
    changed_ms = NEVER_MS if pod.ready_changed_ms is None else pod.ready_changed_ms
    if pod.started_ms + readiness.cpu_initialization_ms > now_ms:
        # A sample that began before the pod became ready contains the cost of its start.
        return pod.ready == NOT_READY or sample.at_ms < changed_ms + sample.window_ms
    # Later, only a pod that was never ready is left out: its condition last changed soon after its start.
    return pod.ready == NOT_READY and pod.started_ms + readiness.initial_delay_ms > changed_ms


def readiness_due_ms(pods: Pods, readiness: Readiness, now_ms: int) -> int | None:
    """Returns when the next pod's initialization ends. Only then can a pod's group change without a new record."""
    since_ms, first_ms = now_ms - readiness.cpu_initialization_ms, None
    for pod in pods.values():
        started_ms = pod.started_ms
        if started_ms is not None and started_ms > since_ms and (first_ms is None or started_ms < first_ms):
            first_ms = started_ms
    return None if first_ms is None else first_ms + readiness.cpu_initialization_ms


def request_milli(
    key: PodKey, pod: CountedPod, resource: str, container: str = "", *, pod_level_resources: bool = True
) -> int:
    """Returns the requests of a pod, or of one container. Raises MissingRequest, ContainerNotFound."""
    if not container and pod_level_resources and pod.pod_requests is not None and resource in pod.pod_requests:
        return pod.pod_requests[resource]
    total_milli, found, running = 0, not container, pod.containers
    if pod.init_containers:
        running = (*running, *(init for init in pod.init_containers if init.restartable))
    for one in running:
        if container and one.name != container:
            continue
        milli = one.requests.get(resource)
        if milli is None:
            raise MissingRequest(f"missing request for {resource} in container {one.name} of Pod {_pod_path(key)}")
        total_milli, found = total_milli + milli, True
    if not found:
        raise ContainerNotFound(f"container {container} not present in metrics for pod {_pod_path(key)}")
    return total_milli


def _pod_path(key: PodKey) -> str:
    return "/".join(part for part in key if part)


def count_ready_pods(pods: Pods) -> int:
    """Returns the number of running and ready pods. The ratio of a metric that is not per pod is multiplied by it."""
    return sum(1 for pod in pods.values() if pod.phase == RUNNING and pod.ready == READY)


class PodsSeen(Struct, frozen=True):
    """The pods of all clusters. lost: the clusters that are lost; of them, `pods` has the last reported pods."""

    pods: Pods
    lost: frozenset[str] = frozenset()

    def reachable_samples(self, samples: Samples) -> Samples:
        """Returns the samples, but not the samples of lost clusters.

        Their pods count as missing, even if their last samples look fresh.
        """
        if not self.lost:
            return samples
        return {key: sample for key, sample in samples.items() if key.cluster not in self.lost}

    def reachable_pods(self) -> Pods:
        """Returns the pods of clusters that are not lost."""
        return {key: pod for key, pod in self.pods.items() if key.cluster not in self.lost}
