"""A pool pod as NodeLent tells of it: what its loss would cost."""

from datetime import datetime
from typing import Final

from spillway.events_lending import Amounts, LentPod
from vk_bridge.core.loan import Manifest

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def lent_pod(pod: Manifest, requests: Amounts, budgets: Amounts) -> LentPod:
    """requests: by resource. budgets: as of LentPod."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    return LentPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        group=f"{owner['kind']}/{metadata['namespace']}/{owner['name']}" if owner else "",
        requests=requests,
        priority=spec.get("priority") or 0,
        deletion_cost=_whole((metadata.get("annotations") or {}).get(DELETION_COST, "0")),
        started_ms=_started_ms(pod),
        budgets=budgets,
    )


def unix_ms(text: str) -> int:
    """Of a time as Kubernetes writes it; 0 where it cannot be read."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _started_ms(pod: Manifest) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = [one.get("state") or {} for one in statuses]
    times = [
        unix_ms((state.get("running") or state.get("terminated") or {}).get("startedAt") or "") for state in states
    ]
    return min((time for time in times if time > 0), default=0)


def _whole(text: str) -> int:
    """As Kubernetes: an int32; what is none counts as 0."""
    try:
        number = int(text) if len(text) <= len("-2147483648") else 0
    except ValueError:
        return 0
    return number if -(2**31) <= number < 2**31 else 0
