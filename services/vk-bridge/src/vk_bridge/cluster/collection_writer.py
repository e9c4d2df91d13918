"""Deletes many pods of one node with one request.

PodWriter deletes other pods one by one.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from spillway.clusters.api import PODS, ClusterApi, ClusterUnreachable, Conflict, Forbidden, Manifests, Refused
from spillway.lending_marks import POOL_UID, virtual_node_name
from vk_bridge import metrics
from vk_bridge.cluster.answers import WriteAnswers
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.outcomes import CONFLICT, DONE, FAILED
from vk_bridge.core.pod.delete_collections import (
    CollectionBounds,
    DeleteCollection,
    Deletion,
    PoolDeletion,
    pool_pod_collections,
    real_pod_collections,
)
from vk_bridge.core.pod.steps import DeleteReal, LetGo, PodStep
from vk_bridge.settings import VkBridgeSettings

NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
Told = Callable[[PodStep], None]
log = structlog.get_logger()


class CollectionWriter:
    """Deletes pods as collections, for one owner and the pools of its nodes.

    If our account lacks the right in a cluster, the cluster is asked again after a while.
    """

    def __init__(self, cluster: str, api: ClusterApi, gate: BackoffGate, settings: VkBridgeSettings) -> None:
        self._cluster = cluster
        self._api = api
        self._gate = gate
        self._bounds = CollectionBounds(settings.collection_least, settings.collection_most)
        self._again_seconds = settings.resync_seconds
        self._forbidden_at: dict[str, float] = {}
        """By cluster: the clock time at which it last refused the request because our account lacks the right."""

    async def delete_real_pods(
        self, steps: Iterable[DeleteReal], reading: NodeReading, answers: WriteAnswers, carried_out: Told
    ) -> dict[PodStep, str]:
        """Deletes real pods as collections. Returns the outcome of each step for which a request was sent.

        The caller carries out all other steps one by one.
        """
        namespaces = {uid: pod["metadata"]["namespace"] for uid, pod in reading.real_pods.items()}
        found = real_pod_collections(steps, namespaces, self._bounds, leaving=reading.is_recalled)
        return await self._write_collections(self._cluster, found, reading, answers, carried_out)

    async def delete_pool_pods(
        self, steps: Iterable[PoolDeletion], reading: NodeReading, answers: WriteAnswers, carried_out: Told
    ) -> dict[PodStep, str]:
        """Deletes pool pods as collections. Returns the outcome of each step for which a request was sent."""
        found = pool_pod_collections(steps, reading.found.pool_listed, self._bounds, leaving=reading.is_recalled)
        return await self._write_collections(reading.side.pool_id, found, reading, answers, carried_out)

    async def _write_collections(
        self,
        cluster: str,
        found: Iterable[DeleteCollection],
        reading: NodeReading,
        answers: WriteAnswers,
        carried_out: Told,
    ) -> dict[PodStep, str]:
        outcomes: dict[PodStep, str] = {}
        for many in found:
            if not self._may_delete_collections(cluster):
                break
            outcome = await self._try_delete_collection(cluster, many, reading, answers)
            if not outcome:
                continue
            for step in many.steps:
                outcomes[step] = outcome
                metrics.STEPS.labels(type(step).__name__, outcome).inc()
                if outcome == DONE:
                    carried_out(step)
        return outcomes

    async def _try_delete_collection(
        self, cluster: str, many: DeleteCollection, reading: NodeReading, answers: WriteAnswers
    ) -> str:
        """Returns the outcome of all steps of a request.

        Empty: write them one by one, because one or all may be refused.
        """
        try:
            deleted = await (
                self._delete_in_owner(many, reading)
                if cluster == self._cluster
                else self._delete_in_pool(many, reading)
            )
        except Conflict:
            answers.incomplete = True
            return CONFLICT
        except Forbidden as error:
            self._note_forbidden(cluster, error)
            return ""
        except Refused as error:
            log.info("pods will be deleted one by one", cluster=cluster, node=reading.name, error=str(error))
            return ""
        except ClusterUnreachable as error:
            log.info("the deletion of pods will be tried again", cluster=cluster, node=reading.name, error=str(error))
            return FAILED
        self._forbidden_at.pop(cluster, None)
        self._note_pod_deletions(many.steps, deleted, answers)
        return DONE

    async def _delete_in_owner(self, many: DeleteCollection, reading: NodeReading) -> Manifests:
        uids = (reading.real_pods[step.uid]["metadata"]["labels"][POOL_UID] for step in _real_pod_deletions(many.steps))
        return await self._gate.send_request(
            lambda: self._api.delete_collection(
                PODS,
                many.namespace,
                field_selector=f"spec.nodeName={reading.name}",
                label_selector=f"{POOL_UID} in ({','.join(sorted(uids))})",
                grace_seconds=many.grace_seconds,
            )
        )

    async def _delete_in_pool(self, many: DeleteCollection, reading: NodeReading) -> Manifests:
        pool = reading.pool
        assert pool is not None, "a pool pod was read, so there is a pool"
        return await pool.gate.send_request(
            lambda: pool.api.delete_collection(
                PODS,
                many.namespace,
                field_selector=f"spec.nodeName={virtual_node_name(self._cluster, reading.name)},{NOT_ENDED}",
                as_of_version=reading.found.pool_version,
                grace_seconds=many.grace_seconds,
            )
        )

    @staticmethod
    def _note_pod_deletions(steps: Iterable[Deletion], deleted: Manifests, answers: WriteAnswers) -> None:
        """Stores the answers in `answers`. A pool pod that LetGo deleted is gone.

        The state of a pod that was deleted with a grace period must be read again.
        """
        by_uid: Mapping[str, dict[str, object]] = {one["metadata"]["uid"]: one for one in deleted}
        for step in steps:
            if isinstance(step, LetGo) and step.pool_uid in by_uid:
                answers.note_object_removal(step.pool_uid, by_uid[step.pool_uid])
            else:
                answers.pods_unknown = True

    def _may_delete_collections(self, cluster: str) -> bool:
        said_at = self._forbidden_at.get(cluster)
        return said_at is None or asyncio.get_running_loop().time() - said_at >= self._again_seconds

    def _note_forbidden(self, cluster: str, error: Forbidden) -> None:
        """Records that our account lacks the right, so that the cluster is not asked again for a while.

        It is logged once until the cluster allows it again.
        """
        if cluster not in self._forbidden_at:
            log.warning("pods are deleted one by one: our account lacks a right", cluster=cluster, error=str(error))
        self._forbidden_at[cluster] = asyncio.get_running_loop().time()


def _real_pod_deletions(steps: Iterable[Deletion]) -> Iterable[DeleteReal]:
    return (step for step in steps if isinstance(step, DeleteReal))
