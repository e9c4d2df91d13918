"""Does a part of a kubelet that kwok lacks: containers wait for a missing ConfigMap or Secret and report that.

    python -m spillway_local.config_kubelet <kubeconfig>   for all nodes of a real member that kwok takes care of

kwok's rules can read only the pod itself. With the changed stages it does not start pods that need a ConfigMap or
Secret; this program starts them.
"""

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sim.core.kinds import Key
from sim.core.pod_config import config_needed_by_pod, missing_config_by_container, waiting_pod
from sim.core.pods import running_status
from spillway.clusters.api import (
    ClusterApi,
    ClusterApiSettings,
    ClusterUnreachable,
    Conflict,
    Kind,
    NotFound,
    make_cluster_api,
)
from spillway.clusters.credentials import load_endpoint
from spillway.kubernetes.objects import NODES, PODS, AnyObject

LOOK_SECONDS = 0.5
CONFIGS = {"configmaps": Kind("", "v1", "configmaps", AnyObject), "secrets": Kind("", "v1", "secrets", AnyObject)}
"""The kinds with their contents. Spillway itself reads the contents of no Secret."""
BOUND_AND_PENDING = "status.phase=Pending,spec.nodeName!="

_FAKE = ("kwok.x-k8s.io/node", "fake")
_READY_STAGE = "name: pod-ready\n"
_EXPRESSIONS = "    matchExpressions:\n"
_NEEDS = (
    "(.spec | (.containers[], .initContainers[]?) | (.envFrom[]?, .env[]?.valueFrom) "
    "| (.configMapRef, .secretRef, .configMapKeyRef, .secretKeyRef)), "
    "(.spec.volumes[]? | (., .projected.sources[]?) | (.configMap, .secret)) "
    "| select(. != null and .optional != true)"
)
"""A jq expression for kwok that finds the same objects as `config_needed_by_pod`."""


def stages_that_skip_config_pods(stages: str) -> str:
    """Returns kwok's stages, changed so that the stage that starts pods skips pods that need a ConfigMap or Secret."""
    documents = stages.split("\n---\n")
    (ready,) = (number for number, text in enumerate(documents) if _READY_STAGE in text)
    ours = f"    - key: '{_NEEDS}'\n      operator: 'DoesNotExist'\n"
    before, found, after = documents[ready].partition(_EXPRESSIONS)
    assert found, f"the stage with {_READY_STAGE.strip()} has no matchExpressions"
    documents[ready] = before + found + ours + after
    return "\n---\n".join(documents)


async def update_waiting_pods(api: ClusterApi, stamp: str) -> None:
    """Starts each pod whose objects exist. Other pods get the reason in their status. stamp: the time, RFC 3339."""
    pods = await api.list(PODS, field_selector=BOUND_AND_PENDING)
    pods = [
        pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and any(config_needed_by_pod(pod["spec"]))
    ]
    ours = await _fake_node_names(api) if pods else frozenset()
    for pod in pods:
        if pod["spec"]["nodeName"] in ours:
            with suppress(Conflict, NotFound):  # The pod has changed meanwhile; the next look sees its new state.
                await _update_waiting_pod(api, pod, stamp)


async def _update_waiting_pod(api: ClusterApi, pod: dict[str, Any], stamp: str) -> None:
    namespace, needed = pod["metadata"]["namespace"], tuple(config_needed_by_pod(pod["spec"]))
    found = {}
    for one in needed:
        key: Key = (namespace, one.name)
        found[one.plural, key] = await api.get(CONFIGS[one.plural], *key)
    lacks = missing_config_by_container(lambda plural, key: found[plural, key], namespace, needed)
    status = waiting_pod(pod, lacks, stamp)["status"] if lacks else _started_status(pod, stamp)
    if _container_states(status) != _container_states(pod["status"]):
        metadata = pod["metadata"]
        version = metadata["resourceVersion"]
        change = {"status": status}
        await api.patch(PODS, namespace, metadata["name"], change, resource_version=version, subresource="status")


def _started_status(pod: dict[str, Any], stamp: str) -> dict[str, Any]:
    running = {"ready": True, "restartCount": 0, "started": True, "state": {"running": {"startedAt": stamp}}}
    ended = {"ready": True, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    spec, status = pod["spec"], running_status(pod["status"], stamp, ready=True)
    status["containerStatuses"] = [_container_status(one, running) for one in spec["containers"]]
    if spec.get("initContainers"):
        sidecar = [one.get("restartPolicy") == "Always" for one in spec["initContainers"]]
        states = zip(spec["initContainers"], sidecar, strict=True)
        status["initContainerStatuses"] = [_container_status(one, running if lasts else ended) for one, lasts in states]
    return status


def _container_status(container: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {"name": container["name"], "image": container["image"], "imageID": "", **status}


def _container_states(status: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the state of each container, without the fields that an API server adds."""
    told = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [(one["name"], one["state"].get("waiting") or tuple(one["state"])) for one in told]


async def _fake_node_names(api: ClusterApi) -> frozenset[str]:
    name, value = _FAKE
    nodes = [one["metadata"] for one in await api.list(NODES)]
    return frozenset(one["name"] for one in nodes if (one.get("annotations") or {}).get(name) == value)


async def _update_pods_forever(kubeconfig: Path) -> None:
    read = partial(load_endpoint, kubeconfig.parent, kubeconfig.stem)
    api = make_cluster_api(read, kubeconfig.stem, ClusterApiSettings(field_manager="kubelet"))
    try:
        while True:
            with suppress(ClusterUnreachable):  # Tests kill and freeze the API server.
                await update_waiting_pods(api, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await api.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_update_pods_forever(Path(sys.argv[1])))
