"""The planner says of the committed cases what the Kubernetes scheduler's own plugins said, without Go."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

from spillway_oracle.cases import Case, read_case
from spillway_oracle.committed import DIFFERING_FILE, FOUND_FOLDER, NOT_MODELLED_FILE, read_case_list, read_cases
from spillway_oracle.reasons import ALIKE, HASH_UNKNOWN, SAID_OF_THE_POD, compare_reasons
from spillway_oracle.templates import FEATURES
from spillway_oracle.verdicts import AGREES, INVALID, UNMODELLED, Truth, Verdict, verdict_on_case


@cache
def committed_cases() -> tuple[tuple[Case, Truth], ...]:
    return tuple(read_cases())


@cache
def verdicts_by_case() -> dict[str, Verdict]:
    return {case.name: verdict_on_case(case, truth) for case, truth in committed_cases()}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_planner_agrees_with_the_scheduler(feature: str) -> None:
    """On every committed case about this, but for those that are listed by name as differing."""
    found = {case.name: verdicts_by_case()[case.name] for case, _ in committed_cases() if case.main_feature == feature}
    differing = {name: f"{one.kind}: {one.detail}" for name, one in found.items() if one.is_disagreement}
    listed = read_case_list(DIFFERING_FILE)
    assert differing == {name: text for name, text in listed.items() if name in found}


@pytest.mark.parametrize("file", sorted(FOUND_FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_a_case_that_once_differed_agrees(file: Path) -> None:
    found = json.loads(file.read_text())
    truth = msgspec.convert(found["truth"], Truth)
    one = verdict_on_case(read_case(found["case"]), truth)
    assert one.kind == AGREES, one.detail


def test_what_is_not_modelled_is_listed_by_name() -> None:
    """No case is passed over silently, and none stays listed that is modelled now."""
    found = {name: one.detail for name, one in verdicts_by_case().items() if one.kind == UNMODELLED}
    assert found == read_case_list(NOT_MODELLED_FILE)


def test_explain_says_of_every_node_what_the_scheduler_says() -> None:
    """Of those that take no replica more, by each plugin; all but a few are compared, and those are named."""
    kinds = Counter(one.kind for found in verdicts_by_case().values() for one in found.reasons)
    plugins = Counter(one.plugin for found in verdicts_by_case().values() for one in found.reasons if one.kind == ALIKE)
    assert set(kinds) == {ALIKE, SAID_OF_THE_POD, HASH_UNKNOWN}
    assert kinds[ALIKE] > 2_500
    assert kinds[SAID_OF_THE_POD] + kinds[HASH_UNKNOWN] <= 20
    assert set(plugins) == {
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
    }


NODE_REASONS = (
    pytest.param("NodeUnschedulable", ["node(s) were unschedulable"], ALIKE, id="alike"),
    pytest.param("NodeAffinity", ["node(s) didn't match Pod's node affinity/selector"], "differs", id="another filter"),
    pytest.param("NodeAffinity", ["pod affinity terms conflict"], SAID_OF_THE_POD, id="of the pod, before any node"),
    pytest.param("NodeUnschedulable", ["words that nobody knows"], "differs", id="other words"),
)


@pytest.mark.parametrize(("plugin", "words", "expected"), NODE_REASONS)
def test_what_is_said_of_a_node_is_held_against_plugin_and_words(plugin: str, words: list[str], expected: str) -> None:
    """The first filter that bars it counts: a node that is cordoned, and has another label than is asked for."""
    metadata = {"name": "n0", "uid": "n0", "labels": {"kubernetes.io/hostname": "n0"}}
    allocatable = {"cpu": "1", "pods": "9"}
    node = {"metadata": metadata, "spec": {"unschedulable": True}, "status": {"allocatable": allocatable}}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {}, "spec": {"containers": [container], "nodeSelector": {"disk": "ssd"}}}
    case = Case({"nodes": [node], "pods": [], "namespaces": []}, "default", template)
    (found,) = compare_reasons(case, {}, (("n0", plugin, tuple(words)),), {})
    assert ("differs" if found.is_deviation else found.kind) == expected


def test_there_are_enough_cases() -> None:
    """At least 500, nearly all such that a server takes them, and mostly ones in which something fits."""
    kinds = [one.kind for one in verdicts_by_case().values()]
    assert len(kinds) >= 500
    assert kinds.count(INVALID) < len(kinds) / 10
    assert sum(truth.most > 0 for _, truth in committed_cases()) > len(kinds) / 2
