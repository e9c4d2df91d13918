"""Valid objects of every kind that our code reads, with a value in every field. Inputs are mutations of these."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

Tree = dict[str, Any]
FILES: Final = Path(__file__).parent / "samples"

STORED: Final[Tree] = json.loads((FILES / "stored.json").read_text())
"""The stored state of hpa for a workload with two metrics, pods and a backlog."""
DIVISION: Final[Tree] = json.loads((FILES / "division.json").read_text())
"""The recorded division of a workload over three clusters."""


def _read_yaml_documents(name: str) -> tuple[Tree, ...]:
    return tuple(yaml.safe_load_all((FILES / name).read_text()))


WORKLOADS: Final = _read_yaml_documents("workloads.yaml")
POLICIES: Final = _read_yaml_documents("policies.yaml")
"""PlacementPolicies, and PropagationPolicies."""
SCALERS: Final = _read_yaml_documents("scalers.yaml")
OPERATORS: Final = dict(
    zip(("callers", "connections", "kubeconfig"), _read_yaml_documents("operators.yaml"), strict=True)
)
OBJECTS: Final = _read_yaml_documents("objects.yaml")
"""Objects in the form of a member's API."""
