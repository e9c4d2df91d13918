"""Fuzzes the answers of a member's API: lists and watches with any content, up to the records made of them."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from propagator.cluster.mirror import ObjectMirror
from snapshot.core.cluster_state import KINDS
from snapshot.core.collection import Collection
from snapshot.core.rules import SnapshotRules
from spillway.addresses import Tombstone
from spillway.clusters import answers
from spillway.clusters.api import ClusterApiSettings, ClusterUnreachable, ListedObjects, ObjectRemoved, ObjectUpserted
from spillway.clusters.errors import Expired
from spillway.clusters.lists import Lists
from spillway.clusters.watch import Reflector
from spillway.dead_letters import outgoing_record
from spillway.kubernetes.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    STATEFULSETS,
    VOLUME_CLAIMS,
    VOLUMES,
    Kind,
    object_decoder,
)
from spillway.kubernetes.pod_metrics import NODE_METRICS, POD_METRICS
from spillway.wire import pack_columns
from spillway_fuzz import samples
from spillway_fuzz.mutation import mutated_bytes, mutated_json
from spillway_fuzz.records import FLEET
from spillway_fuzz.target import Input, Target
from vk_bridge.core.node.usage import measured_amounts
from vk_bridge.core.selection.owner_cache import WATCHED_NODES, WATCHED_PODS, OwnerCache

KIND_OF: Final = {
    "Node": NODES,
    "Pod": PODS,
    "ReplicaSet": REPLICASETS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFULSETS,
    "Job": JOBS,
    "Namespace": NAMESPACES,
    "ResourceQuota": RESOURCE_QUOTAS,
    "PersistentVolumeClaim": VOLUME_CLAIMS,
    "PersistentVolume": VOLUMES,
    "ConfigMap": CONFIG_MAPS,
    "PodMetrics": POD_METRICS,
    "NodeMetrics": NODE_METRICS,
}
SOUND: Final = {
    kind: [json.dumps(one).encode() for one in samples.OBJECTS if KIND_OF[one["kind"]] is kind]
    for kind in KIND_OF.values()
}
LINE_BYTES_MAX: Final = 256 * 1024
EMPTY_LINES_MAX: Final = 100
API: Final = Lists(None, "own-1", ClusterApiSettings(line_bytes_max=LINE_BYTES_MAX), Random(0))  # type: ignore[arg-type]
WORKLOADS: Final = (DEPLOYMENTS, STATEFULSETS, JOBS)
Answer = tuple[str, bytes, bytes]
"""(kind of the objects, a page of a list, the bytes of a watch)."""


def targets() -> list[Target]:
    return [
        Target(
            "a member's nodes and pods",
            lambda chance: _random_api_answer(("Node", "Pod"), chance),
            _collect_objects,
            share=15,
        ),
        Target("a member's workloads", lambda chance: _random_api_answer(_OTHERS, chance), _collect_objects, share=8),
        Target(
            "a member's metrics",
            lambda chance: _random_api_answer(("PodMetrics", "NodeMetrics"), chance),
            _collect_metrics,
            share=15,
        ),
        Target(
            "an owner, to vk-bridge",
            lambda chance: _random_api_answer(("Node", "Pod"), chance),
            _mirror_owner,
            share=15,
        ),
        Target(
            "a member, to propagator",
            lambda chance: _random_api_answer(_PLACED, chance),
            _mirror_placed_objects,
            share=20,
        ),
        Target("a member's refusals", _mutated_refusal, _read_refusal, share=40),
    ]


_PLACED: Final = ("Deployment", "StatefulSet", "Job", "ConfigMap")
_OTHERS: Final = tuple(name for name, kind in KIND_OF.items() if kind in KINDS and kind not in (NODES, PODS))


# ── Answers of the API ──────────────────────────────────────────────────────────────────────────────────────────────


def _random_api_answer(kinds: tuple[str, ...], chance: Random) -> Input:
    kind = chance.choice(kinds)
    objects = [one for one in samples.OBJECTS if one["kind"] == kind]
    page = {"kind": "List", "metadata": {"resourceVersion": "30"}, "items": objects}
    lines = [_mutated_watch_line(chance.choice(objects), chance) for _ in range(chance.randint(0, 3))]
    page_text = mutated_json(page, chance) if chance.random() < 0.5 else json.dumps(page)
    watch = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    return kind, page_text.encode(errors="replace"), mutated_bytes(watch, chance) if chance.random() < 0.1 else watch


def _mutated_watch_line(one: Any, chance: Random) -> str:
    event = {"type": chance.choice(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")), "object": one}
    return mutated_json(event, chance).replace("\n", " ")


def _objects_of_page(kind: Kind, page: bytes) -> tuple[Any, ...]:
    """Returns the objects of a page; empty if the page is refused."""
    try:
        return tuple(API.decode_json(answers.page_decoder(kind), page).items or ())
    except ClusterUnreachable:
        return ()


def _changes_of_watch(kind: Kind, watch: bytes) -> Iterator[Any]:
    """Yields the changes of a watch, up to the point where it is given up."""
    reflector = Reflector(API, kind, {})
    lines = answers.Lines(LINE_BYTES_MAX, EMPTY_LINES_MAX)
    try:
        for chunk in (watch[: len(watch) // 2], watch[len(watch) // 2 :]):
            for line in lines.feed_chunk(chunk):
                yield reflector._parse_change(line)
    except (ClusterUnreachable, Expired, answers.BadLine):
        return


# ── Readers of the answers ──────────────────────────────────────────────────────────────────────────────────────────


def _collect_objects(given: Answer) -> bool:
    """Checks that the snapshot service can write all its records about the answer."""
    name, page, watch = given
    kind, core = KIND_OF[name], Collection("own-1", FLEET, SnapshotRules(), pack_columns)
    for one in KINDS:
        core.replace_objects(one, [API.decode_json(object_decoder(one), text) for text in SOUND[one]], 1.0)
    core.set_scaled_workloads([("shop", "web")])
    core.begin_epoch(5, 1.0)
    core.note_probe_answered(1.0, core.state.nodes.node_count, len(core.state.pods), 1.0)
    said = core.take_due_records(1.5, 1_000)
    found = _objects_of_page(kind, page)
    core.replace_objects(kind, found, 2.0)
    for change in _changes_of_watch(kind, watch):
        if isinstance(change, ObjectUpserted):
            core.upsert_objects(kind, (change.object,), 2.0)
        elif isinstance(change, ObjectRemoved):
            core.remove_object(kind, change.object, 2.0)
    core.note_probe_answered(2.0, core.state.nodes.node_count, len(core.state.pods), 2.0)
    for record in (*said, *core.take_due_records(3.0, 2_000), *core.take_due_records(300.0, 400_000)):
        if not isinstance(record, Tombstone):
            outgoing_record(record)
    return bool(found)


def _collect_metrics(given: Answer) -> bool:
    name, page, _ = given
    found = _objects_of_page(KIND_OF[name], page)
    if name == "NodeMetrics":
        for one in found:
            measured_amounts(one.usage)
        return bool(found)
    core = Collection("own-1", FLEET, SnapshotRules(), pack_columns)
    for one in KINDS:
        core.replace_objects(one, [API.decode_json(object_decoder(one), text) for text in SOUND[one]], 1.0)
    core.set_scaled_workloads([("shop", "web")])
    core.begin_epoch(5, 1.0)
    core.note_probe_answered(1.0, core.state.nodes.node_count, len(core.state.pods), 1.0)
    core.take_due_records(1.5, 1_000)
    core.store_samples("shop", found)
    for record in core.take_due_records(2.0, 2_000):
        if not isinstance(record, Tombstone):
            outgoing_record(record)
    return bool(found)


def _mirror_owner(given: Answer) -> bool:
    name, page, watch = given
    owner_cache = OwnerCache("own-1", FLEET)
    kind = WATCHED_NODES if name == "Node" else WATCHED_PODS
    found = _objects_of_page(kind, page)
    for change in (ListedObjects(found, "1"), *_changes_of_watch(kind, watch)):
        _apply_owner_change(owner_cache, kind is WATCHED_NODES, change)
    owner_cache.idleness.advance_watermark(2.0)
    for node in list(owner_cache.nodes):
        owner_cache.candidate_node(node, None)
        owner_cache.node_use(node, "")
        owner_cache.is_marked(node)
    list(owner_cache.real_pods())
    return bool(found)


def _apply_owner_change(owner_cache: OwnerCache, of_nodes: bool, change: Any) -> None:
    match change:
        case ListedObjects(objects):
            owner_cache.replace_nodes(objects, 1.0) if of_nodes else owner_cache.replace_pods(objects, 1.0)
        case ObjectUpserted(one):
            owner_cache.put_node(one, 1.0) if of_nodes else owner_cache.put_pod(one, 1.0)
        case ObjectRemoved(one):
            owner_cache.drop_node(one.metadata.name) if of_nodes else owner_cache.drop_pod(one, 1.0)


def _mirror_placed_objects(given: Answer) -> bool:
    name, page, watch = given
    kind, mirror = KIND_OF[name], ObjectMirror("own-1")
    found = _objects_of_page(kind, page)
    if kind in WORKLOADS:
        mirror.replace_workloads(name, found)
    else:
        mirror.replace_dependencies(name, found)
    for change in _changes_of_watch(kind, watch):
        match change, kind in WORKLOADS:
            case ObjectUpserted(one), True:
                mirror.upsert_workload(one)
            case ObjectRemoved(one), True:
                mirror.remove_workload(one)
            case ObjectUpserted(one), False:
                mirror.upsert_dependency(name, one)
            case ObjectRemoved(one), False:
                mirror.remove_dependency(name, one)
    for target in mirror.targets_with_objects():
        mirror.newest_workload(target)
        mirror.live_state_of(target, "Deployment")
    return bool(found)


_STATUS: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "message": 'pods is forbidden: User "x" cannot list resource "pods"',
    "code": 403,
    "details": {"causes": [{"field": "metadata.uid", "message": "m"}]},
}


def _mutated_refusal(chance: Random) -> Input:
    body = mutated_json(_STATUS, chance).encode(errors="replace")
    return mutated_bytes(body, chance) if chance.random() < 0.2 else body


def _read_refusal(body: bytes) -> bool:
    """Checks that a refusal of the server always results in a text."""
    found = answers.read_status(body)
    return found.is_about_rights or found.names_another_uid or bool(found.kind)
