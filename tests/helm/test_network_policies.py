"""Whom the rendered network policies let in and out: each service what it is there for, and nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from spillway_local.stack import SERVICES
from tests.helm.rendering import CHART
from tests.helm.test_chart import ANSWER_RPC, WORKLOADS, objects_of_kind, pod_spec_of

ANYWHERE = "anywhere"
DNS = {("kube-system", "UDP", 53), ("kube-system", "TCP", 53), ("169.254.20.10/32", "UDP", 53)} | {
    ("169.254.20.10/32", "TCP", 53)
}
KAFKA = {("kafka", "TCP", 9092)}
REDIS = {(ANYWHERE, "TCP", 6380)}
CLUSTERS = {(ANYWHERE, "TCP", 443), (ANYWHERE, "TCP", 6443)}
CONNECTIONS = {(ANYWHERE, "TCP", port) for port in (443, 9090, 9092, 9093)}
TRACING = {(ANYWHERE, "TCP", 4317)}
REACHES = {
    "snapshot": DNS | KAFKA | CLUSTERS | TRACING,
    "planner": DNS | KAFKA | REDIS | TRACING,
    "propagator": DNS | KAFKA | CLUSTERS | TRACING,
    "hpa": DNS | KAFKA | CONNECTIONS | TRACING,
    "vk-bridge": DNS | KAFKA | CLUSTERS | TRACING,
    "descheduler": DNS | KAFKA | TRACING,
    "topics": DNS | KAFKA,
}
METRICS, RPC, KUBELET = ("monitoring", "TCP", 18080), ("releases", "TCP", 7400), ("10.0.0.0/8", "TCP", 10250)
REACHED_BY = {
    "snapshot": {METRICS},
    "planner": {METRICS, RPC},
    "propagator": {METRICS},
    "hpa": {METRICS, RPC},
    "vk-bridge": {METRICS, KUBELET},
    "descheduler": {METRICS, RPC},
    "topics": set[tuple[str, str, int]](),
}


def policy_spec_of(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = objects_of_kind("NetworkPolicy")[name]["spec"]
    return found


def allowed_peers_and_ports(rules: Any, side: str) -> set[tuple[str, str, int]]:
    """(peer, protocol, port) of each rule. A rule without peers lets everybody, one without ports lets every port."""
    return {
        (peer, port.get("protocol", "TCP"), port["port"])
        for rule in rules
        for peer in peer_names(rule.get(side))
        for port in rule["ports"]
    }


def peer_names(of_rule: list[dict[str, Any]] | None) -> Iterator[str]:
    for peer in of_rule or [{}]:
        if not peer:
            yield ANYWHERE
        elif "ipBlock" in peer:
            yield peer["ipBlock"]["cidr"]
        else:
            yield peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]


@pytest.mark.parametrize("name", REACHES)
def test_a_service_reaches_what_it_asks_and_nothing_else(name: str) -> None:
    assert policy_spec_of(name)["policyTypes"] == ["Ingress", "Egress"]
    assert allowed_peers_and_ports(policy_spec_of(name)["egress"], "to") == REACHES[name]


@pytest.mark.parametrize("name", REACHED_BY)
def test_a_service_is_reached_by_those_alone_that_ask_it(name: str) -> None:
    assert allowed_peers_and_ports(policy_spec_of(name)["ingress"], "from") == REACHED_BY[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_pod_is_under_the_policy_of_its_service_alone(name: str) -> None:
    labels = WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]
    policies = objects_of_kind("NetworkPolicy")
    found = [one for one in policies if policy_spec_of(one)["podSelector"]["matchLabels"].items() <= labels.items()]
    assert found == [name]
    assert set(policies) == set(REACHES) == {*SERVICES, "topics"}


@pytest.mark.parametrize("name", SERVICES)
def test_the_ports_are_those_at_which_its_pods_listen_and_of_what_they_are_told_to_ask(name: str) -> None:
    """A port of a policy is a number: a name would be that of the other side's."""
    (container,) = pod_spec_of(name)["containers"]
    listens = {port["containerPort"] for port in container["ports"]}
    told = {entry["name"]: str(entry.get("value", "")) for entry in container["env"]}
    kubelet = {
        int(entry.rpartition("=")[2]) for entry in told.get("SPILLWAY_VK_BRIDGE_KUBELET_PORTS", "").split(",") if entry
    }
    assert {port for _, _, port in REACHED_BY[name]} == listens | kubelet
    brokers = {int(broker.rpartition(":")[2]) for broker in told["SPILLWAY_KAFKA_BOOTSTRAP"].split(",")}
    assert {port for _, _, port in KAFKA} == brokers
    assert {port for _, _, port in TRACING} == {int(told["SPILLWAY_OTLP_ENDPOINT"].rpartition(":")[2])}
    assert (REACHES[name] >= REDIS) == ("SPILLWAY_REDIS_URL" in told)
    assert (REACHES[name] >= CLUSTERS) == any(variable.endswith("_CREDENTIALS_FOLDER") for variable in told)
    assert (REACHES[name] >= CONNECTIONS) == ("SPILLWAY_COLLECTING_CONNECTIONS" in told)
    assert (RPC in REACHED_BY[name]) == (name in ANSWER_RPC)


def test_the_topics_are_made_under_a_policy_that_is_there_before_the_job() -> None:
    """What is no hook is made after the hooks, so a policy of the release would come too late for the Job's pod."""
    policy = objects_of_kind("NetworkPolicy")["topics"]["metadata"]["annotations"]
    job = WORKLOADS["topics"]["metadata"]["annotations"]
    assert policy["helm.sh/hook"] == job["helm.sh/hook"]
    assert int(policy["helm.sh/hook-weight"]) < int(job.get("helm.sh/hook-weight", "0"))


def test_policies_are_on_by_default_and_egress_too() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]
    assert values["enabled"] is True
    assert values["egress"]["enabled"] is True
    assert values["rpcFrom"] == [{"podSelector": {}}]
    assert (values["metricsFrom"], values["kubeletFrom"]) == ([], [])
