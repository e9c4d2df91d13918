"""Amounts that members tell, within what a record holds and what sums of them stand. Pure.

A member's API server may say any amount that 64 bits hold, and any time. A product or a sum of them need not fit into
64 bits. A record that has such a number cannot be written, and whoever has to write it, together with what is about
others, writes nothing at all.
"""

from typing import Final

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

PODS_MAX: Final = 2**31 - 1
"""Pods that a node offers, or that are counted on it. A kubelet's maxPods is an int32. So the replicas of a cluster
stay within 64 bits."""
AMOUNT_MAX: Final = 2**47
"""Of any other resource that a node offers or a pod asks for: bytes (128 TiB), milli-cores (140 billion cores), pieces.
The amounts of a cluster's nodes are summed in 64 bits, and are so for 65,535 nodes, of which Kubernetes supports
5,000."""


def saturated(value: int) -> int:
    """Returns the number of 64 bits that is nearest to a value.

    For each product or sum of what members tell that a record or an answer bears. What is that large is a lie or a
    mistake of one member, and the nearest number says so as well as the true one; without it nothing that is written
    together with the record could be written.
    """
    return min(max(value, INT64_MIN), INT64_MAX)


def bounded(resource: str, amount: int) -> int:
    """Returns an amount of a resource, at most AMOUNT_MAX, and of "pods" PODS_MAX. A negative one is as it is.

    A larger amount is clamped without a word: no node has it, and what is left of it is enough for all that is asked.
    """
    return min(amount, PODS_MAX if resource == "pods" else AMOUNT_MAX)
