"""Whatever the order of placements, reads, conflicts, foreign writes and crashes: safe at each step, right in the end.

Two propagators act on one member, each on what it knows and saw last, which may be old: the second is the frozen owner
that woke. Nothing here but next_action keeps them from harm; the member only checks preconditions, as an API server.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from propagator.core.actions import (
    Apply,
    ApplyDependency,
    Create,
    Delete,
    DeleteDependency,
    EnsureNamespace,
    Hold,
    Look,
    Nothing,
    PatchReplicas,
    PropagationRules,
    Report,
    Write,
    is_owned_by_target,
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
from propagator.core.manifests import generation_and_digest_of, manifest_digest
from propagator.core.reconcile import WriteHistory, history_after_action, next_action
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.model import NO_GENERATION, Generation, ObjectReference, Part, Policy

RULES = PropagationRules("f1")
TARGET = PartTarget("own-1", "shop", "web")
CONFIG = DependencyReference("ConfigMap", "web-config")
MANIFEST = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": []}}}}


class Refuted(AssertionError):
    """A sentence about safety that turned out wrong."""


class NotAsSeen(Exception):
    """409."""


def wanted_state_of(version: int, replicas: int, removing: bool, with_config: bool) -> WantedState:
    """The placement of this version; the workload's generation rises with it."""
    manifest = {"kind": "ConfigMap", "metadata": {"name": "web-config"}, "data": {"version": str(version)}}
    config = DependencyDeclared("ConfigMap", "shop", "web-config", "shop/web", version, json.dumps(manifest).encode())
    declaration = WorkloadDeclared(
        namespace="shop",
        name="web",
        kind="Deployment",
        generation=version,
        template_generation=version,
        manifest=json.dumps(MANIFEST | {"metadata": {"name": "web", "labels": {"of": str(version // 3)}}}).encode(),
        replicas=replicas,
        policy=Policy((), (), "Wait"),
        dependencies=(ObjectReference("ConfigMap", "shop", "web-config"),) if with_config else (),
        rolling_from=(),
        answered=(),
        deleting=False,
    )
    part = Part("own-1", Generation(1, version), 0 if removing else replicas, 0, replicas, removing)
    return WantedState(TARGET, part, declaration, (config,) if with_config else (), "")


@dataclass
class Member:
    """An API server's memory of one Deployment and one ConfigMap. counter gives uids and resource versions."""

    workload: LiveWorkload | None = None
    config: LiveDependency | None = None
    counter: int = 0

    def next_id(self) -> str:
        self.counter += 1
        return str(self.counter)

    def live_state(self) -> LiveState:
        return LiveState(self.workload, {} if self.config is None else {CONFIG: self.config})

    def carry_out_write(self, action: Write, wanted: WantedState) -> None:
        """Checks the preconditions as a server does, and what must never happen as we do."""
        match action:
            case Create(manifest):
                if self.workload is not None:
                    raise NotAsSeen
                self.workload = self._workload_from_manifest(manifest, self.next_id())
            case Apply(manifest, resource_version):
                found = self._object_if_as_seen(self.workload, manifest["metadata"]["uid"], resource_version)
                self._check_is_ours(found.marks)
                if found.version > wanted.part.version:
                    raise Refuted(f"{wanted.part.version} was written over {found.version}")
                self.workload = self._workload_from_manifest(manifest, found.marks.uid)
            case PatchReplicas(change, resource_version):
                found = self._object_if_as_seen(
                    self.workload, self.workload.marks.uid if self.workload else "", resource_version
                )
                self._check_is_ours(found.marks)
                if found.version > wanted.part.version:
                    raise Refuted(f"{wanted.part.version} was written over {found.version}")
                if wanted.declaration is None or found.manifest != manifest_digest(wanted.declaration, wanted.part):
                    raise Refuted("replicas alone of an object that has another manifest")
                self.workload = self._patched_workload(found, change)
            case Delete(uid, resource_version):
                found = self._object_if_as_seen(self.workload, uid, resource_version)
                self._check_is_ours(found.marks)
                if found.version > wanted.part.version or not wanted.part.removing:
                    raise Refuted(f"{found.version} was deleted for {wanted.part}")
                self.workload = None
            case ApplyDependency(_, manifest, resource_version):
                self._apply_config_map(manifest, resource_version, wanted)
            case DeleteDependency(_, uid, resource_version):
                config = self._object_if_as_seen(self.config, uid, resource_version)
                self._check_is_ours(config.marks)
                self.config = None
            case EnsureNamespace():
                raise Refuted("the namespace exists")

    def _apply_config_map(self, manifest: dict[str, Any], resource_version: str, wanted: WantedState) -> None:
        declared = generation_and_digest_of(wanted.dependencies[0])
        uid = self.next_id()
        if resource_version:
            found = self._object_if_as_seen(self.config, manifest["metadata"]["uid"], resource_version)
            self._check_is_ours(found.marks)
            if found.declaration[0] > declared[0]:
                raise Refuted(f"declaration {declared} was written over {found.declaration}")
            uid = found.marks.uid
        elif self.config is not None:
            raise NotAsSeen
        self.config = LiveDependency(ObjectMarks(uid, self.next_id(), "f1", "web", False), declared)

    def _workload_from_manifest(self, manifest: dict[str, Any], uid: str) -> LiveWorkload:
        version = parse_version_annotation(manifest["metadata"]["annotations"]["spillway.io/placement"])
        replicas = manifest["spec"]["replicas"]
        marks, digest = (
            ObjectMarks(uid, self.next_id(), "f1", "web", False),
            manifest["metadata"]["annotations"]["spillway.io/manifest"],
        )
        return LiveWorkload(marks, version, replicas, 0, 0, 0, 0, manifest=digest)

    def _patched_workload(self, found: LiveWorkload, change: dict[str, Any]) -> LiveWorkload:
        version = parse_version_annotation(change["metadata"]["annotations"]["spillway.io/placement"])
        marks = replace(found.marks, resource_version=self.next_id())
        return replace(found, marks=marks, version=version, spec_replicas=change["spec"]["replicas"])

    def _object_if_as_seen(self, found: Any, uid: str, resource_version: str) -> Any:
        if found is None or (found.marks.uid, found.marks.resource_version) != (uid, resource_version):
            raise NotAsSeen
        return found

    def _check_is_ours(self, marks: ObjectMarks) -> None:
        if not is_owned_by_target(marks, TARGET, "f1"):
            raise Refuted(f"an object of {marks.fleet or 'nobody'} was touched")

    # ── Others ──

    def change_by_others(self, what: str, replicas: int) -> None:
        nobodys = ObjectMarks(self.next_id(), self.next_id(), "", "", False)
        if self.workload is None:
            if what == "create":
                self.workload = LiveWorkload(nobodys, NO_GENERATION, replicas, 0, 0, 0, 0)
            return
        touched = replace(self.workload.marks, resource_version=self.next_id())
        changed = replace(self.workload, marks=touched)
        match what:
            case "scale":
                self.workload = replace(changed, spec_replicas=replicas)
            case "unmark":
                self.workload = replace(changed, version=NO_GENERATION)
            case "disown":
                self.workload = replace(changed, marks=replace(touched, fleet="f2"))
            case "delete":
                self.workload = None
            case "delete config":
                self.config = None
            case "foreign config":
                self.config = LiveDependency(nobodys, (-1, ""))


@dataclass
class Actor:
    """One propagator. live None: it has to read before it acts again."""

    placement: int = 0
    live: LiveState | None = None
    history: WriteHistory = field(default_factory=WriteHistory)

    def take_step(self, member: Member, placements: list[WantedState], now: float) -> str:
        """One step; returns what came of it."""
        if self.live is None:
            self.live = member.live_state()
            return "read"
        wanted = placements[self.placement]
        action = next_action(wanted, self.live, self.history, now, RULES)
        if isinstance(action, Report | Hold | Nothing):
            self.history = history_after_action(self.history, wanted, self.live, action, now, RULES)
            self.live = None
            return action.state if isinstance(action, Report) else type(action).__name__
        if isinstance(action, Look):
            self.live = self.live.with_lookup_results(dict.fromkeys(action.references, True))
            return "looked"
        try:
            member.carry_out_write(action, wanted)
        except NotAsSeen:
            self.live = None
            return "conflict"
        self.live = replace(member.live_state(), looked=self.live.looked)
        self.history = history_after_action(self.history, wanted, self.live, action, now, RULES)
        return "wrote"


WHO = st.integers(0, 1)
FOREIGN = st.sampled_from(["create", "scale", "unmark", "disown", "delete", "delete config", "foreign config"])
STEPS = st.one_of(
    st.tuples(st.just("act"), st.tuples(WHO, st.integers(1, 7))),
    st.tuples(st.just("act"), st.tuples(WHO, st.integers(1, 7))),
    st.tuples(st.just("learn"), WHO),
    st.tuples(st.just("crash"), WHO),
    st.tuples(st.just("place"), st.tuples(st.integers(0, 3), st.booleans(), st.booleans())),
    st.tuples(st.just("foreign"), st.tuples(FOREIGN, st.integers(0, 5))),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 700.0])),
)


@given(st.lists(STEPS, min_size=8, max_size=40), st.booleans(), st.integers(0, 3))
def test_safe_at_each_step_and_right_in_the_end(steps: list[Any], removing: bool, replicas: int) -> None:
    member, actors, now = Member(), [Actor(), Actor()], 0.0
    placements = [wanted_state_of(1, 2, removing=False, with_config=True)]
    for kind, what in steps:
        match kind:
            case "act":
                for _ in range(what[1]):
                    actors[what[0]].take_step(member, placements, now)
            case "learn":
                actors[what].placement = len(placements) - 1
            case "crash":
                actors[what] = Actor(actors[what].placement)
            case "place":
                placements.append(wanted_state_of(len(placements) + 1, what[0], removing=what[1], with_config=what[2]))
            case "foreign":
                member.change_by_others(*what)
            case "wait":
                now += what

    # Then others leave it alone, and the owner knows the newest placement.
    placements.append(wanted_state_of(len(placements) + 1, replicas, removing=removing, with_config=True))
    owner, last = replace(actors[0], placement=len(placements) - 1, live=None), placements[-1]
    results = [owner.take_step(member, placements, now + 10_000) for _ in range(12)]
    assert_placement_holds(member, last, results)
    before = (member.workload, member.config)
    for _ in range(4):
        owner.take_step(member, placements, now + 10_000)
    assert (member.workload, member.config) == before, "what is right was written again"


def assert_placement_holds(member: Member, wanted: WantedState, results: list[str]) -> None:
    """The placement is true, or what stands in its way is not ours and was left."""
    found, config = member.workload, member.config
    foreign = found is not None and not is_owned_by_target(found.marks, TARGET, "f1")
    foreign_config = config is not None and not is_owned_by_target(config.marks, TARGET, "f1")
    if wanted.part.removing:
        assert found is None or foreign, results
        assert config is None or foreign_config, results
        assert {"Absent"} <= set(results), results
    elif foreign or foreign_config:
        assert "NotOwned" in results, results
    else:
        assert found is not None, results
        assert (found.version, found.spec_replicas) == (wanted.part.version, wanted.part.replicas), results
        assert config is not None, results
        assert config.declaration == generation_and_digest_of(wanted.dependencies[0]), results
        assert "Nothing" in results, results
