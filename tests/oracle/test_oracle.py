"""The oracle keeps to its protocol: modes, state between requests, admission; and the committed answers are its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from spillway.kubernetes.objects import Manifest
from spillway_oracle.committed import read_cases
from spillway_oracle.oracle import EXTREMES, FIRST, LAST, RANDOM, SAMPLED, SCORE, Oracle, OracleFailed, Place, Request
from spillway_oracle.verdicts import request_of_case, truth_of_answers

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


def node(name: str, pods: int = 3, zone: str = "z1") -> Manifest:
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "4", "pods": str(pods)}}}


def template(**spec: Any) -> Manifest:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]} | spec}


def spread_constraint(skew: int) -> Manifest:
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return template(topologySpreadConstraints=[constraint | {"labelSelector": {"matchLabels": {"app": "web"}}}])


TWO = {"nodes": [node("n1"), node("n2")]}


@pytest.mark.parametrize(("mode", "nodes"), [(FIRST, {"n1": 3, "n2": 1}), (LAST, {"n1": 1, "n2": 3})])
def test_by_name_one_node_is_filled_after_the_other(oracle: Oracle, mode: str, nodes: dict[str, int]) -> None:
    assert (
        oracle.send_request(Request(load=TWO, place=[Place("default", template(), 4, mode)])).placed[0].nodes == nodes
    )


@pytest.mark.parametrize("mode", [SCORE, SAMPLED])
def test_by_score_the_emptier_node_is_taken(oracle: Oracle, mode: str) -> None:
    sized = template(containers=[{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}])
    placed = oracle.send_request(Request(load=TWO, place=[Place("default", sized, 4, mode)])).placed[0]
    assert placed.nodes == {"n1": 2, "n2": 2}


def test_chance_is_the_seeds(oracle: Oracle) -> None:
    asked = Request(
        load=TWO, place=[Place("default", template(), 6, RANDOM, seed, sequence=True) for seed in (1, 1, 2)]
    )
    one, again, other = (placed.sequence for placed in oracle.send_request(asked).placed)
    assert one == again
    assert one != other


def test_state_is_kept_only_when_asked(oracle: Oracle) -> None:
    """A placement with keep is there for what follows, one without is not, and a removed pod makes room."""
    kept = Place("default", template(), 4, keep=True, name="kept")
    tried = Place("default", template(), 9)
    counts = [placed.count for placed in oracle.send_request(Request(load=TWO, place=[tried, kept, tried])).placed]
    assert counts == [6, 4, 2]
    assert oracle.send_request(Request(remove=["default/kept-0"], place=[tried])).placed[0].count == 3


def test_assumed_pods_hold_their_nodes(oracle: Oracle) -> None:
    pods = [
        {"metadata": {"name": f"p{index}", "namespace": "a"}, "spec": {"nodeName": "n1", "containers": []}}
        for index in range(3)
    ]
    placed = oracle.send_request(Request(load=TWO, assume=pods, place=[Place("default", template(), 9)])).placed[0]
    assert placed.nodes == {"n2": 3}
    assert {name: refusal.plugin for name, refusal in placed.refused.items()} == dict.fromkeys(
        ("n1", "n2"), "NodeResourcesFit"
    )
    with pytest.raises(OracleFailed, match="there already"):
        oracle.send_request(Request(assume=pods[:1]))


def test_extremes_are_those_of_all_choices(oracle: Oracle) -> None:
    """Two replicas together on one of two nodes of different size: the first choice decides how many fit."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    together = template(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    load = {"nodes": [node("n1", pods=2), node("n2", pods=5)]}
    found = oracle.send_request(Request(load=load, place=[Place("default", together, 99, EXTREMES)])).placed[0]
    assert (found.least, found.most) == (2, 5)
    too_many = oracle.send_request(Request(place=[Place("default", template(), 99, EXTREMES, states_max=3)])).placed[0]
    assert "more than 3 states" in too_many.error


def test_spread_sees_the_replicas_before(oracle: Oracle) -> None:
    load = {"nodes": [node("n1", zone="z1"), node("n2", pods=1, zone="z2")]}
    placed = oracle.send_request(Request(load=load, place=[Place("default", spread_constraint(1), 9)])).placed[0]
    assert placed.nodes == {"n1": 2, "n2": 1}
    assert placed.refused["n1"].plugin == "PodTopologySpread"


def test_a_pod_is_admitted_as_a_server_does_it(oracle: Oracle) -> None:
    """Limits become requests, the two default tolerations are added, host ports follow the host's network."""
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}
    asked = template(hostNetwork=True, containers=[container])
    pod = oracle.send_request(Request(load=TWO, place=[Place("default", asked, 1, pod=True)])).placed[0].pod
    assert pod is not None
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert pod["spec"]["containers"][0]["ports"][0]["hostPort"] == 80
    assert {entry["key"] for entry in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_what_a_pod_asks_for_does_not_grow_while_it_is_looked_at(oracle: Oracle) -> None:
    """Of 4Gi each takes 0.1Gi for itself, not a whole number of bytes, and 64Mi: 8 there already, 16 more."""
    large = {"metadata": {"name": "n1"}, "status": {"allocatable": {"memory": "4Gi", "pods": "99"}}}
    container = {"name": "c", "image": "x", "resources": {"requests": {"memory": "0.1Gi"}}}
    sized = template(containers=[container], overhead={"memory": "64Mi"}, resources={"limits": {"memory": "4Gi"}})
    pods = [
        {"metadata": {"name": f"p{index}", "namespace": "default"}, "spec": sized["spec"] | {"nodeName": "n1"}}
        for index in range(8)
    ]
    asked = Request(load={"nodes": [large], "pods": pods}, place=[Place("default", sized, 99, FIRST)])
    assert oracle.send_request(asked).placed[0].count == 4096 * 10 // (1024 + 640) - 8


def test_what_a_server_refuses_is_an_error(oracle: Oracle) -> None:
    """The toleration operators Gt and Lt are behind a gate that is off in 1.36."""
    asked = template(tolerations=[{"key": "gen", "operator": "Gt", "value": "5"}])
    error = oracle.send_request(Request(load=TWO, place=[Place("default", asked, 1)])).placed[0].error
    assert error.startswith("the API server refuses it")
    assert "tolerations[0].operator" in error


def test_a_bad_request_leaves_the_process_alive(oracle: Oracle) -> None:
    with pytest.raises(OracleFailed, match="no node"):
        oracle.send_request(
            Request(load={"nodes": []}, assume=[{"metadata": {"name": "p"}, "spec": {"nodeName": "n9"}}])
        )
    assert oracle.send_request(Request(load=TWO, place=[Place("default", template(), 1)])).placed[0].count == 1


def test_the_committed_answers_are_the_oracles(oracle: Oracle) -> None:
    """cases.json.gz says what the program of this checkout says."""
    committed = list(read_cases())
    answers = oracle.send_requests([request_of_case(case) for case, _ in committed])
    changed = {
        case.name: (truth, found)
        for (case, truth), answer in zip(committed, answers, strict=True)
        if (found := truth_of_answers(case, answer.placed)) != truth
    }
    assert changed == {}
