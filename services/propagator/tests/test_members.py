"""What only real control planes can say: the propagator's reads and writes as Kubernetes answers them."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from propagator.cluster.cluster_objects import ClusterObjects
from propagator.cluster.namespaces import ClusterNamespaces
from propagator.core.actions import Apply, Nothing, PropagationRules, Report
from propagator.core.desired import PartTarget, WantedState
from propagator.core.live import LABEL_FLEET, DependencyReference, LiveState
from propagator.core.reconcile import WriteHistory, history_after_action, next_action
from propagator.settings import PropagatorSettings
from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    SERVICES,
    ClusterApi,
    ClusterApiSettings,
    Conflict,
    HttpTransport,
)
from spillway.clusters.credentials import Credentials, load_endpoint
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.model import Generation, ObjectReference, Part, Policy

pytestmark = pytest.mark.kube
RULES = PropagationRules("f1")


@pytest.fixture
async def api(kube_members: dict[str, Path]) -> AsyncIterator[ClusterApi]:
    path, settings = kube_members["own-1"], ClusterApiSettings()
    transport = HttpTransport(Credentials(partial(load_endpoint, path.parent, path.stem)), "own-1", settings)
    opened = ClusterApi(transport, "own-1", settings)
    yield opened
    await opened.close()


def wanted_state_of(
    name: str, sequence: int, replicas: int, env: tuple[str, ...] = (), *, port: int = 80, removing: bool = False
) -> WantedState:
    container = {"name": "main", "image": "app", "env": [{"name": one, "value": "1"} for one in env]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    namespace = f"ns-{name}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(sequence)}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": {"app": name},
            "ports": [{"port": port, "name": "http"}],
            "clusterIP": "10.1.2.3",
        },
    }
    dependencies = tuple(
        DependencyDeclared(one["kind"], namespace, name, f"{namespace}/{name}", sequence, json.dumps(one).encode())  # type: ignore[arg-type]
        for one in (config, service)
    )
    declaration = WorkloadDeclared(
        namespace=namespace,
        name=name,
        kind="Deployment",
        generation=sequence,
        template_generation=sequence,
        manifest=json.dumps(manifest).encode(),
        replicas=replicas,
        policy=Policy((), (), "Wait"),
        dependencies=tuple(ObjectReference(one.kind, namespace, name) for one in dependencies),
        rolling_from=(),
        answered=(),
        deleting=False,
    )
    part = Part("own-1", Generation(1, sequence), replicas, 0, replicas, removing)
    return WantedState(PartTarget("own-1", namespace, name), part, declaration, dependencies, "")


async def act_until_done(api: ClusterApi, wanted: WantedState) -> tuple[list[str], LiveState]:
    """The actions until nothing is left to do, and what is there then."""
    clock = asyncio.get_running_loop().time
    cluster_objects = ClusterObjects(
        api, "f1", clock, lambda: None, ClusterNamespaces(clock, 1.0), PropagatorSettings()
    )
    both = (DependencyReference("ConfigMap", wanted.target.name), DependencyReference("Service", wanted.target.name))
    actions, history, live = [], WriteHistory(), await cluster_objects.read_live_state(wanted.target, both)
    for _ in range(30):
        action = next_action(wanted, live, history, 0.0, RULES)
        actions.append(type(action).__name__)
        if isinstance(action, Nothing | Report):
            return actions, live
        assert not hasattr(action, "reason"), action
        try:
            live = await cluster_objects.carry_out_action(action, wanted.target, live)
            history = history_after_action(history, wanted, live, action, 0.0, RULES)
        except Conflict:  # The controllers write too.
            live = await cluster_objects.read_live_state(wanted.target, both)
    raise AssertionError(actions)


async def test_create_change_delete(api: ClusterApi) -> None:
    actions, _ = await act_until_done(api, wanted_state_of("bread", 1, 2))
    made = ["Look", "EnsureNamespace", "ApplyDependency", "ApplyDependency", "Create", "Nothing"]
    assert actions == made
    actions, live = await act_until_done(api, wanted_state_of("bread", 2, 3))
    assert actions[-2:] == ["PatchReplicas", "Nothing"]
    assert live.workload is not None
    assert (live.workload.version, live.workload.spec_replicas) == (Generation(1, 2), 3)
    service = await api.get(SERVICES, "ns-bread", "bread")
    assert service is not None
    assert [port["port"] for port in service["spec"]["ports"]] == [80]
    assert service["spec"]["clusterIP"] != "10.1.2.3"
    config = await api.get(CONFIG_MAPS, "ns-bread", "bread")
    assert config is not None
    assert config["data"] == {"n": "2"}
    actions, live = await act_until_done(api, wanted_state_of("bread", 3, 0, removing=True))
    assert actions[-1] == "Report"
    assert live.workload is None
    assert live.dependencies == {}


async def test_a_service_gets_another_port(api: ClusterApi) -> None:
    await act_until_done(api, wanted_state_of("roll", 1, 0))
    await act_until_done(api, wanted_state_of("roll", 2, 0, port=81))
    service = await api.get(SERVICES, "ns-roll", "roll")
    assert service is not None
    assert [one["port"] for one in service["spec"]["ports"]] == [81]


async def test_what_a_newer_template_leaves_out_is_gone(api: ClusterApi) -> None:
    await act_until_done(api, wanted_state_of("cake", 1, 0, ("A", "B")))
    await act_until_done(api, wanted_state_of("cake", 2, 0, ("B",)))
    found = await api.get(DEPLOYMENTS, "ns-cake", "cake")
    assert found is not None
    assert [one["name"] for one in found["spec"]["template"]["spec"]["containers"][0]["env"]] == ["B"]


async def test_replicas_alone_leave_what_others_set_and_a_newer_template_owns_its_fields_still(
    api: ClusterApi,
) -> None:
    await act_until_done(api, wanted_state_of("tea", 1, 0, ("A", "B")))
    container = {"name": "main", "image": "hotfix:1", "env": [{"name": one, "value": "1"} for one in ("A", "B")]}
    template = {"metadata": {"annotations": {"restartedAt": "now"}}, "spec": {"containers": [container]}}
    await api.patch(DEPLOYMENTS, "ns-tea", "tea", {"spec": {"template": template}}, resource_version="")
    actions, live = await act_until_done(api, wanted_state_of("tea", 2, 1, ("A", "B")))
    assert actions[-2:] == ["PatchReplicas", "Nothing"]
    assert live.spec is not None
    assert live.spec["template"]["metadata"]["annotations"] == {"restartedAt": "now"}
    assert live.spec["template"]["spec"]["containers"][0]["image"] == "hotfix:1"
    actions, live = await act_until_done(api, wanted_state_of("tea", 3, 0, ("B",)))
    assert actions[-2:] == ["Apply", "Nothing"]
    assert live.spec is not None
    made = live.spec["template"]["spec"]["containers"][0]
    assert (made["image"], [one["name"] for one in made["env"]]) == ("app", ["B"])
    assert live.workload is not None
    assert live.workload.spec_replicas == 0


async def test_a_change_never_makes_anew_what_was_deleted(api: ClusterApi) -> None:
    first, second = wanted_state_of("pie", 1, 0), wanted_state_of("pie", 2, 0, ("A",))
    _, live = await act_until_done(api, first)
    assert live.workload is not None
    actual = await api.get(DEPLOYMENTS, "ns-pie", "pie")
    assert actual is not None
    await api.delete(DEPLOYMENTS, "ns-pie", "pie", uid=live.workload.marks.uid, resource_version="")
    older = LiveState(live.workload)
    action = next_action(
        WantedState(second.target, second.part, second.declaration, (), ""), older, WriteHistory(), 0.0, RULES
    )
    assert isinstance(action, Apply)
    with pytest.raises(Conflict):
        await api.apply(DEPLOYMENTS, action.manifest, resource_version=action.resource_version, force=True)
    assert await api.get(DEPLOYMENTS, "ns-pie", "pie") is None


async def test_an_object_that_loses_our_label_leaves_the_watch(api: ClusterApi) -> None:
    await act_until_done(api, wanted_state_of("tart", 1, 0))
    seen: list[Any] = []

    async def collect_changes() -> None:
        async for batch in api.follow_objects(DEPLOYMENTS, label_selector=f"{LABEL_FLEET}=f1"):
            seen.extend(type(change).__name__ for change in batch if "tart" in str(change))

    task = asyncio.create_task(collect_changes())
    await asyncio.sleep(1)
    found = await api.get(DEPLOYMENTS, "ns-tart", "tart")
    assert found is not None
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tart", "namespace": "ns-tart", "labels": {LABEL_FLEET: "other"}},
        "spec": found["spec"],
    }
    await api.apply(DEPLOYMENTS, manifest, resource_version="", force=True)
    await asyncio.sleep(1)
    task.cancel()
    assert seen[0] == "ListedObjects"
    assert seen[-1] == "ObjectRemoved"
