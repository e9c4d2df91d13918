"""Every row of the README's state table, through next_action."""

import json
from dataclasses import replace

import pytest

from propagator.core.actions import (
    NOTHING,
    Action,
    Apply,
    ApplyDependency,
    Create,
    Delete,
    DeleteDependency,
    EnsureNamespace,
    Hold,
    Look,
    PatchReplicas,
    PropagationRules,
    ReadAfresh,
    Report,
    ScaleDown,
)
from propagator.core.desired import PartTarget, WantedState
from propagator.core.live import DependencyReference, LiveDependency, LiveState, LiveWorkload, ObjectMarks
from propagator.core.manifests import generation_and_digest_of, manifest_digest
from propagator.core.reconcile import (
    NOT_RUN_AGAIN,
    WriteHistory,
    history_after_action,
    history_from_status,
    is_attempt_needed,
    next_action,
)
from propagator.core.status import AttemptOutcome, observed_status
from spillway.events import DependencyDeclared, JobEnd, StatusDetails, WorkloadDeclared, WorkloadObserved
from spillway.model import NO_GENERATION, EarlierTemplate, Generation, ObjectReference, Part, Policy

RULES = PropagationRules("f1")
V = Generation(5, 2)
OLDER, NEWER = Generation(5, 1), Generation(6, 0)
TARGET = PartTarget("own-1", "shop", "web")
NAMESPACE = DependencyReference("Namespace", "shop")
CONFIG = DependencyReference("ConfigMap", "web-config")
OLD_CONFIG = DependencyReference("ConfigMap", "web-config-old")
SECRET = DependencyReference("Secret", "web-key")
FOUND = {NAMESPACE: True, SECRET: True}

CONTAINER = {"name": "web", "image": "web:1", "envFrom": [{"secretRef": {"name": "web-key"}}]}
MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}},
}
DECLARED = WorkloadDeclared(
    namespace="shop",
    name="web",
    kind="Deployment",
    generation=3,
    template_generation=1,
    manifest=json.dumps(MANIFEST).encode(),
    replicas=4,
    policy=Policy((), (), "Wait"),
    dependencies=(),
    rolling_from=(),
    answered=(),
    deleting=False,
)
PART = Part("own-1", V, 4, 0, 4, False)
NONE_FOR_WANT = Part("own-1", V, 0, 0, 4, False, missing=(ObjectReference("Secret", "shop", "web-key"),))
CONFIG_DECLARED = DependencyDeclared(
    "ConfigMap",
    "shop",
    "web-config",
    "shop/web",
    3,
    json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web-config"}, "data": {}}).encode(),
)
PLAIN = WantedState(TARGET, PART, DECLARED, (), "")
WITH_CONFIG = replace(
    PLAIN,
    declaration=replace(DECLARED, dependencies=(ObjectReference("ConfigMap", "shop", "web-config"),)),
    dependencies=(CONFIG_DECLARED,),
)
EARLIER = replace(
    WITH_CONFIG,
    part=replace(PART, template_generation=1),
    declaration=replace(
        DECLARED,
        template_generation=2,
        manifest=json.dumps(MANIFEST | {"metadata": {"name": "web", "annotations": {"turn": "second"}}}).encode(),
        dependencies=(ObjectReference("ConfigMap", "shop", "web-config"),),
        earlier_templates=(EarlierTemplate(1, DECLARED.manifest),),
    ),
)
REMOVING = replace(PLAIN, part=replace(PART, replicas=0, removing=True))
OURS = ObjectMarks("u1", "100", "f1", "web", False)


def live_workload(marks: ObjectMarks = OURS, version: Generation = V, replicas: int = 4) -> LiveWorkload:
    return LiveWorkload(marks, version, replicas, replicas, replicas, replicas, replicas)


def live_config_map(marks: ObjectMarks = OURS, declaration: tuple[int, str] | None = None) -> LiveDependency:
    return LiveDependency(marks, declaration or generation_and_digest_of(CONFIG_DECLARED))


RIGHT = LiveState(live_workload())
NOT_OURS = replace(OURS, fleet="", workload="")
OTHER_FLEET = replace(OURS, fleet="f2")
OTHER_WORKLOAD = replace(OURS, workload="api")
DELETING = replace(OURS, deleting=True)
TIRED = WriteHistory(V, written=True, corrections=(0.0, 1.0, 2.0))


def expected_report(state: str, part: str) -> tuple[str, str]:
    return state, part


WRITTEN = manifest_digest(DECLARED, PART)
ALONE = {"metadata": {"annotations": {"spillway.io/placement": "5.2"}}, "spec": {"replicas": 4}}

ALONE_ASKED = PatchReplicas(ALONE, "100", corrects=False)
FEWER = {"spec": {"replicas": 4}}
FOUGHT = WriteHistory(OLDER, written=True, corrections=(0.0, 1.0, 2.0), right=2)


def written_workload(version: Generation = V, replicas: int = 4, manifest: str = WRITTEN) -> LiveWorkload:
    """An object that says with which manifest it was written."""
    return replace(live_workload(version=version, replicas=replicas), manifest=manifest, generation=7)


HOLD, CREATE, APPLY, CORRECT = "hold", "create", "apply", "apply that corrects"

# (wanted, live, history, what comes out). A pair is a Report's state and a part of its message.
ROWS = {
    # The part is being removed.
    "removing, object newer": (REMOVING, LiveState(live_workload(version=NEWER)), WriteHistory(), HOLD),
    "removing, object being deleted": (REMOVING, LiveState(live_workload(DELETING)), WriteHistory(), HOLD),
    "removing, object of this version": (REMOVING, RIGHT, WriteHistory(), Delete("u1", "100")),
    "removing, object older": (REMOVING, LiveState(live_workload(version=OLDER)), WriteHistory(), Delete("u1", "100")),
    "removing, unreadable version": (
        REMOVING,
        LiveState(live_workload(version=NO_GENERATION)),
        WriteHistory(),
        Delete("u1", "100"),
    ),
    "removing, dependency being deleted": (
        REMOVING,
        LiveState(None, {CONFIG: live_config_map(DELETING)}),
        WriteHistory(),
        HOLD,
    ),
    "removing, dependency left": (
        REMOVING,
        LiveState(None, {CONFIG: live_config_map()}),
        WriteHistory(),
        DeleteDependency(CONFIG, "u1", "100"),
    ),
    "removing, dependencies wait for the object": (
        REMOVING,
        LiveState(live_workload(), {CONFIG: live_config_map()}),
        WriteHistory(),
        Delete("u1", "100"),
    ),
    "removing, foreign dependency": (
        REMOVING,
        LiveState(None, {CONFIG: live_config_map(NOT_OURS)}),
        WriteHistory(),
        expected_report("Absent", ""),
    ),
    "removing, nothing there": (REMOVING, LiveState(), WriteHistory(), expected_report("Absent", "")),
    "removing, object not ours": (
        REMOVING,
        LiveState(live_workload(NOT_OURS)),
        WriteHistory(),
        expected_report("Absent", "not ours"),
    ),
    "removing, other fleet's": (
        REMOVING,
        LiveState(live_workload(OTHER_FLEET)),
        WriteHistory(),
        expected_report("Absent", "not ours"),
    ),
    "removing, object from before its cluster joined": (
        replace(REMOVING, joined_at=V),
        LiveState(live_workload(version=OLDER), {CONFIG: live_config_map()}),
        WriteHistory(),
        expected_report("Absent", "left from before the cluster joined"),
    ),
    "removing needs no declaration": (
        replace(REMOVING, declaration=None, lacking="it"),
        LiveState(),
        WriteHistory(),
        ("Absent", ""),
    ),
    # What is known does not allow it yet, or ever.
    "declaration not read": (replace(PLAIN, lacking="the declaration"), LiveState(), WriteHistory(), HOLD),
    "kind not carried out": (
        replace(PLAIN, declaration=replace(DECLARED, kind="CronJob")),
        LiveState(),
        WriteHistory(),
        expected_report("Refused", "StatefulSet"),
    ),
    "dependency kind not carried out": (
        replace(WITH_CONFIG, dependencies=(replace(CONFIG_DECLARED, kind="Ingress"),)),
        LiveState(),
        WriteHistory(),
        expected_report("Refused", "Ingress shop/web-config"),
    ),
    "dependency elsewhere": (
        replace(WITH_CONFIG, dependencies=(replace(CONFIG_DECLARED, namespace="other"),)),
        LiveState(),
        WriteHistory(),
        expected_report("Refused", "expected the workload's namespace shop"),
    ),
    "manifest unreadable": (
        replace(PLAIN, declaration=replace(DECLARED, manifest=b"{")),
        LiveState(looked=FOUND),
        WriteHistory(),
        expected_report("Refused", "not JSON"),
    ),
    # The object itself forbids it.
    "no object, a higher version was seen": (PLAIN, LiveState(looked=FOUND), WriteHistory(highest=NEWER), HOLD),
    "object without labels": (
        PLAIN,
        LiveState(live_workload(NOT_OURS)),
        WriteHistory(),
        expected_report("NotOwned", "Deployment web"),
    ),
    "object of another fleet": (
        PLAIN,
        LiveState(live_workload(OTHER_FLEET)),
        WriteHistory(),
        expected_report("NotOwned", "fleet f2"),
    ),
    "object of another workload": (
        PLAIN,
        LiveState(live_workload(OTHER_WORKLOAD)),
        WriteHistory(),
        expected_report("NotOwned", "workload api"),
    ),
    "object newer": (PLAIN, LiveState(live_workload(version=NEWER, replicas=9)), WriteHistory(), HOLD),
    "object being deleted": (PLAIN, LiveState(live_workload(DELETING, replicas=9)), WriteHistory(), HOLD),
    "object from before its cluster joined": (
        replace(PLAIN, joined_at=V),
        LiveState(live_workload(version=OLDER), looked=FOUND),
        WriteHistory(),
        expected_report("Orphaned", "left from before the cluster joined"),
    ),
    "object from before its cluster joined, with a config": (
        replace(WITH_CONFIG, joined_at=V),
        LiveState(live_workload(version=OLDER), {CONFIG: live_config_map(OURS, (2, "x"))}, looked=FOUND),
        WriteHistory(),
        expected_report("Orphaned", "left from before the cluster joined"),
    ),
    "object since its cluster joined": (
        replace(PLAIN, joined_at=OLDER),
        LiveState(live_workload()),
        WriteHistory(),
        NOTHING,
    ),
    "version unreadable in a cluster that joined": (
        replace(PLAIN, joined_at=OLDER),
        LiveState(live_workload(version=NO_GENERATION), looked=FOUND),
        WriteHistory(),
        APPLY,
    ),
    # Dependencies.
    "dependency not ours": (
        WITH_CONFIG,
        LiveState(None, {CONFIG: live_config_map(NOT_OURS)}),
        WriteHistory(),
        ("NotOwned", "web-config"),
    ),
    "dependency of another workload": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(OTHER_WORKLOAD)}),
        WriteHistory(),
        expected_report("NotOwned", "ConfigMap web-config exists and belongs to workload api"),
    ),
    "dependency being deleted": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(DELETING)}),
        WriteHistory(),
        HOLD,
    ),
    "dependency missing, namespace unknown": (WITH_CONFIG, LiveState(), WriteHistory(), Look(frozenset({NAMESPACE}))),
    "dependency missing, namespace missing": (
        WITH_CONFIG,
        LiveState(looked={NAMESPACE: False}),
        WriteHistory(),
        EnsureNamespace("shop"),
    ),
    "dependency missing": (WITH_CONFIG, LiveState(looked=FOUND), WriteHistory(), (ApplyDependency, "")),
    "dependency older": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(OURS, (2, "x"))}),
        WriteHistory(),
        (ApplyDependency, "100"),
    ),
    "dependency of another text": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(OURS, (3, "x"))}),
        WriteHistory(),
        (ApplyDependency, "100"),
    ),
    "dependency newer": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(OURS, (4, "x"))}),
        WriteHistory(),
        NOTHING,
    ),
    "dependency no longer listed": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(), OLD_CONFIG: live_config_map()}),
        WriteHistory(),
        DeleteDependency(OLD_CONFIG, "u1", "100"),
    ),
    "dependency no longer listed, not ours": (
        WITH_CONFIG,
        LiveState(live_workload(), {CONFIG: live_config_map(), OLD_CONFIG: live_config_map(NOT_OURS)}),
        WriteHistory(),
        NOTHING,
    ),
    "dependency no longer listed, object first": (
        WITH_CONFIG,
        LiveState(
            live_workload(version=OLDER), {CONFIG: live_config_map(), OLD_CONFIG: live_config_map()}, looked=FOUND
        ),
        WriteHistory(),
        APPLY,
    ),
    # The namespace and what the template refers to.
    "no object, namespace unknown": (PLAIN, LiveState(), WriteHistory(), Look(frozenset({NAMESPACE}))),
    "no object, namespace missing": (
        PLAIN,
        LiveState(looked={NAMESPACE: False}),
        WriteHistory(),
        EnsureNamespace("shop"),
    ),
    "no object, references unknown": (
        PLAIN,
        LiveState(looked={NAMESPACE: True}),
        WriteHistory(),
        Look(frozenset({SECRET})),
    ),
    "no object, reference missing": (
        PLAIN,
        LiveState(looked={NAMESPACE: True, SECRET: False}),
        WriteHistory(),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "older, template unknown": (
        PLAIN,
        LiveState(live_workload(version=OLDER)),
        WriteHistory(),
        Look(frozenset({SECRET})),
    ),
    "older, new reference missing": (
        PLAIN,
        LiveState(live_workload(version=OLDER), looked={SECRET: False}),
        WriteHistory(),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "older, new reference missing, fewer are wanted": (
        PLAIN,
        LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False}),
        WriteHistory(),
        ScaleDown(FEWER, "100", corrects=False),
    ),
    "older, new references unknown, fewer are wanted": (
        PLAIN,
        LiveState(live_workload(version=OLDER, replicas=6)),
        WriteHistory(),
        Look(frozenset({SECRET})),
    ),
    "older, new reference missing, more are wanted": (
        PLAIN,
        LiveState(live_workload(version=OLDER, replicas=2), looked={SECRET: False}),
        WriteHistory(),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "older, the others wait for what is missing, more run": (
        replace(PLAIN, part=replace(NONE_FOR_WANT, replicas=4)),
        LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False}),
        WriteHistory(),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "older, new reference missing, somebody scaled up after us": (
        PLAIN,
        LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False}),
        WriteHistory(V, right=4),
        ScaleDown(FEWER, "100", corrects=True),
    ),
    "older, new reference missing, somebody scales up again and again": (
        PLAIN,
        LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False}),
        WriteHistory(V, corrections=(0.0, 1.0, 2.0), right=4),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "older, the same template, its number alone changes": (
        PLAIN,
        LiveState(written_workload(OLDER, 2)),
        WriteHistory(),
        ALONE_ASKED,
    ),
    "older without pods, the same template": (
        PLAIN,
        LiveState(written_workload(OLDER, 0)),
        WriteHistory(),
        Look(frozenset({SECRET})),
    ),
    "no replicas, no references needed": (
        replace(PLAIN, part=replace(PART, replicas=0)),
        LiveState(live_workload(version=OLDER)),
        WriteHistory(),
        APPLY,
    ),
    "no replicas for want of something, references unknown": (
        replace(PLAIN, part=NONE_FOR_WANT),
        LiveState(looked={NAMESPACE: True}),
        WriteHistory(),
        Look(frozenset({SECRET})),
    ),
    "no replicas for want of something that is still missing": (
        replace(PLAIN, part=NONE_FOR_WANT),
        LiveState(looked={NAMESPACE: True, SECRET: False}),
        WriteHistory(),
        expected_report("DependencyMissing", "Secret shop/web-key"),
    ),
    "no replicas for want of something that is there now": (
        replace(PLAIN, part=NONE_FOR_WANT),
        LiveState(looked={NAMESPACE: True, SECRET: True}),
        WriteHistory(),
        "create",
    ),
    # A new template whose turn has not come here.
    "earlier template, dependency older": (
        EARLIER,
        LiveState(live_workload(), {CONFIG: live_config_map(OURS, (2, "x"))}),
        WriteHistory(),
        NOTHING,
    ),
    "earlier template, dependency missing": (
        EARLIER,
        LiveState(live_workload(), looked=FOUND),
        WriteHistory(),
        (ApplyDependency, ""),
    ),
    "earlier template, dependency no longer listed": (
        EARLIER,
        LiveState(live_workload(), {CONFIG: live_config_map(), OLD_CONFIG: live_config_map()}),
        WriteHistory(),
        NOTHING,
    ),
    "earlier template, object scaled": (
        EARLIER,
        LiveState(live_workload(replicas=9), {CONFIG: live_config_map()}),
        WriteHistory(),
        CORRECT,
    ),
    # The object.
    "no object": (PLAIN, LiveState(looked=FOUND), WriteHistory(), CREATE),
    "no object, seen before": (PLAIN, LiveState(looked=FOUND), WriteHistory(V, written=True, highest=V), CREATE),
    "no object, created too often": (
        PLAIN,
        LiveState(looked=FOUND),
        WriteHistory(V, creations=tuple(float(second) for second in range(10))),
        HOLD,
    ),
    "right": (PLAIN, RIGHT, WriteHistory(), NOTHING),
    "older": (PLAIN, LiveState(live_workload(version=OLDER), looked=FOUND), WriteHistory(), APPLY),
    "older, same replicas": (
        PLAIN,
        LiveState(live_workload(version=OLDER), looked=FOUND),
        WriteHistory(OLDER, written=True),
        APPLY,
    ),
    "version unreadable": (PLAIN, LiveState(live_workload(version=NO_GENERATION), looked=FOUND), WriteHistory(), APPLY),
    "somebody scaled": (PLAIN, LiveState(live_workload(replicas=9)), WriteHistory(), CORRECT),
    "somebody scaled to none": (PLAIN, LiveState(live_workload(replicas=0)), WriteHistory(), CORRECT),
    "somebody took the version off": (
        PLAIN,
        LiveState(live_workload(version=NO_GENERATION)),
        WriteHistory(V, written=True),
        CORRECT,
    ),
    "somebody scaled too often": (
        PLAIN,
        LiveState(live_workload(replicas=9)),
        TIRED,
        expected_report("ReplicasContested", "3 times"),
    ),
    "took the version off too often": (
        PLAIN,
        LiveState(live_workload(version=OLDER)),
        TIRED,
        ("ReplicasContested", "3 times"),
    ),
    "put right too often, and right": (PLAIN, RIGHT, TIRED, NOTHING),
    "scaled too often at an older version": (
        PLAIN,
        LiveState(live_workload(replicas=9)),
        replace(TIRED, version=OLDER),
        expected_report("ReplicasContested", "3 times"),
    ),
    "older, and contested": (
        PLAIN,
        LiveState(written_workload(OLDER, 9)),
        FOUGHT,
        expected_report("ReplicasContested", "3 times"),
    ),
    "older, not contested any more": (PLAIN, LiveState(written_workload(OLDER, 2), looked=FOUND), FOUGHT, ALONE_ASKED),
    "older, the contested number is asked for": (
        PLAIN,
        LiveState(written_workload(OLDER, 4), looked=FOUND),
        FOUGHT,
        ALONE_ASKED,
    ),
    "older, contested, another template": (
        PLAIN,
        LiveState(written_workload(OLDER, 9, "x"), looked=FOUND),
        FOUGHT,
        APPLY,
    ),
    "older, of the part's manifest": (
        PLAIN,
        LiveState(written_workload(OLDER, 2), looked=FOUND),
        WriteHistory(),
        ALONE_ASKED,
    ),
    "older, of another manifest": (
        PLAIN,
        LiveState(written_workload(OLDER, 2, "x"), looked=FOUND),
        WriteHistory(),
        APPLY,
    ),
    "somebody scaled, of the part's manifest": (
        PLAIN,
        LiveState(written_workload(replicas=9)),
        WriteHistory(),
        PatchReplicas(ALONE, "100", corrects=True),
    ),
    "somebody changed its spec": (
        PLAIN,
        LiveState(written_workload()),
        WriteHistory(V, compared=6),
        ReadAfresh("Deployment"),
    ),
    "changed spec that was read": (
        PLAIN,
        LiveState(written_workload(), read=True),
        WriteHistory(V, compared=6),
        NOTHING,
    ),
    "its spec is not known to have changed": (
        PLAIN,
        LiveState(written_workload()),
        WriteHistory(V, compared=7),
        NOTHING,
    ),
    "no replicas": (
        replace(PLAIN, part=replace(PART, replicas=0)),
        LiveState(live_workload(replicas=0)),
        WriteHistory(),
        NOTHING,
    ),
}


@pytest.mark.parametrize(("wanted", "live", "history", "expected"), ROWS.values(), ids=ROWS.keys())
def test_state_table(wanted: WantedState, live: LiveState, history: WriteHistory, expected: object) -> None:
    action = next_action(wanted, live, history, 10.0, RULES)
    assert is_expected_action(action, expected), action


def is_expected_action(action: Action, expected: object) -> bool:
    match expected:
        case "hold":
            return isinstance(action, Hold)
        case "create":
            return isinstance(action, Create)
        case "apply" | "apply that corrects":
            return isinstance(action, Apply) and action.corrects == (expected == CORRECT)
        case (str(state), str(part)):
            return isinstance(action, Report) and action.state == state and part in action.message
        case (kind, str(resource_version)) if kind is ApplyDependency:
            return isinstance(action, ApplyDependency) and action.resource_version == resource_version
        case _:
            return action == expected


def test_settings_may_forbid_namespaces() -> None:
    rules = replace(RULES, create_namespaces=False)
    action = next_action(PLAIN, LiveState(looked={NAMESPACE: False}), WriteHistory(), 0.0, rules)
    text = "missing: Namespace shop; the settings say that none is created"
    assert action == Report("DependencyMissing", text, missing=(ObjectReference("Namespace", "", "shop"),))


def test_corrections_are_forgotten_after_the_window() -> None:
    action = next_action(PLAIN, LiveState(live_workload(replicas=9)), TIRED, 601.0, RULES)
    assert isinstance(action, Apply)


def test_creations_wait_until_the_oldest_leaves_the_window() -> None:
    history = WriteHistory(V, creations=tuple(float(second) for second in range(10)))
    action = next_action(PLAIN, LiveState(looked=FOUND), history, 100.0, RULES)
    assert isinstance(action, Hold)
    assert action.seconds == 500.0
    assert isinstance(next_action(PLAIN, LiveState(looked=FOUND), history, 600.0, RULES), Create)


def test_a_rival_s_replicas_are_put_right_three_times_in_a_window_whatever_the_versions() -> None:
    """A placement each 15 s, and somebody who writes another number after each of ours."""
    history, writes, corrections = WriteHistory(), 0, []
    for sequence in range(80):
        now, version = 15.0 * sequence, Generation(6, sequence)
        part = replace(PART, version=version, replicas=4 + sequence % 2)
        wanted, there = replace(PLAIN, part=part), LiveState(written_workload(Generation(6, 0), 10), looked=FOUND)
        for _ in range(6):
            action = next_action(wanted, there, history, now, RULES)
            history = history_after_action(history, wanted, there, action, now, RULES)
            if isinstance(action, Report):
                assert 0 < action.seconds <= 600
                break
            assert isinstance(action, PatchReplicas)
            corrections += [now] if action.corrects else []
            writes, there = writes + 1, LiveState(written_workload(version, 10))
    assert corrections == [0.0, 0.0, 0.0, 600.0, 600.0, 600.0]
    assert writes <= 8


def test_what_was_scaled_down_gets_its_new_template_once_that_lacks_nothing() -> None:
    """The part is not carried out by fewer replicas: no correction is counted, and what is missing is looked for."""
    there = LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False})
    action = next_action(PLAIN, there, WriteHistory(), 10.0, RULES)
    history = history_after_action(WriteHistory(), PLAIN, there, action, 10.0, RULES)
    there = LiveState(live_workload(version=OLDER), looked={SECRET: False})
    assert is_expected_action(
        next_action(PLAIN, there, history, 11.0, RULES), expected_report("DependencyMissing", "Secret shop/web-key")
    )
    there = LiveState(live_workload(version=OLDER), looked={SECRET: True})
    assert is_expected_action(next_action(PLAIN, there, history, 12.0, RULES), APPLY)
    assert (history.written, history.right, history.corrections) == (False, 4, ())


def test_somebody_s_replicas_are_put_right_three_times_in_a_window_also_while_a_template_waits() -> None:
    history, corrections = WriteHistory(), []
    there = LiveState(live_workload(version=OLDER, replicas=6), looked={SECRET: False})
    for second in range(0, 900, 15):
        action = next_action(PLAIN, there, history, float(second), RULES)
        history = history_after_action(history, PLAIN, there, action, float(second), RULES)
        corrections += [second] if isinstance(action, ScaleDown) and action.corrects else []
    assert corrections == [15, 30, 45, 615, 630, 645]


def test_a_new_owner_leaves_what_was_contested() -> None:
    status = WorkloadObserved("shop", "web", "own-1", 7, 1, V, "ReplicasContested", "", 9, 9, 9, 9, 9)
    assert isinstance(
        next_action(PLAIN, LiveState(live_workload(replicas=9)), history_from_status(status, 0.0, RULES), 599.0, RULES),
        Report,
    )
    assert history_from_status(None, 0.0, RULES) == WriteHistory()


def test_the_first_field_that_somebody_changed_is_known_until_it_is_right_again() -> None:
    """Amounts may be written otherwise, and what we did not declare is others' to set."""
    live = json.loads(json.dumps(MANIFEST["spec"])) | {"strategy": {"type": "RollingUpdate"}}
    changed = json.loads(json.dumps(live))
    changed["template"]["spec"]["containers"][0]["image"] = "hotfix:1"
    history = history_after_action(
        WriteHistory(), PLAIN, LiveState(written_workload(), spec=changed), NOTHING, 0.0, RULES
    )
    assert (history.changed, history.compared) == ("spec.template.spec.containers[0].image", 7)
    assert (
        history_after_action(history, PLAIN, LiveState(written_workload()), NOTHING, 0.0, RULES).changed
        == history.changed
    )
    assert (
        history_after_action(history, PLAIN, LiveState(written_workload(), spec=live), NOTHING, 0.0, RULES).changed
        == ""
    )
    assert (
        history_after_action(
            history, PLAIN, LiveState(written_workload(manifest="x"), spec=changed), NOTHING, 0.0, RULES
        ).changed
        == ""
    )


def test_what_is_written() -> None:
    """Marks on the object's own metadata, that cluster's replicas, and nothing of ours in the template."""
    action = next_action(PLAIN, LiveState(looked=FOUND), WriteHistory(), 0.0, RULES)
    assert isinstance(action, Create)
    assert action.manifest["metadata"] == {
        "name": "web",
        "namespace": "shop",
        "labels": {"spillway.io/fleet": "f1", "spillway.io/workload": "web"},
        "annotations": {"spillway.io/placement": "5.2", "spillway.io/manifest": WRITTEN},
    }
    assert action.manifest["spec"] == {"replicas": 4, **MANIFEST["spec"]}  # type: ignore[dict-item]


@pytest.mark.parametrize(("number", "annotated"), [(1, False), (2, True), (0, True)])
def test_the_template_of_the_part_is_written(number: int, annotated: bool) -> None:
    wanted = replace(EARLIER, part=replace(PART, template_generation=number))
    there = LiveState(live_workload(version=OLDER), {CONFIG: live_config_map()}, looked=FOUND)
    action = next_action(wanted, there, WriteHistory(), 0.0, RULES)
    assert isinstance(action, Apply)
    assert ("turn" in action.manifest["metadata"]["annotations"]) == annotated


def test_a_change_bears_the_uid_that_was_seen() -> None:
    action = next_action(PLAIN, LiveState(live_workload(version=OLDER), looked=FOUND), WriteHistory(), 0.0, RULES)
    assert isinstance(action, Apply)
    assert (action.manifest["metadata"]["uid"], action.resource_version) == ("u1", "100")


def test_highest_counts_only_our_own_object() -> None:
    foreign = LiveState(live_workload(NOT_OURS, NEWER))
    assert history_after_action(WriteHistory(), PLAIN, foreign, NOTHING, 0.0, RULES).highest == NO_GENERATION
    assert (
        history_after_action(
            WriteHistory(), PLAIN, LiveState(live_workload(version=NEWER)), NOTHING, 0.0, RULES
        ).highest
        == NEWER
    )


def test_a_new_owner_knows_from_the_log_that_a_job_was_over() -> None:
    """From how the object was, and from what was said once it was gone; the next Job of the name begins anew."""
    over, suspended = (StatusDetails(job=JobEnd(condition, 4)) for condition in ("Complete", "Suspended"))
    said = WorkloadObserved("shop", "web", "own-1", 1, 1, V, "Present", "a text", 2, 0, 0, 0, 0, details=over)
    wanted, rules = PLAIN, RULES
    first = next_action(wanted, LiveState(), history_from_status(said, 0.0, RULES), 0.0, rules)
    assert isinstance(first, Report)
    ended = observed_status(wanted.target, None, AttemptOutcome(V, first.state, first.message, job=first.job))
    assert next_action(wanted, LiveState(), history_from_status(ended, 0.0, RULES), 0.0, rules) == first
    assert (first.state, first.message) == ("Ended", f"Complete: 4 succeeded{NOT_RUN_AGAIN}")
    goes_on = history_from_status(replace(said, details=suspended), 0.0, RULES)
    assert not isinstance(next_action(wanted, LiveState(), goes_on, 0.0, rules), Report)
    removed = history_after_action(
        history_from_status(said, 0.0, RULES), REMOVING, LiveState(), Report("Absent", ""), 0.0, rules
    )
    assert not isinstance(next_action(wanted, LiveState(), removed, 0.0, rules), Report)


@pytest.mark.parametrize(
    ("finalizers", "says"),
    [
        ((), "is being deleted"),
        (("example.com/keep",), "is being deleted, and kept by its finalizers: example.com/keep"),
        (("a/1", "b/2", "c/3", "d/4"), "kept by its finalizers: a/1, b/2, c/3"),
        (("x" * 900,), "kept by its finalizers: " + "x" * 100),
    ],
)
def test_what_keeps_an_object_that_is_deleted_is_named(finalizers: tuple[str, ...], says: str) -> None:
    going = replace(DELETING, finalizers=finalizers)
    for wanted, live, what in (
        (PLAIN, LiveState(live_workload(going)), "the object"),
        (REMOVING, LiveState(live_workload(going)), "the object"),
        (REMOVING, LiveState(None, {CONFIG: live_config_map(going)}), str(CONFIG)),
    ):
        action = next_action(wanted, live, WriteHistory(), 10.0, RULES)
        assert isinstance(action, Hold)
        assert action.reason.startswith(what)
        assert action.reason.endswith(says)


OLDER = Generation(5, 1)
ATTEMPTS = (
    # outcome of the last attempt, errors in a row, asked by the log; and whether an attempt at V begins now
    pytest.param(None, 0, False, True, id="nothing was tried"),
    pytest.param(AttemptOutcome(V, "Refused", "quota"), 0, False, False, id="refused: its pause is waited for"),
    pytest.param(AttemptOutcome(V, "Refused", "quota"), 0, True, True, id="refused, and the log was read"),
    pytest.param(AttemptOutcome(V, "DependencyMissing", ""), 0, False, False, id="an object is missing"),
    pytest.param(AttemptOutcome(V, "ReplicasContested", ""), 0, False, False, id="contested"),
    pytest.param(AttemptOutcome(OLDER, "Refused", "quota"), 0, False, True, id="refused at an earlier version"),
    pytest.param(AttemptOutcome(V, "Absent", ""), 0, False, True, id="settled: absent, and there is work again"),
    pytest.param(AttemptOutcome(V, "Disowned", ""), 0, False, True, id="settled: disowned, and there is work again"),
    pytest.param(AttemptOutcome(V, "Ended", ""), 0, False, True, id="settled: ended, and there is work again"),
    pytest.param(None, 1, False, False, id="an unexpected error: its pause is waited for"),
    pytest.param(None, 1, True, True, id="an unexpected error, and the log was read"),
    pytest.param(AttemptOutcome(V, "Absent", ""), 2, False, False, id="settled, and then unexpected errors"),
)


@pytest.mark.parametrize(("outcome", "errors", "asked", "expected"), ATTEMPTS)
def test_failed_work_waits_for_its_pause(
    outcome: AttemptOutcome | None, errors: int, asked: bool, expected: bool
) -> None:
    assert is_attempt_needed(outcome, V, errors, asked=asked) == expected
