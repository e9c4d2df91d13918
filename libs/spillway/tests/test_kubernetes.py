"""Kubernetes' arithmetic: quantities, what a pod takes, and the objects that it is read from."""

import contextlib
import json
from decimal import ROUND_UP, Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.clusters.answers import SAID_CHARACTERS_MAX, BadLine, Bookmark, Lines, page_decoder, read_status
from spillway.kubernetes import objects
from spillway.kubernetes.objects import (
    DEPLOYMENTS,
    NODES,
    SECRETS,
    Deployment,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    ResourceQuota,
    host_ports,
    pod_requests,
)
from spillway.kubernetes.quantities import INT64_MAX, Quantity, parse_quantity

QUANTITIES = {
    "zero": ("0", 0, 0),
    "cores": ("4", 4, 4000),
    "thousandths round up": ("1500m", 2, 1500),
    "a nano is something": ("1n", 1, 1),
    "below a nano is a nano": ("0.0000000001", 1, 1),
    "micros": ("1500000u", 2, 1500),
    "kilo": ("2k", 2000, 2_000_000),
    "mega": ("1M", 10**6, 10**9),
    "giga with a fraction": ("1.5G", 1_500_000_000, 1_500_000_000_000),
    "tera": ("1T", 10**12, 10**15),
    "peta": ("1P", 10**15, 10**18),
    "kibi": ("1Ki", 1024, 1_024_000),
    "mebi with a fraction": ("0.5Mi", 524_288, 524_288_000),
    "gibi": ("32Gi", 34_359_738_368, 34_359_738_368_000),
    "tebi": ("1Ti", 2**40, 2**40 * 1000),
    "pebi": ("1Pi", 2**50, 2**50 * 1000),
    "a third of a kibi rounds up": ("0.333Ki", 341, 340_992),
    "exponent": ("1e3", 1000, 1_000_000),
    "big exponent letter": ("12E2", 1200, 1_200_000),
    "signed exponent": ("5e-1", 1, 500),
    "plus sign": ("+1.25", 2, 1250),
    "negative rounds away from zero": ("-1.5", -2, -1500),
    "leading zeros": ("007", 7, 7000),
    "no digit before the point": (".5", 1, 500),
    "no digit behind the point": ("1.", 1, 1000),
    "JSON integer": (3, 3, 3000),
    "JSON float": (0.1, 1, 100),
}

NOT_QUANTITIES = {
    "empty": "",
    "words": "lots",
    "suffix alone": "Ki",
    "point alone": ".",
    "sign alone": "-",
    "unknown suffix": "1K",
    "two suffixes": "1Gim",
    "space before": " 1",
    "newline behind": "1\n",
    "exponent without a number": "1e",
    "exponent and suffix": "1e3k",
    "two points": "1.2.3",
    "underscore": "1_000",
    "digits of another script": "١",
    "hexadecimal": "0x10",
    "not a number": float("nan"),
    "infinity": float("inf"),
    "truth": True,
    "endless": "1" * 1000,
}


@pytest.mark.parametrize(("text", "units", "millis"), QUANTITIES.values(), ids=QUANTITIES)
def test_a_quantity_is_read_exactly_and_rounded_up(text: Quantity, units: int, millis: int) -> None:
    assert parse_quantity(text) == units
    assert parse_quantity(text, milli=True) == millis


@pytest.mark.parametrize("text", NOT_QUANTITIES.values(), ids=NOT_QUANTITIES)
def test_what_is_no_quantity_is_said_with_what_was_expected(text: Quantity) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        parse_quantity(text)


def test_an_exa_is_a_suffix_and_not_an_exponent() -> None:
    assert parse_quantity("1E") == 10**18
    assert parse_quantity("7Ei") == 7 * 2**60


@pytest.mark.parametrize("text", ["9223372036854775808", "1e19", "10E", "-1e19", "1e999999999"])
def test_outside_64_bits_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        parse_quantity(text)


def test_binary_quantities_are_capped_as_kubernetes_does() -> None:
    assert parse_quantity("16Ei") == INT64_MAX


def test_a_tiny_exponent_is_still_something() -> None:
    assert parse_quantity("1e-999999999") == 1
    assert parse_quantity("0e999999999") == 0


SUFFIXES: dict[str, int | Decimal] = {
    "": 1,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}
SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@given(
    whole=st.integers(0, 10**6),
    part=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    sign=st.sampled_from(["", "+", "-"]),
    milli=st.booleans(),
)
def test_quantities_equal_decimal_arithmetic(whole: int, part: str, suffix: str, sign: str, milli: bool) -> None:
    exact = Decimal(f"{sign}{whole}.{part or '0'}") * SUFFIXES[suffix]
    nanos = exact.quantize(Decimal("1e-9"), ROUND_UP)
    expected = int((nanos * (1000 if milli else 1)).quantize(Decimal(1), ROUND_UP))
    assert parse_quantity(f"{sign}{whole}.{part}{suffix}", milli=milli) == expected


@given(st.integers(-INT64_MAX - 1, INT64_MAX))
def test_every_64_bit_integer_is_itself(number: int) -> None:
    assert parse_quantity(number) == number
    assert parse_quantity(str(number)) == number


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_quantity(text), int)


def container(**requests: Quantity) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def sidecar(**requests: Quantity) -> dict[str, Any]:
    return container(**requests) | {"restartPolicy": "Always"}


POD_REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing asked": ({"containers": [{"name": "c"}]}, {}),
    "containers add up": (
        {"containers": [container(cpu="250m", memory="1Gi"), container(cpu=1, memory="512Mi")]},
        {"cpu": 1250, "memory": 1536 * 2**20},
    ),
    "the sum is rounded once": ({"containers": [container(memory="500m")] * 2}, {"memory": 1}),
    "cpu below a thousandth": ({"containers": [container(cpu="100u")] * 2}, {"cpu": 1}),
    "a larger init container wins": (
        {"containers": [container(cpu=1, memory=5)], "initContainers": [container(cpu=3), container(cpu=2)]},
        {"cpu": 3000, "memory": 5},
    ),
    "a smaller init container does not": (
        {"containers": [container(cpu=4)], "initContainers": [container(cpu=3)]},
        {"cpu": 4000},
    ),
    "a sidecar adds": ({"containers": [container(cpu=1)], "initContainers": [sidecar(cpu=2)]}, {"cpu": 3000}),
    "an init container runs beside the sidecars before it": (
        {"containers": [container(cpu=1)], "initContainers": [sidecar(cpu=2), container(cpu=5)]},
        {"cpu": 7000},
    ),
    "and not beside those behind it": (
        {"containers": [container(cpu=1)], "initContainers": [container(cpu=5), sidecar(cpu=2)]},
        {"cpu": 5000},
    ),
    "each resource has its own maximum": (
        {"containers": [container(cpu=1, memory=9)], "initContainers": [container(cpu=5, memory=2)]},
        {"cpu": 5000, "memory": 9},
    ),
    "overhead comes on top": (
        {"containers": [container(cpu=1)], "initContainers": [container(cpu=3)], "overhead": {"cpu": "250m"}},
        {"cpu": 3250},
    ),
    "overhead of something not asked": ({"containers": [], "overhead": {"memory": "1Ki"}}, {"memory": 1024}),
    "the pod's own resources replace the sum": (
        {"containers": [container(cpu=4, memory=1)], "resources": {"requests": {"cpu": 2}}, "overhead": {"cpu": 1}},
        {"cpu": 3000, "memory": 1},
    ),
    "but only cpu, memory and huge pages": (
        {
            "containers": [container(**{"nvidia.com/gpu": 1})],
            "resources": {"requests": {"nvidia.com/gpu": 4, "hugepages-2Mi": "4Mi"}},
        },
        {"nvidia.com/gpu": 1, "hugepages-2Mi": 4 * 2**20},
    ),
    "extended resources and storage in units": (
        {"containers": [container(**{"nvidia.com/gpu": "2", "ephemeral-storage": "1G"})]},
        {"nvidia.com/gpu": 2, "ephemeral-storage": 10**9},
    ),
}


def container_status(actual: dict[str, Quantity], promised: dict[str, Quantity] | None = None) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": actual}, "allocatedResources": promised or {}}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
RESIZED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "becoming larger counts as asked": (
        {"containers": [container(cpu=2)]},
        {"containerStatuses": [container_status({"cpu": 1}, {"cpu": 1})]} | DEFERRED,
        {"cpu": 2000},
    ),
    "becoming smaller counts as it runs": (
        {"containers": [container(cpu=1)]},
        {"containerStatuses": [container_status({"cpu": 2, "memory": 5})]},
        {"cpu": 2000, "memory": 5},
    ),
    "what is promised counts": (
        {"containers": [container(cpu=1)]},
        {"containerStatuses": [container_status({"cpu": 1}, {"cpu": 3})]},
        {"cpu": 3000},
    ),
    "what the node will never do does not": (
        {"containers": [container(cpu=9)]},
        {"containerStatuses": [container_status({"cpu": 1}, {"cpu": 1})]} | INFEASIBLE,
        {"cpu": 1000},
    ),
    "a status without resources says nothing": (
        {"containers": [container(cpu=1)]},
        {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": 3}}]} | INFEASIBLE,
        {"cpu": 1000},
    ),
    "sidecars too, but not init containers": (
        {"containers": [], "initContainers": [sidecar(cpu=1), container(cpu=1) | {"name": "i"}]},
        {"initContainerStatuses": [container_status({"cpu": 2}), container_status({"cpu": 7}) | {"name": "i"}]},
        {"cpu": 3000},
    ),
    "the pod as a whole": (
        {"containers": [container(cpu=1)], "resources": {"requests": {"cpu": 2}}},
        {"resources": {"requests": {"cpu": 3}}, "allocatedResources": {"cpu": 4}},
        {"cpu": 4000},
    ),
    "the pod as a whole, asked in vain": (
        {"containers": [container(cpu=1)], "resources": {"requests": {"cpu": 9}}},
        {"resources": {"requests": {"cpu": 3}}} | INFEASIBLE,
        {"cpu": 3000},
    ),
}


@pytest.mark.parametrize(("spec", "status", "expected"), RESIZED.values(), ids=RESIZED)
def test_what_a_pod_that_is_resized_in_place_holds(
    spec: dict[str, Any], status: dict[str, Any], expected: dict[str, int]
) -> None:
    assert pod_requests(msgspec.convert(spec, PodSpec), msgspec.convert(status, PodStatus)) == expected


@pytest.mark.parametrize(("spec", "expected"), POD_REQUESTS.values(), ids=POD_REQUESTS)
def test_what_a_pod_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_requests(msgspec.convert(spec, PodSpec)) == expected


@given(
    st.lists(
        st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3), max_size=2)), max_size=8
    )
)
def test_init_containers_are_summed_as_one_after_the_other(inits: list[tuple[bool, dict[str, int]]]) -> None:
    """The sum as the scheduler makes it: each start has beside it all sidecars that were started before."""
    sidecars: dict[str, int] = {}
    highest: dict[str, int] = {}
    for is_sidecar, asked in inits:
        running = {name: sidecars.get(name, 0) + asked.get(name, 0) for name in (*sidecars, *asked)}
        sidecars = running if is_sidecar else sidecars
        highest = {name: max(highest.get(name, amount), amount) for name, amount in running.items()} | {
            name: amount for name, amount in highest.items() if name not in running
        }
    expected = {name: max(sidecars.get(name, amount), amount) for name, amount in highest.items()}
    spec = [(sidecar if is_sidecar else container)(**asked) for is_sidecar, asked in inits]
    assert pod_requests(msgspec.convert({"containers": [], "initContainers": spec}, PodSpec)) == expected


def test_a_sidecar_is_not_compared_with_all_resources_before_it(calls_of: Any) -> None:
    """10,000, each with a resource of its own, were 50 million comparisons, 4.7 s of whoever reads the pod."""
    inits = [
        (container if number % 2 else sidecar)() | {"resources": {"requests": {f"example.com/{number}": "1"}}}
        for number in range(100)
    ]
    with calls_of(objects._raise_to_floor) as calls:
        found = pod_requests(msgspec.convert({"containers": [], "initContainers": inits}, PodSpec))
    assert found == {f"example.com/{number}": 1 for number in range(100)}
    assert 0 < sum(len(call["floor"]) for call in calls) <= 200


def pod_spec_with_ports(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(ports)}], **more}


HOST_PORTS: dict[str, tuple[dict[str, Any], set[tuple[str, str, int]]]] = {
    "a container's port is not the host's": (pod_spec_with_ports({"containerPort": 80}), set()),
    "defaults": (pod_spec_with_ports({"containerPort": 80, "hostPort": 8080}), {("0.0.0.0", "TCP", 8080)}),
    "address and protocol": (
        pod_spec_with_ports({"containerPort": 53, "hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"}),
        {("10.0.0.1", "UDP", 53)},
    ),
    "the host's network": (pod_spec_with_ports({"containerPort": 80}, hostNetwork=True), {("0.0.0.0", "TCP", 80)}),
    "a sidecar's port": (
        {"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 1}]}]},
        {("0.0.0.0", "TCP", 1)},
    ),
    "an init container's port is given back": ({"initContainers": [{"ports": [{"hostPort": 1}]}]}, set()),
}


@pytest.mark.parametrize(("spec", "expected"), HOST_PORTS.values(), ids=HOST_PORTS)
def test_which_ports_of_its_node_a_pod_takes(spec: dict[str, Any], expected: set[tuple[str, str, int]]) -> None:
    assert host_ports(msgspec.convert(spec, PodSpec)) == expected


def test_a_pod_is_read_from_what_a_server_sends() -> None:
    pod = msgspec.json.decode(
        b"""{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
        "creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"a"},"annotations":{"x":"y"},"managedFields":[{}],
        "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"ru","controller":true}]},
        "spec":{"nodeName":"node-1","priority":5,"containers":[{"name":"c","image":"i",
        "resources":{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}}]},
        "status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastProbeTime":null}]}}""",
        type=Pod,
    )
    assert (pod.metadata.name, pod.metadata.resource_version, pod.spec.node_name, pod.spec.priority) == (
        "a",
        "7",
        "node-1",
        5,
    )
    assert pod.metadata.owner_references[0].uid == "ru"
    assert pod.status.conditions[0].last_transition_time is None


def test_defaults_are_those_of_kubernetes() -> None:
    deployment = msgspec.json.decode(b'{"metadata":{"name":"d"},"spec":{},"status":{}}', type=Deployment)
    assert (deployment.spec.replicas, deployment.spec.strategy.type) == (1, "RollingUpdate")
    node = msgspec.json.decode(
        b'{"metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}', type=Node
    )
    assert node.spec.taints[0].value == ""
    quota = msgspec.json.decode(b'{"metadata":{"name":"q"},"status":{"hard":{"cpu":"1"}}}', type=ResourceQuota)
    assert quota.status.hard == {"cpu": "1"}


@pytest.mark.parametrize("shape", [b'{"metadata":{}}', b'{"metadata":{"name":7}}', b"{}", b"[]", b"null"])
def test_another_shape_is_not_read_as_a_pod(shape: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(shape, type=Pod)


def test_pages_know_how_many_objects_there_are() -> None:
    decode = page_decoder(NODES).decode
    assert decode(b'{"metadata":{"resourceVersion":"1"},"items":null}').object_count_from_here() == 0
    assert (
        decode(
            b'{"metadata":{"continue":"x","remainingItemCount":4},"items":[{"metadata":{"name":"n"}}]}'
        ).object_count_from_here()
        == 5
    )
    assert decode(b'{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"n"}}]}').object_count_from_here() is None


def test_a_bookmark_needs_no_name() -> None:
    bookmark = msgspec.json.decode(b'{"metadata":{"resourceVersion":"9","creationTimestamp":null}}', type=Bookmark)
    assert bookmark.metadata.resource_version == "9"


def test_paths() -> None:
    assert NODES.path() == "/api/v1/nodes"
    assert NODES.path("", "a") == "/api/v1/nodes/a"
    assert DEPLOYMENTS.path("n", "d") == "/apis/apps/v1/namespaces/n/deployments/d"
    assert DEPLOYMENTS.path("n", "a/b?c") == "/apis/apps/v1/namespaces/n/deployments/a%2Fb%3Fc"
    with pytest.raises(ValueError, match="not a path"):
        DEPLOYMENTS.path("n", "..")


def test_a_manifest_has_a_namespace_exactly_when_its_kind_has() -> None:
    assert DEPLOYMENTS.namespace_and_name({"metadata": {"name": "d", "namespace": "n"}}) == ("n", "d")
    with pytest.raises(ValueError, match="namespace"):
        DEPLOYMENTS.namespace_and_name({"metadata": {"name": "d"}})
    with pytest.raises(ValueError, match="namespace"):
        NODES.namespace_and_name({"metadata": {"name": "d", "namespace": "n"}})


def test_secrets_are_followed_without_their_content() -> None:
    assert SECRETS.accept_header() == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert SECRETS.accept_header("List") == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert NODES.accept_header("List") == "application/json"


def test_a_status_that_is_none_is_quoted() -> None:
    assert read_status(b"<html>Bad gateway").message == "<html>Bad gateway"


def test_a_status_is_quoted_no_longer_than_a_record_has_room_for() -> None:
    """Of a webhook that refuses with megabytes; the codes by which it is judged stay."""
    details = {"causes": [{"field": "metadata.uid"}]}
    body = json.dumps({"kind": "Status", "reason": "r" * 3_000_000, "message": "m" * 3_000_000, "details": details})
    said = read_status(body.encode())
    assert (len(said.reason), len(said.message)) == (SAID_CHARACTERS_MAX, SAID_CHARACTERS_MAX)
    assert said.names_another_uid


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_are_the_same_however_they_are_cut(wanted: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    lines = Lines(limit=100, empty_max=0)
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found.extend(lines.feed_chunk(whole[start:end]))
    assert found == wanted


def test_empty_lines_are_bounded_in_a_row() -> None:
    lines = Lines(limit=10, empty_max=2)
    assert list(lines.feed_chunk(b"a\n\n \nb\n\n\n")) == [b"a", b"b"]
    with pytest.raises(BadLine, match="more than 2 empty lines"):
        list(lines.feed_chunk(b"\n"))


def test_a_line_is_bounded_before_it_ends() -> None:
    lines = Lines(limit=10, empty_max=0)
    assert list(lines.feed_chunk(b"12345")) == []
    with pytest.raises(BadLine, match="10 bytes"):
        list(lines.feed_chunk(b"678901"))
