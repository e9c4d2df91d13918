"""Describes a pool pod in NodeLent, so that readers can compute the cost of its loss."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spillway.events_lending import Amounts, LentPod
from vk_bridge.core.node.loan import Manifest

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
CHARACTERS_MAX: Final = 256 * 1024
"""The most characters of all pods in one record, which takes 2 MiB.

A pool's users choose how many pods they bind, and most of the pods' texts.
"""
_NUMBERS: Final = 64
"""The number of characters that a pod's own numbers, or one of its amounts, count as."""


def make_lent_pod(pod: Manifest, requests: Amounts, budgets: Amounts) -> LentPod:
    """Returns the LentPod of a pool pod. requests: by resource. budgets: as in LentPod."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    return LentPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        group=f"{owner['kind']}/{metadata['namespace']}/{owner['name']}" if owner else "",
        requests=requests,
        priority=_int32_or_zero(spec.get("priority")),
        deletion_cost=_parse_int32((metadata.get("annotations") or {}).get(DELETION_COST, "0")),
        started_ms=_started_ms(pod),
        budgets=budgets,
    )


def pods_within_record_limit(pods: Iterable[LentPod]) -> tuple[LentPod, ...]:
    """Returns the pods in the order of their uids; if they are too large for one record, the shortest of them.

    Readers do not know what the loss of other pods would cost.
    """
    room, kept = CHARACTERS_MAX, list[LentPod]()
    for length, pod in sorted(((_encoded_length(pod), pod) for pod in pods), key=lambda found: found[0]):
        room -= length
        if room < 0:
            break
        kept.append(pod)
    return tuple(sorted(kept, key=lambda pod: pod.uid))


def _encoded_length(pod: LentPod) -> int:
    texts = (pod.namespace, pod.name, pod.uid, pod.group)
    amounts = (*pod.requests, *pod.budgets)
    return sum(map(len, texts)) + sum(len(name) for name, _ in amounts) + _NUMBERS * (1 + len(amounts))


def parse_unix_ms(text: str) -> int:
    """Returns the Unix time in milliseconds of a Kubernetes time; 0 if it cannot be read."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def _started_ms(pod: Manifest) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = [one.get("state") or {} for one in statuses]
    times = [
        parse_unix_ms((state.get("running") or state.get("terminated") or {}).get("startedAt") or "")
        for state in states
    ]
    return min((time for time in times if time > 0), default=0)


def _parse_int32(text: str) -> int:
    """Returns a text as an int32, as Kubernetes reads it; any other text counts as 0."""
    try:
        number = int(text) if len(text) <= len("-2147483648") else 0
    except ValueError:
        return 0
    return _int32_or_zero(number)


def _int32_or_zero(number: object) -> int:
    """Returns an int32, and 0 for any other value: in Kubernetes a priority and a deletion cost are int32."""
    return number if isinstance(number, int) and -(2**31) <= number < 2**31 else 0
