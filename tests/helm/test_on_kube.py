"""The chart on a real control plane: what helm renders is accepted, and installs where Pod Security is restricted."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway_local.kube_binary import ensure_kube_binary
from spillway_local.stack import SERVICES
from tests.helm.rendering import CHART, NAMESPACE, RELEASE, RENDERED, VALUES, first_line, render_chart, run_helm

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("SPILLWAY_KUBE") != "1", reason="helm and a control plane: `make test-kube`"),
]

SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
RESTRICTED = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}


@pytest.fixture(scope="module")
def kubeconfig(kube_members: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a cluster with the namespace, and with the kind of Prometheus' operator."""
    found = kube_members["own-1"]
    for number, manifest in enumerate((SERVICE_MONITORS, RESTRICTED)):
        file = tmp_path_factory.mktemp("helm") / f"{number}.json"
        file.write_text(json.dumps(manifest))
        run_kubectl(found, "apply", "-f", str(file))
    run_kubectl(found, "wait", "--for", "condition=Established", "crd/servicemonitors.monitoring.coreos.com")
    return found


def run_kubectl(kubeconfig: Path, *arguments: str) -> str:
    command = (str(ensure_kube_binary()), "kubectl", *arguments)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=kubeconfig.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_rendered_is_what_helm_renders() -> None:
    """Else: make helm."""
    assert RENDERED.read_text() == first_line() + render_chart()


LACKING = {
    "Prometheus": ("networkPolicy.metricsFrom=null", "networkPolicy.metricsFrom: []: expected the pods of Prometheus"),
    "the pools' API servers": ("networkPolicy.kubeletFrom=null", "networkPolicy.kubeletFrom: []: expected the pools'"),
    "a port of a member": ("networkPolicy.egress.clusters.ports=null", "ports"),
    "a digest that is none": ("image.digest=sha256:12", "digest"),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_who_is_switched_on_and_could_not_come_in_is_said(lacking: str) -> None:
    value, said = LACKING[lacking]
    with pytest.raises(AssertionError, match=re.escape(said)):
        render_chart("--set", value)


POLICIES = {
    "a port of the URL": (
        ("--set", "redis.secret=,redis.url=rediss://redis.data:6390/0,networkPolicy.egress.redis.ports=null"),
        "planner",
        6390,
    ),
    "no port in the URL": (
        ("--set", "redis.secret=,redis.url=redis://redis.data,networkPolicy.egress.redis.ports=null"),
        "planner",
        6379,
    ),
    "an own port": (("--set", "networkPolicy.egress.kafka.ports={9094}"), "hpa", 9094),
    "the bootstrap's port": (("--set", "kafka.bootstrap=a:19092"), "snapshot", 19092),
}


@pytest.mark.parametrize("case", POLICIES)
def test_a_port_follows_the_value_that_names_it(case: str) -> None:
    arguments, service, port = POLICIES[case]
    ports = {
        one["port"]
        for rule in rendered_network_policies(*arguments)[f"{RELEASE}-{service}"]["spec"]["egress"]
        for one in rule["ports"]
    }
    assert port in ports


def test_policies_may_be_off_or_say_nothing_of_egress() -> None:
    assert rendered_network_policies("--set", "networkPolicy.enabled=false") == {}
    found = rendered_network_policies("--set", "networkPolicy.egress.enabled=false")
    assert {tuple(one["spec"]["policyTypes"]) for one in found.values()} == {("Ingress",)}
    assert not any("egress" in one["spec"] for one in found.values())


def rendered_network_policies(*arguments: str) -> dict[str, dict[str, Any]]:
    rendered = [one for one in yaml.safe_load_all(render_chart(*arguments)) if one]
    return {one["metadata"]["name"]: one for one in rendered if one["kind"] == "NetworkPolicy"}


def test_the_api_server_accepts_all_of_it_in_a_dry_run(kubeconfig: Path) -> None:
    """By server-side apply, which knows every field's type and refuses fields that there are not."""
    told = run_kubectl(
        kubeconfig, "apply", "--server-side", "--dry-run=server", "--namespace", NAMESPACE, "-f", str(RENDERED)
    )
    accepted = [line for line in told.splitlines() if line.endswith("serverside-applied (server dry run)")]
    assert len(accepted) == RENDERED.read_text().count("\nkind: ")


def test_it_installs_and_its_pods_are_admitted(kubeconfig: Path) -> None:
    """Each pod passes admission of the namespace, and kwok runs it; then all of it is removed."""
    place = ("--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig))
    # Fake nodes run a pod whatever its probes say, and none of them has the operator's taint or label.
    settings = ("--values", str(VALUES), "--set", "nodeSelector=null", "--set-json", "tolerations=[]")
    try:
        run_helm("install", RELEASE, str(CHART), *place, *settings, "--wait", "--timeout", "300s")
        found: Any = json.loads(run_kubectl(kubeconfig, "get", "pods", "--namespace", NAMESPACE, "-o", "json"))
        running = [one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found["items"]]
        assert sorted(running) == sorted(2 * [*SERVICES])
        stored = run_kubectl(kubeconfig, "get", "secrets", "--namespace", NAMESPACE, "-o", "name").split()
        assert all(name.startswith("secret/sh.helm.release") for name in stored), "the chart makes no Secret"
    finally:
        run_helm("uninstall", RELEASE, *place, "--ignore-not-found", "--wait", "--timeout", "120s")
