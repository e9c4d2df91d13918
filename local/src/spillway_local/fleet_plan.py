"""Describes the clusters that `spillway up` and the demo use, and what fits in them."""

import json
from dataclasses import dataclass

from spillway_local.member_nodes import MemberNodes, NodeTaint

GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A member and its nodes. room: the replicas of 500m/512Mi that fit, computed by hand for the demo's check."""

    name: str
    tier: str
    nodes: tuple[MemberNodes, ...]
    room: int


FLEET = (
    MemberPlan("own-1", "own", (MemberNodes(12, "own-1-small", 4_000, 16 * GIB),), room=12 * 8),
    MemberPlan(
        "own-2",
        "own",
        (
            MemberNodes(6, "own-2-large", 16_000, 64 * GIB),
            MemberNodes(2, "own-2-gpu", 32_000, 128 * GIB, taints=(NodeTaint("gpu", "only"),)),
        ),
        room=6 * 32,
    ),
    MemberPlan("cloud-1", "cloud", (MemberNodes(20, "cloud-1-node", 8_000, 32 * GIB),), room=20 * 16),
)


def deployment(name: str, namespace: str, replicas: int, cpu: str = "500m", memory: str = "512Mi") -> str:
    """Returns an ordinary Deployment as JSON."""
    labels = {"app": name}
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
