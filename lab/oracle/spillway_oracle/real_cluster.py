"""Plays cases in a real control plane without controllers. Its scheduler decides which answer is right."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

from spillway.kubernetes.objects import Manifest
from spillway_local.member_credentials import MemberAccess

from .cases import Case

SETTLE_SECONDS = 60.0
PAUSE_SECONDS = 0.2
MERGE = "application/merge-patch+json"


class Refused(RuntimeError):
    """Raised when the API server refuses a call. code: the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NotSettled(RuntimeError):
    """Raised when the scheduler has not decided on all pods in time."""


def can_be_played(case: Case) -> bool:
    """Returns whether a real server would store the case's objects unchanged and no other program would change them."""
    pods = case.world["pods"]
    spec = case.template["spec"]
    apart = ("runtimeClassName", "overhead", "nodeName", "schedulerName")
    return (
        "volumes" not in case.world
        and not any(key in spec for key in apart)
        and not any("deletionTimestamp" in pod["metadata"] or "overhead" in pod["spec"] for pod in pods)
        and all("nodeName" in pod["spec"] and set(pod["status"]) == {"phase"} for pod in pods)
    )


class RealCluster:
    """A control plane whose scheduler places pods. No other program acts on its nodes or pods."""

    def __init__(self, access: MemberAccess) -> None:
        self._access = access
        self._context = access.ssl_context()
        self._played = 0

    def schedule_case(self, case: Case, replicas: int, enough: Callable[[int], bool]) -> int:
        """Schedules a case and returns the number of bound replicas, once all others are unschedulable.

        enough: returns whether this number may be final. Raises NotSettled if the scheduler needs too long.
        """
        self._delete_pods_and_nodes()
        for namespace in {case.namespace, *(pod["metadata"]["namespace"] for pod in case.world["pods"])}:
            self._create_namespace(namespace, case)
        for node in case.world["nodes"]:
            self._create_node(node)
        for pod in case.world["pods"]:
            self._create_pod(pod)
        self._wait_for_the_scheduler()
        path = f"/api/v1/namespaces/{case.namespace}/pods"
        for index in range(replicas):
            metadata = case.template["metadata"] | {"name": f"replica-{index}"}
            self._call_api("POST", path, case.template | {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        return self._wait_for_bound_replicas(path, enough)

    def _wait_for_the_scheduler(self) -> None:
        """Waits until the scheduler binds a pod to the newest node: then it knows all others. No replica fits there."""
        self._played += 1
        name = f"sentinel-{self._played}"
        taint = {"key": "sentinel", "effect": "NoSchedule"}
        status = {"allocatable": {"pods": "1", "cpu": "1"}}
        self._create_node(
            {"metadata": {"name": name, "labels": {name: ""}}, "spec": {"taints": [taint]}, "status": status}
        )
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        tolerations = [{"key": "sentinel", "operator": "Exists"}]
        spec = {"containers": [container], "nodeSelector": {name: ""}, "tolerations": tolerations}
        path = "/api/v1/namespaces/default/pods"
        self._call_api("POST", path, {"metadata": {"name": name}, "spec": spec})
        until = time.monotonic() + SETTLE_SECONDS
        while "nodeName" not in self._call_api("GET", f"{path}/{name}")["spec"]:
            if time.monotonic() > until:
                raise NotSettled(f"{name} is not bound")
            time.sleep(PAUSE_SECONDS)

    def _wait_for_bound_replicas(self, path: str, enough: Callable[[int], bool]) -> int:
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            items = self._call_api("GET", path)["items"]
            replicas = [pod for pod in items if pod["metadata"]["name"].startswith("replica-")]
            bound = sum("nodeName" in pod["spec"] for pod in replicas)
            if bound + sum(_is_unschedulable(pod) for pod in replicas) == len(replicas) and enough(bound):
                return bound
            time.sleep(PAUSE_SECONDS)
        raise NotSettled(f"{bound} of {len(replicas)} bound")

    def _delete_pods_and_nodes(self) -> None:
        for pod in self._call_api("GET", "/api/v1/pods")["items"]:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            self._call_api("DELETE", path, {"gracePeriodSeconds": 0})
        self._call_api("DELETE", "/api/v1/nodes", {})

    def _create_namespace(self, name: str, case: Case) -> None:
        known = {entry["metadata"]["name"]: entry["metadata"]["labels"] for entry in case.world["namespaces"]}
        body = {"metadata": {"name": name, "labels": known.get(name, {})}}
        try:
            self._call_api("POST", "/api/v1/namespaces", body)
        except Refused as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
            self._call_api("PATCH", f"/api/v1/namespaces/{name}", body)

    def _create_node(self, node: Manifest) -> None:
        """Creates a node, and then sets its taints, because the API server taints each new node as not ready."""
        name = node["metadata"]["name"]
        metadata = {"name": name, "labels": node["metadata"].get("labels", {})}
        self._call_api("POST", "/api/v1/nodes", {"metadata": metadata, "spec": node["spec"]})
        allocatable = node["status"]["allocatable"]
        self._call_api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": allocatable}})
        self._call_api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"allocatable": allocatable}})
        self._call_api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": node["spec"].get("taints", [])}})

    def _create_pod(self, pod: Manifest) -> None:
        metadata = {key: pod["metadata"][key] for key in ("name", "labels")}
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        self._call_api("POST", path, {"metadata": metadata, "spec": pod["spec"]})
        self._call_api("PATCH", f"{path}/{metadata['name']}/status", {"status": pod["status"]})

    def _call_api(self, verb: str, path: str, body: Manifest | None = None) -> dict[str, Any]:
        content = MERGE if verb == "PATCH" else "application/json"
        request = urllib.request.Request(
            self._access.server + path,
            method=verb,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self._access.headers, "Content-Type": content},
        )
        try:
            with urllib.request.urlopen(request, timeout=20.0, context=self._context) as response:
                found: dict[str, Any] = json.load(response)
        except HTTPError as error:
            raise Refused(error.code, f"{verb} {path}: {error.code} {error.read().decode()}") from error
        return found


def _is_unschedulable(pod: Manifest) -> bool:
    conditions: Iterator[Manifest] = iter(pod["status"].get("conditions", ()))
    return "nodeName" not in pod["spec"] and any(
        (entry["type"], entry["status"]) == ("PodScheduled", "False") for entry in conditions
    )
