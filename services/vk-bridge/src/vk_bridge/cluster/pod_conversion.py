"""Converts a pool pod into a real pod. If that meets an error, only this pod is refused."""

from spillway.running.isolation import ends_the_process, note_failed_work
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.conversion import ConversionRefused, ConvertedPod, PoolSide, convert_pod

SERVICE = "vk-bridge"
TEXT_CHARACTERS_MAX = 500
"""The most characters of an error in the reason that the pool reads."""


def try_convert_pod(
    pod: Manifest, node: str, side: PoolSide, *, traced: bool = True
) -> ConvertedPod | ConversionRefused:
    """Converts as `convert_pod` does. traced: whether an unexpected error is logged with its trace."""
    try:
        return convert_pod(pod, node, side)
    except Exception as error:
        if ends_the_process(error):
            raise
        uid = (pod.get("metadata") or {}).get("uid", "")
        note_failed_work(SERVICE, "pod", error, traced=traced, node=node, pool=side.pool_id, uid=uid)
        return ConversionRefused((f"the pod cannot be read: {type(error).__name__}: {error}"[:TEXT_CHARACTERS_MAX],))
