"""The kinds that the simulated API serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object without apiVersion and kind; never changed once stored."""
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    has_status: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Returns the name as in the API server's messages: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_ALL = (
    Kind("", "v1", "nodes", "Node", namespaced=False),
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind("", "v1", "pods", "Pod"),
    Kind("", "v1", "configmaps", "ConfigMap", has_status=False),
    Kind("", "v1", "secrets", "Secret", has_status=False),
    Kind("", "v1", "services", "Service"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", has_status=False),
    Kind("", "v1", "resourcequotas", "ResourceQuota"),
    Kind("", "v1", "limitranges", "LimitRange", has_status=False),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False),
    Kind("", "v1", "events", "Event", has_status=False),
    Kind("apps", "v1", "deployments", "Deployment"),
    Kind("apps", "v1", "replicasets", "ReplicaSet"),
    Kind("apps", "v1", "statefulsets", "StatefulSet"),
    Kind("apps", "v1", "daemonsets", "DaemonSet"),
    Kind("batch", "v1", "jobs", "Job"),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", has_status=False),
    Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False, has_status=False),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, has_status=False),
    Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", has_status=False),
)

KIND_BY_PLURAL: Mapping[str, Kind] = {kind.plural: kind for kind in _ALL}
KIND_BY_ROUTE: Mapping[tuple[str, str, str], Kind] = {(kind.group, kind.version, kind.plural): kind for kind in _ALL}

SCALABLE = frozenset({"deployments", "replicasets", "statefulsets"})


def key_of(metadata: Mapping[str, Any]) -> Key:
    return metadata.get("namespace", ""), metadata["name"]
