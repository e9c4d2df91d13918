"""What a real API server lets into namespaces that enforce Pod Security is what is found to be within their level."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillway.kubernetes.pod_security import BASELINE, ENFORCE_LABEL, RESTRICTED, violations
from spillway_local.kube_binary import ensure_kube_binary
from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.programs import running_stages
from spillway_local.pytest_infra import session_ports

from .pods_by_level import CASES

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.environ.get("SPILLWAY_KUBE") != "1", reason="needs a control plane: `make test-kube`"),
]
REFUSED_BY = "violates PodSecurity"
TRY = ("create", "--dry-run=server", "-o", "name")
INVALID_MAX = 3
"""Pods that this API server lets in nowhere: privileged ones, and /proc unmasked beside the host's users."""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("podsecurity")
    ports = session_ports(folder, ("own-1",))
    members = KubeMembers(folder, folder / "credentials", (MemberSpec("own-1", ()),), ports, ensure_kube_binary())
    with running_stages(members.stages(), folder / "logs"):
        (member,) = members.members()
        yield member.kubeconfig


def kubectl(kubeconfig: Path, given: dict[str, Any], *arguments: str) -> tuple[str, str]:
    """Both outputs."""
    command = (str(ensure_kube_binary()), "kubectl", *arguments, "-f", "-")
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_an_api_server_says_of_each_pod_what_we_say(kubeconfig: Path, level: str) -> None:
    metadata = {"name": level, "labels": {ENFORCE_LABEL: level}}
    kubectl(kubeconfig, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, "create")
    pods = {f"case-{index}": case for index, case in enumerate(CASES)}
    items = [
        {"apiVersion": "v1", "kind": "Pod", **case.pod, "metadata": {**case.pod["metadata"], "name": name}}
        for name, case in pods.items()
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    valid, _ = kubectl(kubeconfig, listed, *TRY, "--namespace", "default")
    let_in, refused = kubectl(kubeconfig, listed, *TRY, "--namespace", level)
    is_valid = {name: case for name, case in pods.items() if f"pod/{name}" in valid.split()}
    assert len(is_valid) >= len(pods) - INVALID_MAX
    within = {f"pod/{name}" for name, case in is_valid.items() if not any(violations(case.pod, level))}
    assert set(let_in.split()) == within, refused
    assert refused.count(REFUSED_BY) >= len(is_valid) - len(within)
