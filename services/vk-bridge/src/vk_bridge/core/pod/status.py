"""Makes the status that a pool pod shows: the last table of docs/lending.md. A pod that has ended keeps its status."""

from typing import Any, Final

from spillway.kubernetes.live_objects import without_nulls
from spillway.kubernetes.objects import RESIZE_PENDING
from spillway.lending_marks import CREATED, NOT_UPDATED
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.virtual_node import ENDED
from vk_bridge.core.pod.admitted_sizes import added_sizes_text, is_refused_by_its_node
from vk_bridge.core.pod.update import is_resized

MIRRORED: Final = (
    "phase",
    "reason",
    "message",
    "initContainerStatuses",
    "containerStatuses",
    "podIP",
    "podIPs",
    "startTime",
)
POOLS_OWN: Final = ("PodScheduled", "DisruptionTarget", NOT_UPDATED)
"""Conditions that the pool, or the bridge, sets on the pool pod itself."""
NOT_RESIZED: Final = {
    "type": RESIZE_PENDING,
    "status": "True",
    "reason": "Infeasible",
    "message": "a pod on a lent node keeps the size with which its real pod was made",
}
"""The condition that a kubelet sets on a pod that it never resizes."""


def mirrored_status(pool_pod: Manifest, real_pod: Manifest, address: str) -> dict[str, Any] | None:
    """Returns the status that the pool pod should have; None: it has it already, or has ended.

    address: the address of the virtual node.
    """
    shown, real = pool_pod.get("status") or {}, real_pod.get("status") or {}
    if shown.get("phase") in ENDED:
        return None
    kept = {key: value for key, value in shown.items() if key not in MIRRORED}
    found = {key: real[key] for key in MIRRORED if key in real}
    wanted = {
        **kept,
        "phase": "Pending",
        **found,
        "hostIP": address,
        "conditions": _mirrored_conditions(pool_pod, real_pod),
    }
    if is_refused_by_its_node(real_pod):
        wanted["message"] = _refusal_message(real_pod, pool_pod)
    return None if _are_equal_statuses(wanted, shown) else wanted


def _refusal_message(real_pod: Manifest, pool_pod: Manifest) -> str:
    """Returns the kubelet's message, and the sizes that the owner's admission added, which the pool does not show."""
    message, added = real_pod["status"].get("message", ""), added_sizes_text(real_pod, pool_pod)
    return f"{message}; the cluster where it was to run adds to what it asks for: {added}" if added else message


def failed_status(pool_pod: Manifest, reason: str, message: str) -> dict[str, Any] | None:
    """Returns the status of a pool pod that is refused or whose real pod is gone; None: it has ended already."""
    shown = pool_pod.get("status") or {}
    if shown.get("phase") in ENDED:
        return None
    conditions = [
        {**entry, "status": "False"} if entry.get("type") in ("Ready", "ContainersReady") else entry
        for entry in shown.get("conditions") or ()
    ]
    return {**shown, "phase": "Failed", "reason": reason, "message": message, "conditions": conditions}


def waiting_status(pool_pod: Manifest, container_reason: str, message: str) -> dict[str, Any] | None:
    """Returns the status of a waiting pool pod, in a kubelet's form; None: the pod shows it already, or has ended."""
    shown = pool_pod.get("status") or {}
    waiting = {"waiting": {"reason": container_reason, "message": message}}
    statuses = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": waiting,
            "lastState": {},
        }
        for container in pool_pod["spec"].get("containers") or ()
    ]
    wanted = {**shown, "phase": "Pending", "containerStatuses": statuses}
    return None if shown.get("phase") in ENDED or _are_equal_statuses(wanted, shown) else wanted


def status_after_update(pool_pod: Manifest, reason: str = "", message: str = "") -> dict[str, Any] | None:
    """Returns the status that tells whether the last change of the pool pod reached the real pod.

    reason, message: why it did not reach it; empty: it did.
    None: the pod already shows that, or has ended.
    """
    shown = pool_pod.get("status") or {}
    told = [entry.get("reason") for entry in shown.get("conditions") or () if entry.get("type") == NOT_UPDATED]
    if shown.get("phase") in ENDED or told == ([reason] if reason else []):
        return None
    others = [entry for entry in shown.get("conditions") or () if entry.get("type") != NOT_UPDATED]
    new = {"type": NOT_UPDATED, "status": "True", "reason": reason, "message": message}
    # It comes first, as in mirrored_status. In another order the two functions would rewrite the status without end.
    return {**shown, "conditions": [new, *others] if reason else others}


def _are_equal_statuses(wanted: Manifest, shown: Manifest) -> bool:
    """Returns whether two statuses are equal. A server writes times that nobody set as null."""
    return bool(without_nulls(dict(wanted)) == without_nulls(dict(shown)))


def has_had_real_pod(pool_pod: Manifest) -> bool:
    """Returns whether a real pod of it has existed; if so, no second one is created when that is gone."""
    return any(
        entry.get("type") == CREATED and entry.get("status") == "True"
        for entry in (pool_pod.get("status") or {}).get("conditions") or ()
    )


def _mirrored_conditions(pool_pod: Manifest, real_pod: Manifest) -> list[dict[str, Any]]:
    ours = [NOT_RESIZED] if is_resized(real_pod, pool_pod) else []
    hidden = (*POOLS_OWN, *(one["type"] for one in ours))
    own = [entry for entry in _pod_conditions(pool_pod) if entry.get("type") in POOLS_OWN]
    theirs = [entry for entry in _pod_conditions(real_pod) if entry.get("type") not in hidden]
    return [*own, *theirs, *ours, {"type": CREATED, "status": "True"}]


def _pod_conditions(pod: Manifest) -> list[dict[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or ())
