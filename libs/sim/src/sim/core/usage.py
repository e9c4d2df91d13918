"""The usage of pods and nodes, and the metrics.k8s.io API. Loads are divided among pods, unless a pod's own is set."""

from collections.abc import Mapping
from typing import Any, Final

from sim.core.errors import ApiError, no_such_resource, not_found
from sim.core.kinds import Key, Kind, Object
from sim.core.kubelet import RUN_BY_US
from sim.core.listing import encode
from sim.core.pods import is_ready, is_terminal
from sim.core.quantity import parse_amount, quantity_text
from sim.core.world import World, controller_of

POD_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
NODE_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics")
ROOT: Final = f"/apis/{POD_METRICS.api_version}/"

MEASURED: Final = ("cpu", "memory")

Amounts = Mapping[str, int]
"""Amounts by resource: thousandths for cpu, whole units for all others."""


class Usage:
    """The usage of pods.

    A ready pod has a sample if its usage was set, if its workload has a load, or if the settings give a share.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._set: dict[Key, Amounts] = {}
        self._load: dict[Key, Amounts] = {}

    def set_pod_usage(self, namespace: str, name: str, amounts: Amounts | None) -> None:
        """Sets the usage of a pod, which replaces its share of the workload's load; None ends that."""
        _put_amounts(self._set, (namespace, name), amounts)

    def set_load(self, namespace: str, workload: str, amounts: Amounts | None) -> None:
        """Sets the total usage of a Deployment's or StatefulSet's ready pods, divided equally; None: no samples."""
        _put_amounts(self._load, (namespace, workload), amounts)

    def answer_metrics(self, path: str) -> bytes:
        """Returns the list of a namespace or of all, one pod's sample, or all nodes.

        ApiError for other paths, or no sample.
        """
        if path == ROOT + NODE_METRICS.plural:
            head = {"kind": "NodeMetricsList", "apiVersion": NODE_METRICS.api_version, "metadata": {}}
            return encode({**head, "items": self._node_samples()})
        parts = path.removeprefix(ROOT).split("/")
        namespace, rest = (parts[1], parts[2:]) if parts[0] == "namespaces" and len(parts) > 2 else ("", parts)
        if rest[0] != POD_METRICS.plural or len(rest) > 2:
            raise no_such_resource()
        items = self._pod_samples(namespace)
        if len(rest) == 1:
            head = {"kind": "PodMetricsList", "apiVersion": POD_METRICS.api_version, "metadata": {}}
            return encode({**head, "items": items})
        found = next((one for one in items if one["metadata"]["name"] == rest[1]), None)
        if found is None:
            raise not_found(POD_METRICS, rest[1])
        return encode({"kind": POD_METRICS.name, "apiVersion": POD_METRICS.api_version, **found})

    def _node_samples(self) -> list[Object]:
        """Returns the usage of nodes: the sum over their pods with a sample.

        There is none while no pod can have a sample.
        """
        if self._is_usage_unknown():
            return []
        totals: dict[str, dict[str, int]] = {
            name: dict.fromkeys(MEASURED, 0)
            for (_, name), node in sorted(self._world.store.tables["nodes"].items())
            if RUN_BY_US in (node["metadata"].get("annotations") or {})
        }
        for key, used in self._usage_by_pod("").items():
            total = totals.get(self._world.store.tables["pods"][key]["spec"].get("nodeName", ""))
            if total is not None and used is not None:
                for resource in MEASURED:
                    total[resource] += used.get(resource, 0)
        return [
            {
                "metadata": {"name": name},
                "timestamp": self._world.timestamp(),
                "window": f"{self._world.settings.metrics_window_seconds:g}s",
                "usage": {resource: quantity_text(resource, amount) for resource, amount in total.items()},
            }
            for name, total in totals.items()
        ]

    def _is_usage_unknown(self) -> bool:
        return not self._set and not self._load and not self._world.settings.usage_of_requests

    def _pod_samples(self, namespace: str) -> list[Object]:
        pods = self._world.store.tables["pods"]
        return [
            self._pod_sample(pods[key], used) for key, used in self._usage_by_pod(namespace).items() if used is not None
        ]

    def _usage_by_pod(self, namespace: str) -> dict[Key, Amounts | None]:
        """Returns the usage by ready pod, sorted by key; None for a pod without a sample."""
        if self._is_usage_unknown():
            return {}
        pods = self._world.store.tables["pods"].items()
        ready = {
            key: pod
            for key, pod in pods
            if (not namespace or key[0] == namespace) and is_ready(pod) and not is_terminal(pod)
        }
        counts: dict[Key, int] = {}
        for pod in ready.values():
            workload = self._workload_of(pod)
            counts[workload] = counts.get(workload, 0) + 1
        return {key: self._usage_of_pod(key, pod, counts) for key, pod in sorted(ready.items())}

    def _usage_of_pod(self, key: Key, pod: Object, counts: Mapping[Key, int]) -> Amounts | None:
        workload = self._workload_of(pod)
        if key in self._set:
            return self._set[key]
        load = self._load.get(workload)
        if load is None:
            return self._usage_from_requests(pod)
        return {resource: amount // counts[workload] for resource, amount in load.items()}

    def _usage_from_requests(self, pod: Object) -> Amounts | None:
        """Returns the usage by settings of a pod for which none was set; None without requests, or at a share of 0."""
        share, totals = self._world.settings.usage_of_requests, dict.fromkeys(MEASURED, 0)
        for container in pod["spec"]["containers"] if share else ():
            requests = (container.get("resources") or {}).get("requests") or {}
            for resource in MEASURED:
                totals[resource] += parse_amount(resource, requests.get(resource, 0))
        return {resource: round(total * share) for resource, total in totals.items() if total} or None

    def _workload_of(self, pod: Object) -> Key:
        namespace = pod["metadata"]["namespace"]
        owner = controller_of(pod) or {"kind": "Pod", "name": ""}
        if owner["kind"] == "ReplicaSet":
            replicaset = self._world.store.get_object("replicasets", (namespace, owner["name"]))
            owner = (controller_of(replicaset) if replicaset else None) or owner
        return namespace, owner["name"]

    def _pod_sample(self, pod: Object, amounts: Amounts) -> Object:
        """Returns the sample of a pod: its amounts, divided evenly among its containers."""
        metadata, containers = pod["metadata"], pod["spec"]["containers"]
        count = len(containers)
        used = [
            {
                resource: quantity_text(resource, _container_share(amount, index, count))
                for resource, amount in amounts.items()
            }
            for index in range(count)
        ]
        return {
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "timestamp": self._world.timestamp(),
            "window": f"{self._world.settings.metrics_window_seconds:g}s",
            "containers": [{"name": one["name"], "usage": usage} for one, usage in zip(containers, used, strict=True)],
        }


def group_not_served() -> ApiError:
    """Returns the error of an API server for a group that nobody serves. The real one answers in plain text."""
    return ApiError(404, "NotFound", "404 page not found")


def service_unavailable() -> ApiError:
    """Returns the error of an API server while the server of a group does not answer it."""
    return ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def _container_share(amount: int, index: int, count: int) -> int:
    # Differences of rounded running sums, so that the containers' shares add up to the amount.
    return amount * (index + 1) // count - amount * index // count


def _put_amounts(amounts: dict[Key, Amounts], key: Key, value: Any) -> None:
    if value is None:
        amounts.pop(key, None)
    else:
        amounts[key] = dict(value)
