"""What is said of the pods of workloads that have a scaling policy."""

import json
from typing import Any

import msgspec
import pytest

from snapshot.core.cluster_state import KINDS
from snapshot.core.collection import Collection, UnwrittenRecord
from snapshot.core.log_book import LogBook
from snapshot.core.rules import SnapshotRules
from spillway.addresses import PODS as PODS_TOPIC
from spillway.addresses import Tombstone, pods_address
from spillway.dead_letters import RECORD_BYTES_MAX
from spillway.events_scaling import (
    ContainerRequests,
    ContainerUsage,
    ObservedPod,
    PodRequests,
    PodsObserved,
)
from spillway.kubernetes.objects import DEPLOYMENTS, PODS, REPLICASETS
from spillway.kubernetes.pod_metrics import PodMetrics
from spillway.wire import encode_event, pack_columns

WEB = ("default", "web")
NEW_YEAR_MS = 1_767_225_600_000
HALF = PodRequests((ContainerRequests("main", (("cpu", 500),)),))


def pod_metrics(name: str, cpu: str = "250m", timestamp: str = "2026-01-01T00:01:00Z") -> PodMetrics:
    text = json.dumps(
        {
            "metadata": {"name": name, "namespace": "default"},
            "timestamp": timestamp,
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": "1Ki"}}],
        }
    )
    return msgspec.json.decode(text, type=PodMetrics)


class Cluster:
    """A collection that is told of pods, and asked what is due."""

    def __init__(self, objects: Any, **rules: Any) -> None:
        self.objects = objects
        self.core = Collection("own-1", "f1", SnapshotRules(**rules), pack_columns)
        self.now = 0.0
        self.offset = 100

    def begin_epoch(self) -> list[Any]:
        """Every list is there and empty, an epoch begins."""
        for kind in KINDS:
            self.core.replace_objects(kind, (), self.now)
        self.core.begin_epoch(7, self.now)
        return self.take_pods_records()

    def deploy_pods(self, *pods: Any) -> None:
        self.core.upsert_objects(DEPLOYMENTS, [self.objects.deployment()], self.now)
        self.core.upsert_objects(REPLICASETS, [self.objects.replicaset("rs1")], self.now)
        self.core.upsert_objects(PODS, pods, self.now)

    def pod(self, name: str, **more: Any) -> Any:
        return self.objects.pod(name, "n1", owner="rs1", **more)

    def take_pods_records(self) -> list[Any]:
        """What is due of pods, acknowledged."""
        records = self.core.take_due_records(self.now, NEW_YEAR_MS)
        self.offset += len(records)
        self.core.note_written_records(records, range(self.offset, self.offset + len(records)))
        return [
            one
            for one in records
            if isinstance(one, PodsObserved) or (isinstance(one, Tombstone) and one.address.topic is PODS_TOPIC)
        ]


@pytest.fixture
def cluster(objects: Any) -> Cluster:
    made = Cluster(objects)
    made.begin_epoch()
    return made


def test_nothing_is_said_of_workloads_without_a_policy(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    assert cluster.take_pods_records() == []
    cluster.core.set_scaled_workloads({("default", "other")})
    assert cluster.take_pods_records() == []


def test_what_was_seen_before_the_policy_is_said_with_it(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1", ready="True"), cluster.pod("p2", phase="Pending"))
    cluster.core.set_scaled_workloads({WEB})
    assert cluster.core.has_record_due(cluster.now)
    pods = (
        ObservedPod("p1", "Running", False, NEW_YEAR_MS, "true", NEW_YEAR_MS + 5_000, 0, 0, 0, ()),
        ObservedPod("p2", "Pending", False, 0, "", 0, 0, 0, 0, ()),
    )
    why = "metrics: not asked for yet"
    assert cluster.take_pods_records() == [PodsObserved(*WEB, "own-1", 7, 1, NEW_YEAR_MS, why, (HALF,), pods)]
    assert not cluster.core.has_record_due(cluster.now)
    assert cluster.take_pods_records() == []


def test_a_sample_is_said_and_no_sample_is_not_zero(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"), cluster.pod("p2"))
    cluster.core.set_scaled_workloads({WEB})
    cluster.take_pods_records()
    cluster.core.store_samples("default", [pod_metrics("p1")])
    (said,) = cluster.take_pods_records()
    usage = (ContainerUsage("main", (("cpu", 250), ("memory", 1_024_000))),)
    assert (said.trouble, said.sequence) == ("", 2)
    assert [(pod.sampled_ms, pod.window_ms, pod.usage) for pod in said.pods] == [
        (NEW_YEAR_MS + 60_000, 15_000, usage),
        (0, 0, ()),
    ]
    cluster.core.drop_samples("default", "metrics: timeout: no answer within 5 s")
    (said,) = cluster.take_pods_records()
    assert said.trouble == "metrics: timeout: no answer within 5 s"
    assert [pod.usage for pod in said.pods] == [(), ()]


def test_the_same_sample_is_not_said_again_and_a_new_one_is(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.store_samples("default", [pod_metrics("p1")])
    assert len(cluster.take_pods_records()) == 1
    cluster.core.store_samples("default", [pod_metrics("p1")])
    assert cluster.take_pods_records() == []
    cluster.core.store_samples("default", [pod_metrics("p1", timestamp="2026-01-01T00:01:15Z")])
    assert len(cluster.take_pods_records()) == 1


def test_samples_of_other_namespaces_change_nothing(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    cluster.take_pods_records()
    cluster.core.store_samples("other", [pod_metrics("p1")])
    assert cluster.take_pods_records() == []
    assert cluster.core.observed.namespaces_to_sample() == ["default"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda one: one.core.upsert_objects(PODS, [one.pod("p1", ready="False")], 0.0), id="readiness"),
        pytest.param(lambda one: one.core.upsert_objects(PODS, [one.pod("p1", terminating=True)], 0.0), id="deleting"),
        pytest.param(lambda one: one.core.upsert_objects(PODS, [one.pod("p1", phase="Failed")], 0.0), id="phase"),
        pytest.param(lambda one: one.core.upsert_objects(PODS, [one.pod("p1", cpu="1")], 0.0), id="requests"),
        pytest.param(lambda one: one.core.upsert_objects(PODS, [one.pod("p9")], 0.0), id="one more"),
        pytest.param(lambda one: one.core.remove_object(PODS, one.pod("p1"), 0.0), id="one less"),
        pytest.param(lambda one: one.core.end_paged_list(PODS, frozenset(), 0.0), id="a list without it"),
    ],
)
def test_a_change_of_a_pod_is_said_once(cluster: Cluster, change: Any) -> None:
    cluster.deploy_pods(cluster.pod("p1"), cluster.pod("p2"))
    cluster.core.set_scaled_workloads({WEB})
    cluster.take_pods_records()
    change(cluster)
    assert cluster.core.has_record_due(cluster.now)
    assert len(cluster.take_pods_records()) == 1
    assert cluster.take_pods_records() == []


def test_pods_seen_before_their_replicaset_are_the_workloads_once_it_is_seen(cluster: Cluster) -> None:
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.upsert_objects(PODS, [cluster.pod("p1")], 0.0)
    cluster.core.upsert_objects(DEPLOYMENTS, [cluster.objects.deployment()], 0.0)
    assert [len(said.pods) for said in cluster.take_pods_records()] == [0]
    cluster.core.upsert_objects(REPLICASETS, [cluster.objects.replicaset("rs1")], 0.0)
    assert [len(said.pods) for said in cluster.take_pods_records()] == [1]


def test_the_key_goes_with_the_policy_and_with_the_workload(cluster: Cluster) -> None:
    gone = [Tombstone(pods_address(*WEB, "own-1"))]
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    assert len(cluster.take_pods_records()) == 1
    cluster.core.set_scaled_workloads(set())
    assert cluster.take_pods_records() == gone
    cluster.core.set_scaled_workloads({WEB})
    assert len(cluster.take_pods_records()) == 1
    cluster.core.remove_object(DEPLOYMENTS, cluster.objects.deployment(), 0.0)
    assert cluster.take_pods_records() == gone
    assert cluster.take_pods_records() == []


def test_a_new_epoch_says_all_again_from_one(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.store_samples("default", [pod_metrics("p1")])
    cluster.take_pods_records()
    cluster.core.begin_epoch(30_000, 0.0)
    assert [(said.epoch, said.sequence) for said in cluster.take_pods_records()] == [(30_000, 1)]
    assert cluster.take_pods_records() == []


def test_what_is_not_known_to_be_in_the_log_is_said_again(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    records = cluster.core.take_due_records(0.0, NEW_YEAR_MS)
    cluster.core.note_unconfirmed_records(records)
    assert [said.sequence for said in cluster.take_pods_records()] == [2]


def log_book_with_foreign_record(offset: int, name: str = "web", epoch: int = 3) -> LogBook:
    book = LogBook()
    event = PodsObserved("default", name, "own-1", epoch, 1, 0, "", (), ())
    book.note_record(PODS_TOPIC.name, f"default/{name}/own-1", offset, event)
    return book


def test_a_record_of_a_lower_epoch_behind_ours_is_answered(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1"))
    cluster.core.set_scaled_workloads({WEB})
    assert len(cluster.take_pods_records()) == 1
    cluster.core.overrule_foreign_records(log_book_with_foreign_record(10_000))
    assert [said.epoch for said in cluster.take_pods_records()] == [7]


def test_a_record_of_an_earlier_owner_that_nothing_stands_behind_gets_a_tombstone(cluster: Cluster) -> None:
    """The policy went while nobody held the turn; but not before all policies were read."""
    cluster.core.overrule_foreign_records(log_book_with_foreign_record(5, "old"))
    assert cluster.take_pods_records() == []
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.overrule_foreign_records(log_book_with_foreign_record(5, "old"))
    assert cluster.take_pods_records() == [Tombstone(pods_address("default", "old", "own-1"))]


def test_pods_more_than_a_record_takes_are_counted(objects: Any) -> None:
    cluster = Cluster(objects, pods_bytes_max=100)
    cluster.begin_epoch()
    ended = cluster.pod("p3", phase="Failed"), cluster.pod("p4", phase="Succeeded")
    cluster.deploy_pods(*(cluster.pod(f"p{index}") for index in range(3)), *ended)
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.store_samples("default", [pod_metrics("p0")])
    (said,) = cluster.take_pods_records()
    assert (len(said.pods), said.left_out, said.trouble) == (1, 2, "")


def test_pods_that_no_record_holds_are_counted_alone_until_the_key_goes(cluster: Cluster) -> None:
    cluster.deploy_pods(*(cluster.pod(f"p{index}") for index in range(3)))
    cluster.core.set_scaled_workloads({WEB})
    records = cluster.core.take_due_records(cluster.now, NEW_YEAR_MS)
    (said,) = (one for one in records if isinstance(one, PodsObserved))
    cluster.core.note_unconfirmed_records(records)
    cluster.core.note_unwritable_records([UnwrittenRecord(said, "3000000 bytes", 900_000)], cluster.now)
    (said,) = cluster.take_pods_records()
    assert (said.pods, said.left_out) == ((), 3)
    cluster.core.set_scaled_workloads(())
    cluster.take_pods_records()
    cluster.core.set_scaled_workloads({WEB})
    (said,) = cluster.take_pods_records()
    assert (len(said.pods), said.left_out) == (3, 0)


@pytest.mark.parametrize(("pods", "containers"), [(6_000, 1), (1_500, 12)])
def test_the_largest_record_fits_the_log(cluster: Cluster, pods: int, containers: int) -> None:
    """However many containers a pod has, and though each pod asks for something else."""
    details = cluster.core.state.details
    cluster.deploy_pods()
    names = [f"a-container-with-a-name-as-long-as-it-may-be-{index}" for index in range(containers)]
    samples = []
    for index in range(pods):
        spec = {"containers": [{"name": name, "resources": {"requests": {"cpu": f"{index}m"}}} for name in names]}
        name = f"a-workload-with-quite-a-long-name-5d8f7b9c6d-{index:05d}"
        details.upsert_pod(cluster.pod(name, spec=spec, ready="True"))
        usage = {"cpu": "1234567m", "memory": "123456789Ki"}
        metadata = {"name": name, "namespace": "default"}
        one = {"metadata": metadata, "timestamp": "2026-01-01T00:01:00Z", "window": "15s"}
        one["containers"] = [{"name": name, "usage": usage} for name in names]
        samples.append(msgspec.convert(one, PodMetrics))
    cluster.core.set_scaled_workloads({WEB})
    cluster.core.store_samples("default", samples)
    (said,) = cluster.take_pods_records()
    assert said.left_out == pods - len(said.pods) > 0
    assert 1_000_000 < len(encode_event(said)) < RECORD_BYTES_MAX


def test_unreadable_requests_are_missing_and_not_zero(cluster: Cluster) -> None:
    cluster.deploy_pods(cluster.pod("p1", cpu="many"))
    cluster.core.set_scaled_workloads({WEB})
    (said,) = cluster.take_pods_records()
    assert said.requests == (PodRequests((ContainerRequests("main", ()),)),)
