"""Creates, labels and removes the owner's namespaces in which pool pods run.

Namespaces that are not ours stay as they are.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from spillway.clusters.api import CONFIG_MAPS, NAMESPACES, SECRETS, AlreadyExists, ClusterApi
from spillway.kubernetes.objects import VOLUME_CLAIMS, AnyObject, Kind
from spillway.kubernetes.pod_security import BASELINE, ENFORCE_LABEL, RESTRICTED
from spillway.lending_marks import COPY_VERSION, FLEET, POD_NAMESPACE_PREFIX, POOL
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.core.node.loan import Manifest

NETWORK_POLICIES: Final = Kind("networking.k8s.io", "v1", "networkpolicies", AnyObject)
AS_STRICT: Final = (BASELINE, RESTRICTED)
NO_INGRESS: Final = "no-ingress"
HELD_KINDS: Final = tuple(replace(kind, metadata_only=True) for kind in (CONFIG_MAPS, SECRETS, VOLUME_CLAIMS))
"""Kinds whose objects would be lost with a namespace. Pods are not among them, because the watch delivers all pods."""
IN_EVERY_NAMESPACE: Final = ("kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert")
"""ConfigMaps that a cluster's own controllers put into every namespace."""

log = structlog.get_logger()


class OwnerNamespaces:
    """Tends the namespaces of one owner. Raises Conflict, Refused and ClusterUnreachable."""

    def __init__(self, fleet: str, api: ClusterApi, gate: BackoffGate) -> None:
        self._fleet = fleet
        self._api = api
        self._gate = gate
        self._ready: set[str] = set()

    async def ensure_namespace(self, name: str) -> str:
        """Makes sure the namespace exists and is secure. Returns the reason why no pool pod may run in it, or ""."""
        if name in self._ready:
            return ""
        labels = {FLEET: self._fleet, ENFORCE_LABEL: BASELINE}
        if not await self._create_if_absent(
            NAMESPACES, _make_manifest("v1", "Namespace", {"name": name, "labels": labels})
        ):
            found = await self._gate.send_request(lambda: self._api.get(NAMESPACES, "", name))
            if found is None or not self._is_ours(found):
                return (
                    f"namespace {name} of cluster {self._api.name} is not ours: it is without the label "
                    f"{FLEET}={self._fleet}, which a person there may give it"
                )
            await self._secure_namespace(found)
        policy = _make_manifest("networking.k8s.io/v1", "NetworkPolicy", {"namespace": name, "name": NO_INGRESS})
        policy["spec"] = {"podSelector": {}, "policyTypes": ["Ingress"]}
        await self._create_if_absent(NETWORK_POLICIES, policy)
        self._ready.add(name)
        return ""

    def note_namespace_missing(self, name: str) -> None:
        """Makes the next `ensure_namespace` check this namespace again, because it was missing a moment ago."""
        self._ready.discard(name)

    async def list_our_namespaces(self) -> dict[str, Manifest]:
        """Returns the pod namespaces with our fleet's label, by name.

        Namespaces that are no longer secure are checked again.
        """
        label = f"{FLEET}={self._fleet}"
        listed = await self._gate.send_request(lambda: self._api.list(NAMESPACES, label_selector=label))
        found = {one["metadata"]["name"]: one for one in listed}
        self._ready &= {name for name, one in found.items() if _is_secure(one)}
        return {name: one for name, one in found.items() if name.startswith(POD_NAMESPACE_PREFIX)}

    async def remove_namespace(self, namespace: Manifest) -> None:
        """Deletes a namespace, unless it is terminating already or holds an object that is not ours."""
        metadata = namespace["metadata"]
        name, uid, version = metadata["name"], metadata["uid"], metadata["resourceVersion"]
        self._ready.discard(name)
        if metadata.get("deletionTimestamp") or await self._has_objects_of_others(name):
            return
        await self._gate.send_request(lambda: self._api.delete(NAMESPACES, "", name, uid=uid, resource_version=version))
        log.info("removed: no pod refers to it", cluster=self._api.name, kind="namespaces", name=name)

    async def _has_objects_of_others(self, namespace: str) -> bool:
        for kind in HELD_KINDS:
            for found in await self._gate.send_request(lambda kind=kind: self._api.list(kind, namespace)):  # type: ignore[misc]
                if not is_copy(found) and (kind.plural, found["metadata"]["name"]) not in _OF_CLUSTER:
                    return True
        return False

    async def _secure_namespace(self, namespace: Manifest) -> None:
        metadata = namespace["metadata"]
        if not _is_secure(namespace):
            change = {"metadata": {"labels": {ENFORCE_LABEL: BASELINE}}}
            version, uid = metadata["resourceVersion"], metadata["uid"]
            await self._gate.send_request(
                lambda: self._api.patch(NAMESPACES, "", metadata["name"], change, resource_version=version, uid=uid)
            )
            log.warning(
                "a namespace of ours is labelled again",
                cluster=self._api.name,
                name=metadata["name"],
                label=ENFORCE_LABEL,
            )

    async def _create_if_absent(self, kind: Kind, manifest: dict[str, Any]) -> bool:
        """Creates an object. Returns whether it did not exist."""
        try:
            await self._gate.send_request(lambda: self._api.create(kind, manifest))
        except AlreadyExists:
            return False
        log.info("created for a pool's pods", cluster=self._api.name, kind=kind.plural, **manifest["metadata"])
        return True

    def _is_ours(self, namespace: Manifest) -> bool:
        return _labels_of(namespace).get(FLEET) == self._fleet


_OF_CLUSTER: Final = {(CONFIG_MAPS.plural, name) for name in IN_EVERY_NAMESPACE}


def is_copy(found: Manifest, pool_id: str = "") -> bool:
    """Returns whether a ConfigMap or Secret is a copy that a bridge made. A copy has both marks from its creation on.

    pool_id: the pool that the copy must be of; empty: any pool. The name alone proves nothing: names of two pools
    differ only by a hash, and users of a pool may find a name with the same hash.
    """
    pool = _labels_of(found).get(POOL)
    return bool(pool) and pool_id in ("", pool) and COPY_VERSION in (found["metadata"].get("annotations") or {})


def _is_secure(namespace: Manifest) -> bool:
    return _labels_of(namespace).get(ENFORCE_LABEL) in AS_STRICT


def _labels_of(found: Manifest) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def _make_manifest(api_version: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
