"""What a real API server lets into namespaces that enforce Pod Security is what is found to be within their level."""

import os

import pytest

from sim.pods_by_level import CASES
from spillway.kubernetes.pod_security import ANY, BASELINE, RESTRICTED, violations
from spillway_local.pod_gate import PodGate

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.environ.get("SPILLWAY_KUBE") != "1", reason="needs a control plane: `make test-kube`"),
]
REFUSED_BY = "violates PodSecurity"
INVALID_MAX = 1
"""A pod that API servers let in nowhere: /proc unmasked beside the host's users."""


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_an_api_server_says_of_each_pod_what_we_say(pod_gate: PodGate, level: str) -> None:
    pods = {case.name: case.pod for case in CASES}
    valid, tried = pod_gate.try_pods(pods, ANY).let_in.keys(), pod_gate.try_pods(pods, level)
    assert len(valid) >= len(CASES) - INVALID_MAX
    within = {name for name in valid if not any(violations(pods[name], level))}
    assert tried.let_in.keys() == within, tried.refused
    assert valid - within <= {name for name, words in tried.refused.items() if REFUSED_BY in words}
