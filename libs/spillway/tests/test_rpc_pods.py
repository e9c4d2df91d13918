"""What may be in the pods of a caller, by the callers file and by a setting for everybody."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sim.pods_by_level import restricted_pod
from spillway.api import AdoptRequest, ApplyRequest, BatchItem, PlanBatchRequest, RequestError, ScaleRequest
from spillway.kubernetes.pod_security import ANY, BASELINE, RESTRICTED
from spillway.reasons import PODS_NOT_ALLOWED
from spillway.rpc.callers import Caller, parse_callers
from spillway.rpc.manifest_reading import READ_AT_ONCE_CHARACTERS, ManifestReading

SHOP = {"name": "shop", "verbs": ["*"], "namespaces": ["shop"]}
ROOT = {"name": "root", "verbs": ["*"]}
DEFAULT_ALONE = {"service_accounts": ["default"]}
HOST_PATH = {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}


def caller_of_entry(entry: dict[str, Any], **fields: Any) -> Caller:
    entries = {"callers": [{**entry, **fields}]}
    return parse_callers(json.dumps(entries).encode(), "callers.json").by_certificate[entry["name"]]


def deployment(**pod: Any) -> str:
    template = restricted_pod()
    template["spec"].update(pod)
    metadata = {"name": "web", "namespace": "shop"}
    return json.dumps({"kind": "Deployment", "metadata": metadata, "spec": {"template": template}})


def deployment_with_terms(kind: str, **term: Any) -> str:
    terms = [{"topologyKey": "kubernetes.io/os", "labelSelector": {}, **term}]
    return deployment(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def service(**spec: Any) -> str:
    return json.dumps({"kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})


def policy(priority: int) -> str:
    return json.dumps({"kind": "PlacementPolicy", "metadata": {"namespace": "shop"}, "spec": {"priority": priority}})


@pytest.fixture
def reading() -> Iterator[ManifestReading]:
    made = ManifestReading(5_000, waiting_max=2)
    yield made
    made.close()


async def refusal_text(asked: Caller, manifest: str, verb: str = "apply", floor: str = ANY) -> str:
    """Empty when it may."""
    reading = ManifestReading(5_000, 2, floor)
    try:
        await reading.checked_request(asked, verb, ApplyRequest((manifest,)))
        return ""
    except RequestError as error:
        found = error
    finally:
        reading.close()
    assert (found.code, found.reason) == ("PERMISSION_DENIED", PODS_NOT_ALLOWED)
    assert found.text.startswith(f"manifests[0]: caller {asked.name!r} may not have this: ")
    return found.text


@pytest.mark.parametrize(
    ("entry", "fields", "manifest", "refused"),
    [
        (SHOP, {}, deployment(), ""),
        (SHOP, {}, deployment(hostPID=True), "Pod Security baseline: spec.template.spec.hostPID: True: expected false"),
        (SHOP, {}, deployment(**HOST_PATH), "spec.template.spec.volumes[0].hostPath"),
        (SHOP, {"pod_security": "any"}, deployment(**HOST_PATH), ""),
        (SHOP, {"pod_security": "restricted"}, deployment(securityContext={"runAsUser": 0}), "Pod Security restricted"),
        (SHOP, {}, deployment(securityContext={"runAsUser": 0}), ""),
        (ROOT, {}, deployment(**HOST_PATH), ""),
        (ROOT, {"pod_security": "baseline"}, deployment(**HOST_PATH), "Pod Security baseline"),
        (SHOP, {}, deployment(priorityClassName="system-node-critical"), "expected none of system-*"),
        (SHOP, {}, deployment(priorityClassName="high"), ""),
        (SHOP, {"priority_classes": ["low-*"]}, deployment(priorityClassName="high"), "expected one of low-*"),
        (SHOP, {"priority_classes": []}, deployment(), ""),
        (SHOP, {"priority_classes": ["*"]}, deployment(priorityClassName="system-node-critical"), ""),
        (ROOT, {}, deployment(priorityClassName="system-node-critical"), ""),
        (SHOP, {}, deployment(serviceAccountName="builder"), ""),
        (
            SHOP,
            {"service_accounts": ["default"]},
            deployment(serviceAccountName="builder"),
            "'builder': expected one of",
        ),
        (
            SHOP,
            {"service_accounts": ["default"]},
            deployment(serviceAccount="builder"),
            "spec.serviceAccount: 'builder'",
        ),
        (SHOP, {"service_accounts": ["default"]}, deployment(), ""),
        (SHOP, {}, service(externalIPs=["10.96.0.10"]), "spec.externalIPs"),
        (SHOP, {}, service(ports=[{"port": 80}]), ""),
        (ROOT, {}, service(externalIPs=["10.96.0.10"]), ""),
        (SHOP, {}, policy(1), "spec.priority: 1: expected at most 0"),
        (SHOP, {}, policy(-5), ""),
        (SHOP, {"priority_max": 10}, policy(10), ""),
        (ROOT, {}, policy(1000), ""),
        (ROOT, {"priority_max": 10}, policy(11), "expected at most 10"),
    ],
)
@pytest.mark.parametrize("verb", ["apply", "plan"])
async def test_what_a_caller_may_have(
    verb: str, entry: dict[str, Any], fields: dict[str, Any], manifest: str, refused: str
) -> None:
    text = await refusal_text(caller_of_entry(entry, **fields), manifest, verb)
    assert bool(text) == bool(refused)
    assert refused in text


NODE_PORT = {"type": "NodePort", "ports": [{"port": 80}]}
NAMED_PORT = {"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30080}]}
BALANCER = {"type": "LoadBalancer", "ports": [{"port": 80}]}
FREED = {"service_types": ["*"]}


@pytest.mark.parametrize(
    ("entry", "fields", "spec", "refused"),
    [
        (SHOP, {}, {}, ""),
        (SHOP, {}, {"type": "ClusterIP", "clusterIP": "None"}, ""),
        (SHOP, {}, {"type": "ExternalName", "externalName": "db.shop.example"}, ""),
        (SHOP, {}, NODE_PORT, "spec.type: 'NodePort': expected one of ClusterIP, ExternalName (service_types"),
        (SHOP, {}, BALANCER, "spec.type: 'LoadBalancer': expected one of ClusterIP, ExternalName (service_types"),
        (SHOP, {}, {"type": ["NodePort"]}, "spec.type: ['NodePort']: expected one of"),
        (SHOP, {}, {"ports": [{"port": 80, "nodePort": 30080}]}, "spec.ports[0].nodePort: 30080: expected none"),
        (SHOP, {}, {"ports": [{"port": 80, "nodePort": 0}]}, ""),
        (SHOP, {}, {"ports": "none"}, ""),
        (SHOP, {"service_types": ["ClusterIP", "NodePort"]}, NODE_PORT, ""),
        (SHOP, {"service_types": ["ClusterIP", "NodePort"]}, BALANCER, "expected one of ClusterIP, NodePort ("),
        (SHOP, {"service_types": []}, {}, "spec.type: 'ClusterIP': expected no Service (service_types"),
        (SHOP, FREED, NODE_PORT, ""),
        (SHOP, FREED, BALANCER, ""),
        (
            SHOP,
            FREED,
            NAMED_PORT,
            "spec.ports[1].nodePort: 30080: expected none: each cluster chooses one that",
        ),
        (SHOP, FREED, {**BALANCER, "healthCheckNodePort": 30081}, "spec.healthCheckNodePort: 30081: expected none"),
        (SHOP, FREED, {**BALANCER, "loadBalancerIP": "192.0.2.7"}, "spec.loadBalancerIP: '192.0.2.7': expected none"),
        (SHOP, {"pod_security": "any"}, NAMED_PORT, ""),
        (SHOP, {"pod_security": "any"}, {**BALANCER, "loadBalancerIP": "192.0.2.7"}, ""),
        (SHOP, {"pod_security": "any", "service_types": ["ClusterIP"]}, NODE_PORT, "expected one of ClusterIP ("),
        (ROOT, {}, NAMED_PORT, ""),
        (ROOT, {"pod_security": "baseline"}, NAMED_PORT, ""),
        (ROOT, {"service_types": ["ClusterIP"]}, NODE_PORT, "expected one of ClusterIP ("),
    ],
)
@pytest.mark.parametrize("verb", ["adopt", "apply", "plan"])
async def test_what_a_callers_services_may_take_from_others(
    verb: str, entry: dict[str, Any], fields: dict[str, Any], spec: dict[str, Any], refused: str
) -> None:
    text = await refusal_text(caller_of_entry(entry, **fields), service(**spec), verb)
    assert bool(text) == bool(refused)
    assert refused in text


async def test_a_level_for_everybody_holds_for_the_services_of_a_caller_of_some_namespaces() -> None:
    freed = caller_of_entry(SHOP, pod_security="any")
    assert "spec.type: 'NodePort'" in await refusal_text(freed, service(**NODE_PORT), floor=BASELINE)
    assert await refusal_text(Caller("local"), service(**NAMED_PORT), floor=BASELINE) == ""


APART, NEAR = "podAntiAffinity", "podAffinity"


@pytest.mark.parametrize(
    ("entry", "fields", "manifest", "refused"),
    [
        (SHOP, {}, deployment_with_terms(APART), ""),
        (SHOP, {}, deployment_with_terms(APART, namespaces=["shop"]), ""),
        (SHOP, {}, deployment_with_terms(APART, namespaces=["shop", "bank"]), "namespaces: 'bank': expected shop"),
        (SHOP, {}, deployment_with_terms(APART, namespaceSelector={}), f"{APART}.required"),
        (
            SHOP,
            {},
            deployment_with_terms(NEAR, namespaceSelector={"matchLabels": {"team": "shop"}}),
            ".namespaceSelector: {",
        ),
        (SHOP, {}, deployment_with_terms(NEAR, namespaces=["bank"]), "namespaces: 'bank'"),
        (SHOP, {"namespaces": ["shop", "b*"]}, deployment_with_terms(NEAR, namespaces=["bank"]), ""),
        (SHOP, {"pod_security": "any"}, deployment_with_terms(APART, namespaceSelector={}), ""),
        (ROOT, {"pod_security": "baseline"}, deployment_with_terms(APART, namespaceSelector={}), ""),
        (ROOT, {}, deployment_with_terms(APART, namespaces=["bank"]), ""),
    ],
)
@pytest.mark.parametrize("verb", ["adopt", "apply", "plan", "capacity", "explain"])
async def test_required_terms_of_a_confined_caller_stay_in_its_namespaces(
    verb: str, entry: dict[str, Any], fields: dict[str, Any], manifest: str, refused: str
) -> None:
    text = await refusal_text(caller_of_entry(entry, **fields), manifest, verb)
    assert bool(text) == bool(refused)
    assert refused in text


@pytest.mark.parametrize("verb", ["capacity", "explain"])
async def test_what_is_only_supposed_may_be_any_pod(verb: str) -> None:
    assert await refusal_text(caller_of_entry(SHOP), deployment(hostPID=True), verb) == ""


async def test_a_level_for_everybody_is_a_floor_and_no_more() -> None:
    assert "restricted" in await refusal_text(
        caller_of_entry(SHOP), deployment(securityContext={"runAsUser": 0}), floor=RESTRICTED
    )
    assert "baseline" in await refusal_text(Caller("local"), deployment(hostPID=True), floor=BASELINE)
    strict = caller_of_entry(SHOP, pod_security="restricted")
    assert "restricted" in await refusal_text(strict, deployment(securityContext={"runAsUser": 0}), floor=BASELINE)


async def test_a_long_manifest_is_looked_at_too() -> None:
    filling = "x" * READ_AT_ONCE_CHARACTERS
    assert "hostPID" in await refusal_text(caller_of_entry(SHOP), deployment(hostPID=True, nodeName=filling))
    yaml = "kind: Deployment\nmetadata: {namespace: shop}\nspec: {template: {spec: {hostPID: true}}}\n"
    assert "hostPID" in await refusal_text(caller_of_entry(SHOP), f"{yaml}filling: {filling}\n")
    assert "hostPID" in await refusal_text(caller_of_entry(SHOP), yaml)


async def test_of_a_batch_each_item_is_looked_at(reading: ManifestReading) -> None:
    items = (
        BatchItem(scale=ScaleRequest("shop", "web", 3)),
        BatchItem(apply=ApplyRequest((deployment(hostIPC=True),))),
    )
    with pytest.raises(RequestError, match="hostIPC") as refused:
        await reading.checked_request(caller_of_entry(SHOP), "plan_batch", PlanBatchRequest(items))
    assert refused.value.reason == PODS_NOT_ALLOWED


async def test_many_violations_are_counted_and_three_are_named() -> None:
    text = await refusal_text(
        caller_of_entry(SHOP), deployment(hostPID=True, hostIPC=True, hostNetwork=True, **HOST_PATH)
    )
    assert text.endswith("; and 1 more")


@pytest.mark.parametrize("field", ["pod_security", "priority_max", "service_accounts", "service_types"])
def test_what_the_file_may_not_say_is_refused(field: str) -> None:
    with pytest.raises(Exception, match=field):
        caller_of_entry(SHOP, **{field: "privileged"})


@pytest.mark.parametrize(
    ("text", "code", "refused"),
    [
        (policy(0), "", ""),
        (policy(1_000_000_000), "PERMISSION_DENIED", "policy: caller 'shop' may not have this: spec.priority"),
        (service(externalIPs=["10.96.0.10"]), "PERMISSION_DENIED", "policy: caller 'shop' may not have this: spec.ext"),
        (policy(0).replace("shop", "bank"), "PERMISSION_DENIED", "bank"),
        (policy(0) + " " * 1_000_000, "INVALID_ARGUMENT", "policy"),
        ("kind: PlacementPolicy\nx: [" + "a," * 6_000 + "]\n", "INVALID_ARGUMENT", "values"),
    ],
    ids=["its own", "a high priority", "another kind", "another namespace", "too long", "too many values"],
)
async def test_the_policy_of_an_adoption_is_looked_at_as_any_manifest(
    reading: ManifestReading, text: str, code: str, refused: str
) -> None:
    request = AdoptRequest("shop", "web", "deployment", ("own-1",), text)
    try:
        assert (await reading.checked_request(caller_of_entry(SHOP), "adopt", request)).namespace == "shop"
        found = RequestError("", "")
    except RequestError as error:
        found = error
    assert found.code == code
    assert refused in found.text
