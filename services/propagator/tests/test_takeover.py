"""Adopting, disowning, orphans: every row of their state tables, and that nothing but marks is ever written."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from propagator.core.actions import (
    NOTHING,
    Action,
    Hold,
    Nothing,
    PatchDependencyMarks,
    PatchMarks,
    PropagationRules,
    ReadAfresh,
    Report,
)
from propagator.core.desired import PartTarget, WantedState
from propagator.core.live import (
    DependencyReference,
    LiveDependency,
    LiveState,
    LiveWorkload,
    ObjectMarks,
    parse_version_annotation,
)
from propagator.core.manifests import generation_and_digest_of
from propagator.core.reconcile import WriteHistory, history_after_action, next_action
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.kubernetes.live_objects import first_difference, manifest_of_live_object, take_over_managed_fields
from spillway.model import NO_GENERATION, Generation, ObjectReference, Part, Policy

RULES = PropagationRules("f1")
V, OLDER, NEWER = Generation(5, 2), Generation(5, 1), Generation(6, 0)
TARGET = PartTarget("own-1", "shop", "web")
CONFIG = DependencyReference("ConfigMap", "conf")
SPEC = {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "a"}]}}}
CONFIG_DECLARED = DependencyDeclared(
    "ConfigMap", "shop", "conf", "shop/web", 3, json.dumps({"kind": "ConfigMap", "metadata": {"name": "conf"}}).encode()
)
DECLARED = WorkloadDeclared(
    namespace="shop",
    name="web",
    kind="Deployment",
    generation=3,
    template_generation=1,
    manifest=json.dumps({"kind": "Deployment", "metadata": {"name": "web"}, "spec": SPEC}).encode(),
    replicas=4,
    policy=Policy((), (), "Wait"),
    dependencies=(ObjectReference("ConfigMap", "shop", "conf"),),
    rolling_from=(),
    answered=(),
    deleting=False,
)
ADOPTING = Part("own-1", V, 4, 0, 0, False, adopting=True, found_uid="u1", found_fleet="")
ADOPT = WantedState(TARGET, ADOPTING, DECLARED, (CONFIG_DECLARED,), "")
RECOVER = replace(ADOPT, part=replace(ADOPTING, found_fleet="f0"))
DISOWN = replace(ADOPT, part=Part("own-1", V, 0, 0, 0, False, disowning=True), declaration=None)
NOBODYS = ObjectMarks("u1", "100", "", "", False)
OURS = ObjectMarks("u1", "100", "f1", "web", False)
FORMER = ObjectMarks("u1", "100", "f0", "web", False)
FOREIGN = ObjectMarks("u1", "100", "f9", "web", False)


def live_state_of(
    marks: ObjectMarks | None, version: Generation = NO_GENERATION, replicas: int = 4, **more: Any
) -> LiveState:
    found = None if marks is None else LiveWorkload(marks, version, replicas, 0, 0, 0, 0)
    return LiveState(**{"workload": found, "read": True, "spec": SPEC} | more)


def config_map_by_reference(
    marks: ObjectMarks, declaration: tuple[int, str] = (-1, "")
) -> dict[DependencyReference, LiveDependency]:
    return {CONFIG: LiveDependency(marks, declaration)}


MARKED, MARKED_CONFIG, UNMARKED, UNMARKED_CONFIG = "mark", "mark dependency", "unmark", "unmark dependency"
HOLD, READ = "hold", "read"
RIGHT_CONFIG = config_map_by_reference(OURS, generation_and_digest_of(CONFIG_DECLARED))

ROWS: dict[str, tuple[WantedState, LiveState, Any]] = {
    "adopting, declaration not read": (replace(ADOPT, lacking="the declaration"), live_state_of(NOBODYS), HOLD),
    "adopting, nothing by the watch": (ADOPT, live_state_of(None, read=False, spec=None), READ),
    "adopting, nothing there": (ADOPT, live_state_of(None, spec=None), ("Absent", "gone")),
    "adopting, being deleted": (ADOPT, live_state_of(replace(NOBODYS, deleting=True)), ("Absent", "being deleted")),
    "adopting, another object": (ADOPT, live_state_of(replace(NOBODYS, uid="u2")), ("NotOwned", "another object")),
    "adopting, another fleet's by now": (ADOPT, live_state_of(FOREIGN), ("NotOwned", "belongs to fleet f9 by now")),
    "adopting, a newer placement's": (ADOPT, live_state_of(OURS, NEWER), HOLD),
    "adopting, changed since": (
        ADOPT,
        live_state_of(NOBODYS, spec={**SPEC, "minReadySeconds": 5}),
        ("NotOwned", "changed since it was found, in spec.minReadySeconds"),
    ),
    "adopting, nobody's": (ADOPT, live_state_of(NOBODYS), MARKED),
    "adopting, nobody's, other replicas": (ADOPT, live_state_of(NOBODYS, replicas=9), MARKED),
    "adopting, nobody's config is left": (
        ADOPT,
        live_state_of(NOBODYS, dependencies=config_map_by_reference(NOBODYS)),
        MARKED,
    ),
    "adopting, an orphan of ours": (ADOPT, live_state_of(OURS, OLDER), MARKED),
    "adopting, an orphan of ours by the watch": (ADOPT, live_state_of(OURS, OLDER, read=False, spec=None), READ),
    "adopting, an orphan's config": (
        ADOPT,
        live_state_of(OURS, OLDER, dependencies=config_map_by_reference(OURS, (9, "x"))),
        MARKED_CONFIG,
    ),
    "adopting, an orphan's config right": (ADOPT, live_state_of(OURS, OLDER, dependencies=RIGHT_CONFIG), MARKED),
    "adopting, taken over": (ADOPT, live_state_of(OURS, V), NOTHING),
    "adopting, taken over, by the watch": (ADOPT, live_state_of(OURS, V, read=False, spec=None), NOTHING),
    "adopting, taken over, other replicas": (ADOPT, live_state_of(OURS, V, replicas=9), NOTHING),
    "adopting, a former fleet's, not meant": (ADOPT, live_state_of(FORMER), ("NotOwned", "belongs to fleet f0")),
    "recovering, the former fleet's": (RECOVER, live_state_of(FORMER, NEWER), MARKED),
    "recovering, its config first": (
        RECOVER,
        live_state_of(FORMER, NEWER, dependencies=config_map_by_reference(FORMER)),
        MARKED_CONFIG,
    ),
    "recovering, disowned meanwhile": (RECOVER, live_state_of(NOBODYS), ("NotOwned", "is not this fleet's")),
    "disowning, a newer placement's": (DISOWN, live_state_of(OURS, NEWER), HOLD),
    "disowning, being deleted": (DISOWN, live_state_of(replace(OURS, deleting=True), OLDER), HOLD),
    "disowning, config first": (DISOWN, live_state_of(OURS, OLDER, dependencies=RIGHT_CONFIG), UNMARKED_CONFIG),
    "disowning, config deleted": (
        DISOWN,
        live_state_of(OURS, OLDER, dependencies=config_map_by_reference(replace(OURS, deleting=True))),
        UNMARKED,
    ),
    "disowning, ours": (DISOWN, live_state_of(OURS, OLDER), UNMARKED),
    "disowning, unmarked": (DISOWN, live_state_of(NOBODYS), ("Disowned", "")),
    "disowning, another fleet's": (DISOWN, live_state_of(FOREIGN), ("Disowned", "")),
    "disowning, gone": (DISOWN, live_state_of(None), ("Disowned", "")),
    "disowning, others' config": (
        DISOWN,
        live_state_of(None, dependencies=config_map_by_reference(NOBODYS)),
        ("Disowned", ""),
    ),
}


@pytest.mark.parametrize(("wanted", "found", "expected"), ROWS.values(), ids=ROWS)
def test_rows(wanted: WantedState, found: LiveState, expected: Any) -> None:
    action = next_action(wanted, found, WriteHistory(), 0.0, RULES)
    match action:
        case Report(state, message):
            assert state == expected[0]
            assert expected[1] in message
        case _:
            assert kind_of_action(action) == expected


def kind_of_action(action: Action) -> Any:
    match action:
        case PatchMarks(change) | PatchDependencyMarks(_, change):
            assert change.keys() == {"metadata"}
            assert change["metadata"].keys() == {"labels", "annotations"}
            word = "unmark" if change["metadata"]["labels"]["spillway.io/fleet"] is None else "mark"
            return word if isinstance(action, PatchMarks) else f"{word} dependency"
        case Hold():
            return HOLD
        case ReadAfresh(_):
            return READ
        case _:
            return action


# ── Whatever happens meanwhile ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Member:
    """One Deployment and one ConfigMap. Only marks may be written to it by us; others do what they like."""

    workload: LiveWorkload | None
    config: LiveDependency | None
    spec: dict[str, Any] = field(default_factory=lambda: dict(SPEC))
    counter: int = 100

    def next_id(self) -> str:
        self.counter += 1
        return str(self.counter)

    def live_state(self) -> LiveState:
        return LiveState(self.workload, {} if self.config is None else {CONFIG: self.config}, read=True, spec=self.spec)

    def carry_out_marks(self, action: Action) -> bool:
        """False for a conflict. Anything but marks is a bug of ours."""
        match action:
            case PatchMarks(change, version):
                if self.workload is None or self.workload.marks.resource_version != version:
                    return False
                labels, annotations = change["metadata"]["labels"], change["metadata"]["annotations"]
                marks = replace(
                    self.workload.marks,
                    resource_version=self.next_id(),
                    fleet=labels["spillway.io/fleet"] or "",
                    workload=labels["spillway.io/workload"] or "",
                )
                said = parse_version_annotation(annotations["spillway.io/placement"] or "")
                self.workload = replace(self.workload, marks=marks, version=said)
            case PatchDependencyMarks(_, change, version):
                if self.config is None or self.config.marks.resource_version != version:
                    return False
                labels, annotations = change["metadata"]["labels"], change["metadata"]["annotations"]
                marks = replace(
                    self.config.marks,
                    resource_version=self.next_id(),
                    fleet=labels["spillway.io/fleet"] or "",
                    workload=labels["spillway.io/workload"] or "",
                )
                generation, _, digest = (annotations["spillway.io/declaration"] or "-1.").partition(".")
                self.config = LiveDependency(marks, (int(generation), digest))
            case _:
                raise AssertionError(f"{action} was to be written")
        return True

    def change_by_others(self, what: str) -> None:
        if self.workload is None:
            return
        touched = replace(self.workload.marks, resource_version=self.next_id())
        match what:
            case "scale":
                self.workload = replace(self.workload, marks=touched, spec_replicas=self.workload.spec_replicas + 1)
            case "take":
                self.workload = replace(self.workload, marks=replace(touched, fleet="f9"))
            case "replace":
                self.workload = replace(
                    self.workload, marks=replace(touched, uid=self.next_id(), fleet="", workload="")
                )
            case "roll":
                self.workload = replace(self.workload, marks=touched)
                self.spec = {**SPEC, "minReadySeconds": self.counter}
            case "delete":
                self.workload = None


STEPS = ("act", "act", "act", "stale", "scale", "take", "replace", "roll", "delete")


@given(
    st.sampled_from([ADOPT, RECOVER, DISOWN]),
    st.sampled_from([NOBODYS, OURS, FORMER, FOREIGN]),
    st.sampled_from([NO_GENERATION, OLDER]),
    st.lists(
        st.sampled_from(["act", "act", "act", "stale", "scale", "take", "replace", "roll", "delete"]), max_size=20
    ),
)
def test_nothing_but_marks_is_written_whatever_happens(
    wanted: WantedState, marks: ObjectMarks, version: Generation, steps: list[str]
) -> None:
    """Adopting never emits a write that changes a spec, disowning never deletes, and what is another fleet's stays."""
    member = Member(LiveWorkload(marks, version, 4, 0, 0, 0, 0), LiveDependency(marks, (-1, "")))
    history, seen = WriteHistory(), member.live_state()
    for step in steps:
        if step not in ("act", "stale"):
            member.change_by_others(step)
            continue
        if step == "act":
            seen = member.live_state()
        before = member.workload
        action = next_action(wanted, seen, history, 0.0, RULES)
        if isinstance(action, Report | Hold | Nothing):
            history = history_after_action(history, wanted, seen, action, 0.0, RULES)
            continue
        assert isinstance(action, PatchMarks | PatchDependencyMarks)
        if member.carry_out_marks(action):
            history = history_after_action(history, wanted, member.live_state(), action, 0.0, RULES)
        if before is not None and before.marks.fleet == "f9":
            assert member.workload == before, "another fleet's object was touched"
    if member.workload is not None and wanted is not DISOWN and member.workload.marks.fleet == "f1":
        assert marks is OURS or member.workload.marks.uid == wanted.part.found_uid


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
MANIFESTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(MANIFESTS)
def test_a_manifest_does_not_differ_from_itself(value: Any) -> None:
    assert first_difference(value, json.loads(json.dumps(value))) == ""


DIFFERENCES = {
    "a field more": ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, "a.c"),
    "another value": ({"a": [{"image": "x"}]}, {"a": [{"image": "y"}]}, "a[0].image"),
    "a longer list": ({"a": [1]}, {"a": [1, 2]}, "a[1]"),
    "another type": ({"a": 1}, {"a": "1"}, "a"),
    "a number for a flag": ({"a": 1}, {"a": True}, "a"),
    "nothing": ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, ""),
}


@pytest.mark.parametrize(("one", "other", "path"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_the_first_difference_is_named(one: Any, other: Any, path: str) -> None:
    assert first_difference(one, other) == path
    assert first_difference(other, one) == path


def test_the_declared_form_is_what_somebody_would_have_written() -> None:
    service = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": [],
            "labels": {"spillway.io/fleet": "f0", "team": "a"},
            "annotations": {"spillway.io/declaration": "1.x"},
        },
        "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30001}]},
        "status": {},
    }
    assert manifest_of_live_object(service, "Service", "v1") == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a"}},
        "spec": {"ports": [{"port": 80}]},
    }
    headless = manifest_of_live_object({"metadata": {"name": "w"}, "spec": {"clusterIP": "None"}}, "Service", "v1")
    assert headless["spec"] == {"clusterIP": "None"}
    deployment = {"metadata": {"name": "w", "annotations": {"deployment.kubernetes.io/revision": "1", "a": None}}}
    assert manifest_of_live_object(
        deployment | {"spec": {"replicas": 3, "paused": False}}, "Deployment", "apps/v1"
    ) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"paused": False},
    }


def test_the_spec_s_fields_are_taken_over_and_nothing_else_s() -> None:
    status = {"manager": "c", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
    scaled = {"manager": "h", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    user = {
        "manager": "kubectl",
        "operation": "Update",
        "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:paused": {}, "f:template": {"f:a": {}}}},
    }
    ours = {"manager": "spillway", "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": {"f:b": {}}}}}
    taken = take_over_managed_fields([status, scaled, user, ours], "spillway", "apps/v1")
    assert taken is not None
    assert taken[:3] == [status, scaled, {**user, "fieldsV1": {"f:metadata": {"f:labels": {}}}}]
    assert taken[3]["fieldsV1"] == {"f:spec": {"f:paused": {}, "f:template": {"f:a": {}, "f:b": {}}}}
    assert take_over_managed_fields(taken, "spillway", "apps/v1") is None
    assert take_over_managed_fields([], "spillway", "apps/v1") is None


def test_what_a_cluster_made_of_a_job_and_of_claims_is_not_declared() -> None:
    made = {"controller-uid": "u", "batch.kubernetes.io/job-name": "sum"}
    spec = {
        "parallelism": 2,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": {"metadata": {"labels": {**made, "app": "sum"}}, "spec": {}},
    }
    assert manifest_of_live_object({"metadata": {"name": "sum"}, "spec": spec}, "Job", "batch/v1")["spec"] == {
        "parallelism": 2,
        "template": {"metadata": {"labels": {"app": "sum"}}, "spec": {}},
    }
    claim = {"metadata": {"name": "data"}, "spec": {}, "status": {"phase": "Pending"}}
    db = {"metadata": {"name": "db"}, "spec": {"replicas": 2, "volumeClaimTemplates": [claim]}}
    assert manifest_of_live_object(db, "StatefulSet", "apps/v1")["spec"] == {
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]
    }
