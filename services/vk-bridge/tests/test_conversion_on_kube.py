"""Of what pools send nothing gets past what an owner's namespace label would stop, by a real API server's words."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sim.pods_by_level import CASES
from spillway.kubernetes.pod_security import ANY, BASELINE, PROFILE_TYPES, RESTRICTED
from spillway_local.pod_gate import DryRunResult, PodGate
from vk_bridge.core.pod.conversion import ConvertedPod, PoolSide, convert_pod

from .reaching_pods import EPHEMERAL, SECURITY_ANNOTATIONS, pods_reaching_for_host
from .test_pod_conversion import AMOUNTS_THAT_NOBODY_COUNTS, POD, REFERRING, REFUSALS

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.environ.get("SPILLWAY_KUBE") != "1", reason="needs a control plane: `make test-kube`"),
]
Pod = dict[str, Any]
SIDE = PoolSide("pool-id", "own-1.n1", "10.0.0.9", SECURITY_ANNOTATIONS)
"""Of an operator who lets these annotations reach the owner."""
PLACE = {"namespace": "shop", "name": "encode-1", "uid": "uid-1"}
NOT_CREATED = ("ephemeralContainers", "preemptionPolicy", "priority", "priorityClassName")
"""What a pod gets once it is there, and what names another object."""
NOT_RESTRICTED = {
    "allowPrivilegeEscalation != false",
    "runAsNonRoot != true",
    "runAsUser=0",
    "seccompProfile",
    "unrestricted capabilities",
}
"""What ADR 18 lets pools' pods do, as API servers call it: they may run as root, and say none of the four fields."""
REFUSED_BY_US = {
    "a capability that baseline lets in",
    "the capability that restricted lets in",
    "a volume that restricted has not",
    "a claim",
}
STOPPED_MIN, SAYING_MIN = 150, 50
VIOLATES = re.compile(r'violates PodSecurity "[^"]+": (.*)')
DETAILS = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True)
class Sent:
    """By what the pods say. kept: pool pods that an API server lets in without a label. stopped: those of them that
    baseline does not let in. real_pods: of all that are converted. tried: these, by level."""

    kept: set[str]
    stopped: set[str]
    real_pods: dict[str, Pod]
    tried: dict[str, DryRunResult]


def named_pool_pods() -> Iterator[tuple[str, Pod]]:
    yield from (("the usual", POD), ("with references", REFERRING))
    yield from ((f"level: {case.name}", case.pod) for case in CASES)
    yield from ((f"refused: {name}", pod) for name, (pod, _) in REFUSALS.items())
    yield from ((f"amounts: {name}", pod) for name, pod in AMOUNTS_THAT_NOBODY_COUNTS.items())
    yield from pods_reaching_for_host()


@pytest.fixture(scope="module")
def sent(pod_gate: PodGate) -> Sent:
    """Pool pods are as their own API server keeps them, and as they were written where it lets them in nowhere."""
    written = dict(named_pool_pods())
    created = {name: {**pod, "spec": spec_without_fields(pod["spec"], *NOT_CREATED)} for name, pod in written.items()}
    kept = pod_gate.try_pods(created, ANY).let_in
    stopped = {name for name, words in pod_gate.try_pods(created, BASELINE).refused.items() if violated_checks(words)}
    real_pods = {}
    for name, pod in written.items():
        spec = {**pod["spec"], **kept.get(name, pod)["spec"]}
        made = convert_pod({"metadata": {**pod["metadata"], **PLACE}, "spec": spec}, "n1", SIDE)
        if isinstance(made, ConvertedPod):
            real_pods[name] = made.pod
    tried = {level: pod_gate.try_pods(real_pods, level) for level in (ANY, BASELINE, RESTRICTED)}
    return Sent(set(kept), stopped, real_pods, tried)


def spec_without_fields(spec: Pod, *fields: str) -> Pod:
    return {field: value for field, value in spec.items() if field not in fields}


def violated_checks(words: str) -> set[str]:
    """The checks of Pod Security that an API server names, without which container and what it expects."""
    found = VIOLATES.search(words)
    return set(DETAILS.sub("", found[1]).split(", ")) if found else set()


def is_restricted_spec(spec: Pod) -> bool:
    """Each container, or its pod, says the four fields that restricted asks for, and none says that it is root."""
    of_pod = spec.get("securityContext") or {}
    inherited = {key: of_pod[key] for key in ("runAsNonRoot", "seccompProfile") if key in of_pod}
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    contexts = [{**inherited, **(one.get("securityContext") or {})} for one in containers]
    is_root = any(one.get("runAsUser") == 0 or one.get("runAsNonRoot") is False for one in (of_pod, *contexts))
    return not is_root and all(
        one.get("runAsNonRoot")
        and one.get("allowPrivilegeEscalation") is False
        and "ALL" in one.get("capabilities", {}).get("drop", ())
        and one.get("seccompProfile", {}).get("type") in PROFILE_TYPES
        for one in contexts
    )


def test_what_an_owner_lets_in_without_a_label_baseline_would_let_in(sent: Sent) -> None:
    assert sent.tried[ANY].let_in.keys() == sent.tried[BASELINE].let_in.keys(), sent.tried[BASELINE].refused


def test_a_pool_pod_that_baseline_would_stop_is_refused(sent: Sent) -> None:
    """None is made harmless by leaving out what it asks for."""
    assert sent.stopped & sent.real_pods.keys() == set()
    assert len(sent.stopped) > STOPPED_MIN


def test_pod_security_restricted_would_stop_only_what_is_let_in_on_purpose(sent: Sent) -> None:
    stopped = sent.tried[ANY].let_in.keys() - sent.tried[RESTRICTED].let_in.keys()
    named = [violated_checks(sent.tried[RESTRICTED].refused[name]) for name in stopped]
    assert all(named)
    assert set().union(*named) == NOT_RESTRICTED


def test_who_says_what_restricted_asks_for_is_let_in_by_it(sent: Sent) -> None:
    saying = {name for name in sent.tried[ANY].let_in if is_restricted_spec(sent.real_pods[name]["spec"])}
    assert saying <= sent.tried[RESTRICTED].let_in.keys(), sent.tried[RESTRICTED].refused
    assert len(saying) > SAYING_MIN


def test_what_a_pools_api_server_lets_in_and_is_converted_an_owners_lets_in(sent: Sent) -> None:
    assert sent.kept & sent.real_pods.keys() <= sent.tried[ANY].let_in.keys(), sent.tried[ANY].refused


def test_ephemeral_containers_are_left_out_whatever_they_say(sent: Sent) -> None:
    assert {f"bare: {EPHEMERAL}", f"restricted: {EPHEMERAL}"} <= sent.tried[BASELINE].let_in.keys()


def test_what_baseline_lets_in_runs_but_for_what_the_bridge_itself_refuses(sent: Sent) -> None:
    within = {case.name for case in CASES if case.level != BASELINE}
    running = {f"level: {name}" for name in within - REFUSED_BY_US} | {"the usual", "with references"}
    assert running <= sent.tried[BASELINE].let_in.keys()
    assert {f"level: {name}" for name in REFUSED_BY_US} & sent.real_pods.keys() == set()
