"""Separates scale policies from other manifests, and writes the HorizontalPodAutoscaler of `autoscale`."""

import json
from collections.abc import Sequence

from spillway_cli.exits import bad_input_error
from spillway_cli.manifests import Document

GROUPS = {"HorizontalPodAutoscaler": "autoscaling", "ScaledObject": "keda.sh", "ScalePolicy": "spillway.io"}
TARGETS = {"deployment": "Deployment", "deploy": "Deployment", "statefulset": "StatefulSet", "sts": "StatefulSet"}
WORKLOAD_KINDS = {**TARGETS, "job": "Job"}
CPU_PERCENT_DEFAULT = 80


def split_off_policies(documents: Sequence[Document]) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Returns (the documents for the planner, the scale policies), each in their order."""
    policies = tuple(document for document in documents if _is_scale_policy(document))
    return tuple(document for document in documents if document not in policies), policies


def _is_scale_policy(document: Document) -> bool:
    value = json.loads(document.text)
    return str(value["apiVersion"]).partition("/")[0] == GROUPS.get(value["kind"], "-")


def parse_scale_target(given: str) -> tuple[str, str]:
    """Returns (kind, name) of the text NAME, deployment/NAME or statefulset/NAME."""
    word, slash, name = given.rpartition("/")
    kind = TARGETS.get(word.lower() if slash else "deployment")
    if kind is None or not name:
        raise bad_input_error(f"{given!r}: expected NAME, deployment/NAME or statefulset/NAME")
    return kind, name


def autoscaler_json(
    workload: tuple[str, str], namespace: str, name: str, bounds: tuple[int, int], cpu_percent: int
) -> str:
    """Returns the HorizontalPodAutoscaler of `autoscale` as JSON. bounds: the least and the most replicas."""
    kind, of = workload
    average = {"type": "Utilization", "averageUtilization": cpu_percent}
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name or of, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": of},
            "minReplicas": bounds[0],
            "maxReplicas": bounds[1],
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": average}}],
        },
    }
    return json.dumps(manifest)
