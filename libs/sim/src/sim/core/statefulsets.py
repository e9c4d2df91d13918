"""The StatefulSet controller: pods by ordinal, one by one or in parallel, updated from the highest ordinal down.

Not modelled: volumes, ordinals.start, partition, maxUnavailable, and an earlier revision for a pod that is made again
during an update.
"""

from typing import Any

from sim.core.deployments import template_hash
from sim.core.kinds import Key, Object
from sim.core.owners import Owners
from sim.core.pods import is_active, is_ready, is_terminal

REVISION_LABEL = "controller-revision-hash"


class StatefulSets(Owners):
    plural = "statefulsets"

    def reconcile_owner(self, key: Key, found: Object, limit: int) -> int:
        revision = f"{key[1]}-{template_hash(found['spec']['template'])}"
        writes = self._sync_pods(found, revision, limit)
        current = self._world.store.tables[self.plural][key]
        self._world.put_status(self.plural, current, self._new_status(current, revision))
        return writes

    def _sync_pods(self, found: Object, revision: str, limit: int) -> int:
        """Makes and deletes pods. OrderedReady does one thing and waits for it; Parallel waits only in updates."""
        spec = found["spec"]
        replicas, ordered = spec["replicas"], spec.get("podManagementPolicy") != "Parallel"
        pods = {_ordinal_of_pod(pod): pod for pod in self.pods_of(found)}
        writes = 0
        for ordinal in range(replicas):
            pod = pods.get(ordinal)
            if pod is None:
                if writes >= limit:
                    self.dirty[found["metadata"]["namespace"], found["metadata"]["name"]] = None
                    return writes
                if not self._make_ordinal_pod(found, ordinal, revision):
                    return writes
                writes += 1
            elif is_terminal(pod) and "deletionTimestamp" not in pod["metadata"]:
                self._garbage.delete_pod(pod)
                writes += 1
            if ordered and (pod is None or not _is_active_and_ready(pod)):
                return writes
        for ordinal in sorted((ordinal for ordinal in pods if ordinal >= replicas), reverse=True):
            if "deletionTimestamp" not in pods[ordinal]["metadata"]:
                self._garbage.delete_pod(pods[ordinal])
                writes += 1
            if ordered:
                return writes
        by_hand = (spec.get("updateStrategy") or {}).get("type") == "OnDelete"
        return writes if writes or by_hand else self._update_one_pod(pods, replicas, revision)

    def _make_ordinal_pod(self, found: Object, ordinal: int, revision: str) -> bool:
        name = f"{found['metadata']['name']}-{ordinal}"
        labels = {
            REVISION_LABEL: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        return self.make_pod(found, name, labels)

    def _update_one_pod(self, pods: dict[int, Object], replicas: int, revision: str) -> int:
        """Deletes the highest pod of another revision, once all pods above it are ready.

        Returns the number of writes.
        """
        for ordinal in sorted((ordinal for ordinal in pods if ordinal < replicas), reverse=True):
            pod = pods[ordinal]
            if is_active(pod) and _revision_of_pod(pod) != revision:
                self._garbage.delete_pod(pod)
                return 1
            if not _is_active_and_ready(pod):
                return 0
        return 0

    def _new_status(self, found: Object, revision: str) -> dict[str, Any]:
        pods = [pod for pod in self.pods_of(found) if is_active(pod)]
        ready = [pod for pod in pods if is_ready(pod)]
        updated = [pod for pod in pods if _revision_of_pod(pod) == revision]
        before = (found.get("status") or {}).get("currentRevision", revision)
        done = len(updated) == len(pods) == len(ready)
        current = revision if done else before
        counts = {
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": len(ready),
            "updatedReplicas": len(updated),
            "currentReplicas": sum(1 for pod in pods if _revision_of_pod(pod) == current),
        }
        return {
            "observedGeneration": found["metadata"].get("generation", 1),
            "currentRevision": current,
            "updateRevision": revision,
            "replicas": len(pods),
            **{name: count for name, count in counts.items() if count},
        }


def _ordinal_of_pod(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _revision_of_pod(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(REVISION_LABEL, ""))


def _is_active_and_ready(pod: Object) -> bool:
    return is_active(pod) and is_ready(pod)
