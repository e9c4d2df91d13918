"""Carries out the steps of a pool pod and its real pod: each is a write in the owner or in the pool."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from spillway.clusters.api import (
    PODS,
    AlreadyExists,
    ClusterApi,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
)
from spillway.running.isolation import ends_the_process, note_failed_work
from vk_bridge import metrics
from vk_bridge.cluster.answers import WriteAnswers
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.collection_writer import CollectionWriter
from vk_bridge.cluster.copies import Copies, MissingObject, is_namespace_gone_error
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.outcomes import CONFLICT, DONE, FAILED, WAITS
from vk_bridge.cluster.pod_conversion import SERVICE, try_convert_pod
from vk_bridge.cluster.pools import Pool
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.steps import NodeContext
from vk_bridge.core.pod.conversion import ConversionRefused as NotLendable
from vk_bridge.core.pod.replacement_pauses import ReplacementPauses
from vk_bridge.core.pod.status import failed_status, mirrored_status, status_after_update, waiting_status
from vk_bridge.core.pod.steps import (
    CreateReal,
    DeletePool,
    DeleteReal,
    FailPool,
    LetGo,
    Mirror,
    PodStep,
    UpdateReal,
    pod_pairs,
    pod_step,
    writes_of_step,
)
from vk_bridge.core.pod.update import update_patch
from vk_bridge.settings import VkBridgeSettings

NOT_LENDABLE, REFUSED, CONFIG_ERROR = "NotLendable", "RefusedByOwner", "CreateContainerConfigError"
BEYOND_SHARE = "CopiesBeyondShare"
REFUSED_BY_NODE = "RefusedByNode"
PAUSE_MESSAGE = "a real node has just refused pods of this kind or namespace; tried again soon"
TOLD_MAX = 1000
"""The most pods and steps to remember whose error was logged with its trace. So each is logged with its trace once."""
GONE_MESSAGE = {"Gone": "its real pod was deleted in the cluster where it ran", "NodeGone": "its real node is gone"}

log = structlog.get_logger()


class PodWriter:
    """Writes the pods of one owner cluster, on both sides."""

    def __init__(
        self, cluster: str, api: ClusterApi, gate: BackoffGate, copies: Copies, settings: VkBridgeSettings
    ) -> None:
        self._api = api
        self._gate = gate
        self._collection_writer = CollectionWriter(cluster, api, gate, settings)
        self._copies = copies
        self._at_once = settings.pods_at_once
        self._pauses = ReplacementPauses(settings.refusal_pause_seconds)
        self._told: set[str] = set()
        """Pods (by uid) and steps (by text) whose unexpected error was logged with its trace."""

    async def carry_out_steps(
        self,
        steps: Iterable[PodStep],
        reading: NodeReading,
        answers: WriteAnswers,
        carried_out: Callable[[PodStep], None],
    ) -> tuple[bool, bool]:
        """Carries out the steps. Returns whether anything was written, and whether anything has to wait.

        answers: collects the clusters' answers.
        carried_out: is called for each step that was carried out.
        """
        slots = asyncio.Semaphore(self._at_once)
        steps = tuple(steps)
        begun = reading.real_by_pool_uid.keys() | {pod.uid for pod in reading.observation.pool_pods if pod.created}
        put_off = self._pauses.deletions_to_put_off(reading.name, steps, begun, asyncio.get_running_loop().time())
        settled = await self._write_in_collections(steps, put_off, reading, answers, carried_out)

        async def carry_out_in_slot(step: PodStep) -> str:
            outcome = DONE
            async with slots:
                for write in writes_of_step(step):
                    outcome = settled.get(write, "")
                    if not outcome:
                        outcome = WAITS if write in put_off else await self._try_step(write, reading, answers)
                        metrics.STEPS.labels(type(write).__name__, outcome).inc()
                        if outcome == DONE:
                            carried_out(write)
                    if outcome != DONE:
                        break
            return outcome

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(carry_out_in_slot(step)) for step in steps]
        outcomes = {task.result() for task in tasks}
        return bool(outcomes & {DONE, CONFLICT}), bool(outcomes - {DONE, CONFLICT})

    async def _write_in_collections(
        self,
        steps: Iterable[PodStep],
        put_off: frozenset[PodStep],
        reading: NodeReading,
        answers: WriteAnswers,
        carried_out: Callable[[PodStep], None],
    ) -> dict[PodStep, str]:
        """Deletes pods as collections where possible. Returns the outcome of each write that was part of one.

        A pool pod is deleted only after its real pod.
        """
        by_step = [writes_of_step(step) for step in steps if step not in put_off]
        real = [write for written in by_step for write in written if isinstance(write, DeleteReal)]
        settled = await self._collection_writer.delete_real_pods(real, reading, answers, carried_out)
        ready = (written[-1] for written in by_step if all(settled.get(one) == DONE for one in written[:-1]))
        pool = [write for write in ready if isinstance(write, DeletePool | LetGo)]
        return settled | await self._collection_writer.delete_pool_pods(pool, reading, answers, carried_out)

    def decide_steps(self, reading: NodeReading, context: NodeContext) -> tuple[tuple[PodStep, ...], bool]:
        """Decides the step of each pod of a node. Also returns whether this failed for a pod and has to be tried again.

        A pod for which it failed stays as it is.
        """
        steps: list[PodStep] = []
        failed = False
        observation = reading.observation
        for pool, real in pod_pairs(observation.pool_pods, observation.real_pods):
            try:
                step = pod_step(pool, real, context)
            except Exception as error:
                if ends_the_process(error):
                    raise
                uid = pool.uid if pool is not None else real.pool_uid if real is not None else ""
                about = {"cluster": self._api.name, "node": reading.name, "uid": uid}
                note_failed_work(SERVICE, "pod", error, traced=self._is_first_error(uid), **about)
                failed = True
                continue
            if step is not None:
                steps.append(step)
        return tuple(steps), failed

    async def _try_step(self, step: PodStep, reading: NodeReading, answers: WriteAnswers) -> str:
        """Carries out one step and returns its outcome. An error of one pod does not affect other pods."""
        try:
            return DONE if await self._carry_out_step(step, reading, answers) else WAITS
        except Conflict:
            answers.incomplete = True
            return CONFLICT
        except (Refused, ClusterUnreachable) as error:
            log.info(
                "a step for a pod will be tried again", step=type(step).__name__, node=reading.name, error=str(error)
            )
            return FAILED
        except Exception as error:
            if ends_the_process(error):
                raise
            about = {"cluster": self._api.name, "node": reading.name, "step": str(step)}
            note_failed_work(SERVICE, "pod", error, traced=self._is_first_error(str(step)), **about)
            return FAILED

    def _is_first_error(self, pod: str) -> bool:
        """Returns whether this is the first error of a pod or step, and remembers it."""
        if pod in self._told:
            return False
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(pod)
        return True

    async def _carry_out_step(self, step: PodStep, reading: NodeReading, answers: WriteAnswers) -> bool:
        """Carries out one step. Returns False if something else must come first, so that the step is tried again."""
        match step:
            case CreateReal(uid):
                return await self._create_real_pod(reading, reading.pool_pods[uid], answers)
            case Mirror(uid):
                pod = reading.pool_pods[uid]
                real = reading.real_by_pool_uid[uid]
                await self._write_pool_pod_status(
                    reading, pod, mirrored_status(pod, real, reading.side.address), answers
                )
            case UpdateReal(uid):
                return await self._update_real_pod(
                    reading, reading.pool_pods[uid], reading.real_by_pool_uid[uid], answers
                )
            case FailPool(uid, reason):
                pod = reading.pool_pods[uid]
                await self._write_pool_pod_status(
                    reading, pod, failed_status(pod, reason, GONE_MESSAGE.get(reason, "")), answers
                )
            case DeletePool(uid, grace_seconds):
                answers.note_pod_deletion(
                    answers.pool_pods, uid, await self._delete_pool_pod(reading, uid, grace_seconds)
                )
            case LetGo(uid):
                answers.note_object_removal(uid, await self._delete_pool_pod(reading, uid, 0))
            case DeleteReal(uid, grace_seconds):
                answer = await self._delete_pod(self._api, self._gate, reading.real_pods[uid], grace_seconds)
                answers.note_pod_deletion(answers.real_pods, uid, answer)
        return True

    async def _create_real_pod(self, reading: NodeReading, pod: Manifest, answers: WriteAnswers) -> bool:
        pool, too_large = _pool_of_reading(reading), reading.too_large.get(pod["metadata"]["uid"], "")
        if too_large:
            return await self._fail_pool_pod(reading, pod, NOT_LENDABLE, too_large, answers)
        if pod["metadata"]["uid"] in reading.paused:
            await self._write_pool_pod_status(
                reading, pod, waiting_status(pod, REFUSED_BY_NODE, PAUSE_MESSAGE), answers
            )
            return False
        made = try_convert_pod(pod, reading.name, reading.side, traced=pod["metadata"]["uid"] not in self._told)
        if isinstance(made, NotLendable):
            self._is_first_error(pod["metadata"]["uid"])
            return await self._fail_pool_pod(reading, pod, NOT_LENDABLE, "; ".join(made.reasons), answers)
        namespace = made.pod["metadata"]["namespace"]
        try:
            missing = await self._copies.ensure_namespace_and_copies(pool, reading.side, namespace, made.references)
            if missing is not None:
                return await self._wait_for_missing_object(reading, pod, missing, answers)
            created = await self._gate.send_request(lambda: self._api.create(PODS, made.pod))
        except AlreadyExists:
            answers.incomplete = True
            return True
        except Forbidden as error:
            log.info("a pod waits: our account lacks a right", node=reading.name, error=str(error))
            await self._write_pool_pod_status(reading, pod, waiting_status(pod, REFUSED, str(error)), answers)
            return False
        except Refused as error:
            if is_namespace_gone_error(error):
                self._copies.note_namespace_missing(namespace)
                return False
            return await self._fail_pool_pod(reading, pod, REFUSED, error.message, answers)
        answers.real_pods[created["metadata"]["uid"]] = created
        return True

    async def _update_real_pod(
        self, reading: NodeReading, pod: Manifest, real: Manifest, answers: WriteAnswers
    ) -> bool:
        """Updates a real pod. If the owner refuses, the pool pod shows the reason, and the update is tried again."""
        metadata, change = real["metadata"], update_patch(real, pod, reading.side.carried)
        version, uid = metadata["resourceVersion"], metadata["uid"]
        place = (metadata["namespace"], metadata["name"])
        try:
            answers.real_pods[uid] = await self._gate.send_request(
                lambda: self._api.patch(PODS, *place, change, resource_version=version, uid=uid)
            )
        except NotFound:
            raise
        except Refused as error:
            await self._write_pool_pod_status(reading, pod, status_after_update(pod, REFUSED, error.message), answers)
            return False
        await self._write_pool_pod_status(reading, pod, status_after_update(pod), answers)
        return True

    async def _fail_pool_pod(
        self, reading: NodeReading, pod: Manifest, reason: str, message: str, answers: WriteAnswers
    ) -> bool:
        """Sets the pool pod to Failed. Returns False if the pod only waits, with the reason in its status."""
        now = asyncio.get_running_loop().time()
        if not self._pauses.may_fail_pod(reading.name, pod["metadata"]["namespace"], now):
            await self._write_pool_pod_status(reading, pod, waiting_status(pod, reason, message), answers)
            return False
        await self._write_pool_pod_status(reading, pod, failed_status(pod, reason, message), answers)
        return True

    async def _wait_for_missing_object(
        self, reading: NodeReading, pod: Manifest, missing: MissingObject, answers: WriteAnswers
    ) -> bool:
        if missing.refused:
            return await self._fail_pool_pod(reading, pod, NOT_LENDABLE, missing.what, answers)
        reason = BEYOND_SHARE if missing.beyond_share else CONFIG_ERROR
        await self._write_pool_pod_status(reading, pod, waiting_status(pod, reason, missing.what), answers)
        return False

    async def _write_pool_pod_status(
        self, reading: NodeReading, pod: Manifest, status: Mapping[str, Any] | None, answers: WriteAnswers
    ) -> None:
        """Writes the whole status of a pool pod; None: the pod already shows it."""
        if status is None:
            return
        pool, metadata = _pool_of_reading(reading), pod["metadata"]
        gone = [key for key in pod.get("status") or {} if key not in status]
        change: dict[str, Any] = {"status": {**status, **dict.fromkeys(gone)}}
        answers.pool_pods[metadata["uid"]] = await pool.gate.send_request(
            lambda: pool.api.patch(
                PODS,
                metadata["namespace"],
                metadata["name"],
                change,
                resource_version=metadata["resourceVersion"],
                uid=metadata["uid"],
                subresource="status",
            )
        )

    async def _delete_pool_pod(self, reading: NodeReading, uid: str, grace_seconds: int) -> Manifest:
        pool = _pool_of_reading(reading)
        return await self._delete_pod(pool.api, pool.gate, reading.pool_pods[uid], grace_seconds)

    @staticmethod
    async def _delete_pod(api: ClusterApi, gate: BackoffGate, pod: Manifest, grace_seconds: int) -> Manifest:
        namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
        return await gate.send_request(lambda: api.delete(PODS, namespace, name, uid=uid, grace_seconds=grace_seconds))


def _pool_of_reading(reading: NodeReading) -> Pool:
    assert reading.pool is not None, "a pool pod was read, so there is a pool"
    return reading.pool
