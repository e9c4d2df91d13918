"""Keeps the amounts that clusters report within the 64 bits of a record, also after they are summed. Pure.

A cluster's API server may report any amount of 64 bits, and any time. A product or a sum of such amounts may need more
than 64 bits. A record with such a number cannot be written. Then the service cannot write the rest of the transaction
either, also for other clusters.
"""

from typing import Final

from spillway.kubernetes.quantities import INT64_MAX

INT64_MIN: Final = -INT64_MAX - 1

PODS_MAX: Final = 2**31 - 1
"""The largest number of pods that a node can offer, or that are counted on it: a kubelet's maxPods is an int32. The sum
of a cluster's replicas then fits 64 bits."""
AMOUNT_MAX: Final = 2**47
"""The largest amount of any other resource that a node offers or a pod requests: bytes (128 TiB), milli-cores (140
billion cores) or pieces. The sum over a cluster's nodes stays within 64 bits up to 65,535 nodes. Kubernetes supports
5,000."""


def clamp_to_int64(value: int) -> int:
    """Returns the 64-bit integer that is nearest to a value.

    Call it for each product or sum of reported amounts before it is put into a record or an answer. A larger number
    is wrong anyway, and the nearest one shows that just as well.
    """
    return min(max(value, INT64_MIN), INT64_MAX)


def clamp_amount(resource: str, amount: int) -> int:
    """Returns the amount of a resource, at most AMOUNT_MAX, or PODS_MAX for "pods". A negative amount stays as it is.

    No node has a larger amount, and the maximum is enough for every request. So nothing is logged.
    """
    return min(amount, PODS_MAX if resource == "pods" else AMOUNT_MAX)
