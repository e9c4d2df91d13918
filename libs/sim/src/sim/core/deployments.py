"""The Deployment controller: its ReplicaSets, their rollout, and the Deployment's status."""

from typing import Any
from zlib import crc32

import msgspec

from sim.core.garbage import Garbage
from sim.core.kinds import Key, Object
from sim.core.replicasets import ReplicaSets, owner_reference
from sim.core.rollout import (
    DESIRED_ANNOTATION,
    Limits,
    SetCount,
    recreated_replicas_by_name,
    resized_replicas_by_name,
    resolve_limits,
    rolled_replicas_by_name,
)
from sim.core.world import World, controller_of, find_condition

_PLURAL, _SETS = "deployments", "replicasets"
_HASH = "pod-template-hash"
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_REVISION = "deployment.kubernetes.io/revision"


class Deployments:
    def __init__(self, world: World, garbage: Garbage, replicasets: ReplicaSets) -> None:
        self._world = world
        self._garbage = garbage
        self._replicasets = replicasets
        self._sets_by_uid: dict[str, dict[Key, None]] = {}
        self.dirty: dict[Key, None] = {}

    def on_deployment(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self.dirty.pop(key, None)
        elif new is not None and (old is None or _generation_of_deployment(old) != _generation_of_deployment(new)):
            self.dirty[key] = None

    def on_replicaset(self, key: Key, old: Object | None, new: Object | None) -> None:
        owner = controller_of(new or old or {"metadata": {}})
        if owner is None or owner["kind"] != "Deployment":
            return
        sets = self._sets_by_uid.setdefault(owner["uid"], {})
        if new is None:
            sets.pop(key, None)
            if not sets:
                del self._sets_by_uid[owner["uid"]]
        else:
            sets[key] = None
        self.dirty[key[0], owner["name"]] = None

    def reconcile(self, limit: int) -> int:
        writes = 0
        while self.dirty and writes < limit:
            key = next(iter(self.dirty))
            del self.dirty[key]
            deployment = self._world.store.get_object(_PLURAL, key)
            if deployment and "deletionTimestamp" not in deployment["metadata"]:
                self._reconcile_deployment(deployment)
                writes += 1
        return writes

    def _reconcile_deployment(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        limits = rollout_limits(spec)
        sets = self._sets_oldest_first(metadata["uid"])
        wanted_hash = template_hash(spec["template"])
        new = next((one for one in sets if _hash_of_set(one) == wanted_hash), None)
        old = [one for one in sets if one is not new]
        if spec.get("paused"):
            if sets and self._is_resized(sets, limits):
                self._scale_sets(
                    resized_replicas_by_name(
                        limits, _count_of_set(new) if new else None, [_count_of_set(one) for one in old]
                    ),
                    limits,
                )
        else:
            if new is None:
                new = self._create_set(deployment, wanted_hash, sets)
            self._roll_out(deployment, limits, new, old)
            self._delete_old_sets(deployment, old)
        self._write_status(metadata, limits, wanted_hash)

    def _roll_out(self, deployment: Object, limits: Limits, new: Object, old: list[Object]) -> None:
        counts = [_count_of_set(one) for one in old]
        metadata = new["metadata"]
        if self._is_resized([new, *old], limits) and any(one["spec"]["replicas"] for one in (new, *old)):
            self._scale_sets(resized_replicas_by_name(limits, _count_of_set(new), counts), limits, [new, *old])
            return
        if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
            present = []
            for one, count in zip(old, counts, strict=True):
                tally = self._replicasets.tally_of(one["metadata"]["uid"])
                actual = len(tally.active) + len(tally.terminating)
                present.append(SetCount(count.name, count.replicas, actual, count.available))
            changed = recreated_replicas_by_name(limits.replicas, _count_of_set(new), present)
        else:
            changed = rolled_replicas_by_name(limits, _count_of_set(new), counts)
        self._scale_sets(changed, limits, namespace=metadata["namespace"])

    def _is_resized(self, sets: list[Object], limits: Limits) -> bool:
        """Returns whether the Deployment's replicas have changed.

        Then a ReplicaSet with replicas still has the former number in its annotation of desired replicas.
        """
        live = [one for one in sets if one["spec"]["replicas"] > 0]
        desired = [(one["metadata"].get("annotations") or {}).get(DESIRED_ANNOTATION) for one in live]
        return any(text is not None and text != str(limits.replicas) for text in desired)

    def _scale_sets(
        self, replicas_by_name: dict[str, int], limits: Limits, touched: list[Object] | None = None, namespace: str = ""
    ) -> None:
        annotated = {one["metadata"]["name"]: one for one in touched or ()}
        namespace = namespace or (touched[0]["metadata"]["namespace"] if touched else "")
        for name in {**dict.fromkeys(annotated), **replicas_by_name}:
            found = self._world.store.tables[_SETS][namespace, name]
            replicas = replicas_by_name.get(name, found["spec"]["replicas"])
            annotations = {**(found["metadata"].get("annotations") or {}), DESIRED_ANNOTATION: str(limits.replicas)}
            if replicas == found["spec"]["replicas"] and annotations == found["metadata"].get("annotations"):
                continue
            metadata = {**found["metadata"], "annotations": annotations}
            spec = found["spec"]
            if replicas != spec["replicas"]:
                metadata["generation"] = metadata.get("generation", 1) + 1
                spec = {**spec, "replicas": replicas}
            self._world.store.put_object(_SETS, {**found, "metadata": metadata, "spec": spec})

    def _create_set(self, deployment: Object, wanted_hash: str, sets: list[Object]) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: wanted_hash}
        selector = spec["selector"]
        matching = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: wanted_hash}}
        revision = max((_revision_of_set(one) for one in sets), default=0) + 1
        replicas = rollout_limits(spec).replicas if not sets else 0
        new_set: Object = {
            "metadata": {
                "name": f"{metadata['name']}-{wanted_hash}",
                "namespace": metadata["namespace"],
                "uid": self._world.new_uid(),
                "creationTimestamp": self._world.timestamp(),
                "generation": 1,
                "labels": labels,
                "annotations": {DESIRED_ANNOTATION: str(rollout_limits(spec).replicas), _REVISION: str(revision)},
                "ownerReferences": [owner_reference("apps/v1", "Deployment", metadata)],
            },
            "spec": {
                "replicas": replicas,
                "selector": matching,
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
            "status": {"replicas": 0},
        }
        if spec.get("minReadySeconds"):
            new_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        return self._world.store.put_object(_SETS, new_set)

    def _delete_old_sets(self, deployment: Object, old: list[Object]) -> None:
        kept = deployment["spec"].get("revisionHistoryLimit", 10)
        empty = [one for one in old if not one["spec"]["replicas"] and not one["status"].get("replicas")]
        for one in empty[: max(0, len(empty) - kept)]:
            current = self._world.object_with_uid(
                _SETS, (one["metadata"]["namespace"], one["metadata"]["name"]), one["metadata"]["uid"]
            )
            if current and not current["spec"]["replicas"]:
                self._garbage.delete_object(_SETS, current)

    def _sets_oldest_first(self, uid: str) -> list[Object]:
        """Returns the ReplicaSets of the Deployment with this uid, sorted by their revision."""
        table = self._world.store.tables[_SETS]
        return sorted((table[key] for key in self._sets_by_uid.get(uid, ())), key=_revision_of_set)

    def _write_status(self, metadata: dict[str, Any], limits: Limits, wanted_hash: str) -> None:
        key = metadata["namespace"], metadata["name"]
        deployment = self._world.store.tables[_PLURAL][key]
        sets = self._sets_oldest_first(metadata["uid"])
        new = next((one for one in sets if _hash_of_set(one) == wanted_hash), None)
        total = {
            field: sum(one["status"].get(field, 0) for one in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
        }
        updated = new["status"].get("replicas", 0) if new else 0
        counts = {
            **total,
            "updatedReplicas": updated,
            "unavailableReplicas": max(0, sum(one["spec"]["replicas"] for one in sets) - total["availableReplicas"]),
        }
        status: dict[str, Any] = {"observedGeneration": deployment["metadata"].get("generation", 1)}
        status |= {field: count for field, count in counts.items() if count}
        status["conditions"] = self._deployment_conditions(deployment, limits, counts, sets)
        self._world.put_status(_PLURAL, deployment, status)

    def _deployment_conditions(
        self, deployment: Object, limits: Limits, counts: dict[str, int], sets: list[Object]
    ) -> list[dict[str, Any]]:
        enough = counts["availableReplicas"] >= limits.replicas - limits.unavailable
        available = (
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
            if enough
            else ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        )
        name = deployment["metadata"]["name"]
        done = counts["replicas"] == counts["updatedReplicas"] == counts["availableReplicas"] == limits.replicas
        progressing = (
            ("True", "NewReplicaSetAvailable", f'ReplicaSet of "{name}" has successfully progressed.')
            if done
            else ("True", "ReplicaSetUpdated", f'ReplicaSet of "{name}" is progressing.')
        )
        conditions = [
            self._next_condition(deployment, "Available", available),
            self._next_condition(deployment, "Progressing", progressing),
        ]
        failed = next((one for one in map(_failure_condition, sets) if one), None)
        return [*conditions, *([failed] if failed else [])]

    def _next_condition(self, deployment: Object, kind: str, what: tuple[str, str, str]) -> dict[str, Any]:
        status, reason, message = what
        known = find_condition(deployment, kind)
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        if known and {**known, **new} == known:
            return known
        stamp = self._world.timestamp()
        since = known["lastTransitionTime"] if known and known["status"] == status else stamp
        return {**new, "lastUpdateTime": stamp, "lastTransitionTime": since}


def rollout_limits(spec: dict[str, Any]) -> Limits:
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return Limits(spec.get("replicas", 1), 0, 0)
    return resolve_limits(spec.get("replicas", 1), rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"))


def template_hash(template: dict[str, Any]) -> str:
    encoded = msgspec.json.encode(template, order="deterministic")
    number = crc32(encoded) | crc32(encoded, 1) << 32
    letters = []
    for _ in range(10):
        number, index = divmod(number, len(_HASH_LETTERS))
        letters.append(_HASH_LETTERS[index])
    return "".join(letters)


def _hash_of_set(replicaset: Object) -> str:
    return str((replicaset["metadata"].get("labels") or {}).get(_HASH, ""))


def _revision_of_set(replicaset: Object) -> int:
    return int((replicaset["metadata"].get("annotations") or {}).get(_REVISION, "0"))


def _count_of_set(replicaset: Object) -> SetCount:
    status = replicaset["status"]
    return SetCount(
        name=replicaset["metadata"]["name"],
        replicas=replicaset["spec"]["replicas"],
        actual=status.get("replicas", 0),
        available=status.get("availableReplicas", 0),
    )


def _failure_condition(replicaset: Object) -> dict[str, Any] | None:
    return find_condition(replicaset, "ReplicaFailure")


def _generation_of_deployment(deployment: Object) -> int:
    """Returns the generation. It rises with a change of the spec or of an annotation."""
    return int(deployment["metadata"].get("generation", 0))
