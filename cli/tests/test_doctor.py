"""What the doctor finds: of an installation that is well nothing, and of each break exactly that and what mends it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spillway import api, reasons
from spillway.addresses import SCOPE_CLUSTER, SCOPE_WORKLOAD, TOPICS
from spillway.api_lending import ClusterLending, LentNode
from spillway.api_scaling import ExplainedMetric, ExplainPolicyReply, PolicyReply, ScaleCondition
from spillway.clusters.rights import Right
from spillway.kafka.inspection import DiskFound, LogFound, TopicFound
from spillway.kafka.topics import TopicSettings, configs_of
from spillway.model import Generation
from spillway.rpc.probe import ProbeResult
from spillway.store import StoreFound
from spillway.troubles import TroubleCode
from spillway_cli.doctor import cluster_visits, fleet, log, services
from spillway_cli.doctor.checks import SHOWN_MAX, Check, CheckOutcome
from spillway_cli.doctor.cluster_visits import Visit
from spillway_cli.doctor.services import HealthPages

NOW = 1_700_000_000.0
DAY = 86_400.0
SETTINGS = TopicSettings()
VERSION = "1.0+aa"

# ── An installation that is well ────────────────────────────────────────────────────────────────────────────────────

ACTIVE = ProbeResult("a:7400", "OK", "", True, "a:7400", VERSION, False)
STANDBY = ProbeResult("b:7400", "OK", "", True, "a:7400", VERSION, True)
PAGE = HealthPages("planner-1", "", VERSION, {}, {"spillway.clusters.v1": 3}, {"spillway.clusters.v1": 0}, {
    "spillway_bus_connected": 1, "spillway_callers_file_bad": 0
})  # fmt: skip
PARTITIONS = {SCOPE_CLUSTER: 64, SCOPE_WORKLOAD: 16}
SAFE = {"min.insync.replicas": "2"}
FOUND = LogFound(
    brokers=3,
    topics={
        topic.name: TopicFound(PARTITIONS.get(topic.scope, 1), 3, 0, 0, configs_of(topic, SETTINGS) | SAFE)
        for topic in TOPICS
    },
    disks=(DiskFound(1, "/data", 2**20, 100, 60),),
    fleet="prod-1",
)
STORE = StoreFound(2**20, 2**30, 0, writes=True, filled=True)
CLUSTER = api.ClusterReply(
    "own-1", "own-1", "", "own", "", "", (), (), "Ready", "", 1500, 12, 12, (("cpu", 8),), (("cpu", 1),), 0
)
BRAKES = api.ListBrakesReply((), (), 600.0, 0, False)
STATUS = api.ClusterStatus("own-1", "Present", "", 4, 4, 4, 4, 4, 0, "")
PLACEMENT = api.PlacementReply("shop", "web", 1, 4, 4, 0, "", (), (), (), False, False)
WORKLOAD = api.WorkloadReply(PLACEMENT, "Deployment", (STATUS,), ())
POLICY = ExplainPolicyReply(
    PolicyReply("shop", "web", "HorizontalPodAutoscaler", "web", Generation(1, 1), "", 0, False, (), 1, 9, 4, 4, ""),
    0, 4, "cpu", (ExplainedMetric("cpu", "resource", "80%", "70%", 1, 1, 0, 4, True, "", ""),), (),
    (ScaleCondition("AbleToScale", "True", "ReadyForNewScale", ""), ScaleCondition("ScalingLimited", "True", "", "")),
    (), 0, "", 0, "",
)  # fmt: skip
LENDING = ClusterLending("own-1", "pool", Generation(1, 1), (), 30, 60, 6, False, False, "", "", 0, 12, 1, 0, 4000)
LENT = LentNode("own-1", "n1", "pool", "own-1.n1", Generation(1, 2), "r", "idle", "Lent", "", (), 0, 0, 0, (), "")
VISIT = Visit("own-1", "own-1", NOW + 90 * DAY, 0.4, server_expires=NOW + 90 * DAY)
BRIDGE_VISIT = Visit("own-1", "own-1", NOW + 90 * DAY, service="vk-bridge")


def all_checks(found: Any) -> list[Check]:
    """Every check of one installation, whose parts are given by name."""
    return [
        *(services.check_endpoint("planner", one) for one in found["probed"]),
        *(check for one in found["probed"] for check in services.check_certificate("planner", one, NOW)),
        services.check_active_instance("planner", found["probed"]),
        services.check_versions(VERSION, found["versions"]),
        *(check for page in found["pages"] for check in services.check_health_pages(page)),
        *log.check_log(found["log"], found["fleet"], SETTINGS),
        log.check_store(found["store"], found["log"].fleet),
        *fleet.check_clusters(found["clusters"]),
        *fleet.check_brakes(found["brakes"]),
        *fleet.check_orphans(found["orphans"]),
        *fleet.check_workloads(found["workloads"]),
        *fleet.check_policies(found["policies"]),
        *fleet.check_lending(found["lending"], found["lent"], int(NOW * 1000)),
        *fleet.check_bridge_rights(found["visits"], found["lending"]),
        *fleet.check_lending_marks(found["visits"], found["lending"], found["log"].fleet),
        *(check for visit in found["visits"] for check in cluster_visits.check_visit(visit, NOW)),
    ]


WELL: dict[str, Any] = {
    "probed": (ACTIVE, STANDBY),
    "versions": {"planner a:7400": VERSION},
    "pages": (PAGE,),
    "log": FOUND,
    "fleet": "prod-1",
    "store": STORE,
    "clusters": (CLUSTER,),
    "brakes": BRAKES,
    "orphans": api.ListOrphansReply((), False),
    "workloads": (WORKLOAD,),
    "policies": (POLICY,),
    "lending": (LENDING,),
    "lent": (LENT,),
    "visits": (VISIT, BRIDGE_VISIT),
}


def test_of_an_installation_that_is_well_every_check_is_ok() -> None:
    assert [check for check in all_checks(WELL) if check.outcome is not CheckOutcome.ok] == []


def log_with_topic(short: str, **changes: Any) -> LogFound:
    """The log with one topic changed."""
    name = f"spillway.{short}.v1"
    return replace(FOUND, topics={**FOUND.topics, name: replace(FOUND.topics[name], **changes)})


def log_with_config(short: str, name: str, value: str) -> LogFound:
    return log_with_topic(short, configs={**FOUND.topics[f"spillway.{short}.v1"].configs, name: value})


def log_with_all_topics(**changes: Any) -> LogFound:
    return replace(FOUND, topics={name: replace(one, **changes) for name, one in FOUND.topics.items()})


def log_without_topic(short: str) -> LogFound:
    return replace(FOUND, topics={name: one for name, one in FOUND.topics.items() if name != f"spillway.{short}.v1"})


def log_with_min_insync(least: str, copies: int = 3) -> LogFound:
    topics = FOUND.topics.items()
    return replace(FOUND, topics={
        name: replace(one, copies=copies, configs={**one.configs, "min.insync.replicas": least})
        for name, one in topics
    })  # fmt: skip


def log_with_disk(**changes: Any) -> LogFound:
    return replace(FOUND, disks=(replace(FOUND.disks[0], **changes),))


def part_with_cluster(**changes: Any) -> dict[str, Any]:
    return {"clusters": (replace(CLUSTER, **changes),)}


def part_with_status(**changes: Any) -> dict[str, Any]:
    return {"workloads": (replace(WORKLOAD, statuses=(replace(STATUS, **changes),)),)}


def part_with_condition(kind: str, status: str, reason: str = "R", message: str = "m") -> dict[str, Any]:
    return {"policies": (replace(POLICY, conditions=(ScaleCondition(kind, status, reason, message),)),)}


def part_with_visit(**changes: Any) -> dict[str, Any]:
    return {"visits": (replace(VISIT, **changes), BRIDGE_VISIT)}


def part_with_bridge(cluster: str, *lacking: Right, **changes: Any) -> dict[str, Any]:
    return {"visits": (VISIT, replace(BRIDGE_VISIT, **{"cluster": cluster, "lacking": lacking} | changes))}


def part_with_answer(code: str, text: str, reason: str = "", *, tls_differs: bool = False) -> dict[str, Any]:
    return {"probed": (ACTIVE, replace(STANDBY, code=code, text=text, reason=reason, tls_differs=tls_differs))}


MANY = Right("deletecollection", "", "pods")
LOGS = Right("get", "", "pods/log")
FORBIDDEN = "own-1: forbidden: nodes is forbidden"
FAILED, WARNING, SKIPPED = CheckOutcome.failed, CheckOutcome.warning, CheckOutcome.skipped
FROZEN = api.Brake("fleet", True, "audit", "ann", 0, 7)
WAITS = api.Confirmation("Drain/own-1", "Drain", "own-1", 70, 100, False, "", 0)
TROUBLE = replace(POLICY.metrics[0], trouble="broker gone")
RECALLED = replace(LENT, state="Recalled", recalled_ms=int(1000 * (NOW - 1000)), waiting="2 pods leave")

# What is broken, the outcome and the name of the one check that is not ok then, and words in its text and its hint.
BREAKS: dict[str, tuple[dict[str, Any], CheckOutcome, str, list[str]]] = {
    "an instance is down": (
        part_with_answer("UNAVAILABLE", "nothing listens there"),
        FAILED,
        "planner b:7400",
        ["is it up?"],
    ),
    "an instance hangs": (
        part_with_answer("DEADLINE_EXCEEDED", "x"),
        FAILED,
        "planner b:7400",
        ["it hangs", "Restart it"],
    ),
    "an instance that reads": (
        part_with_answer("UNAVAILABLE", "this planner still reads the log", reasons.READING_THE_LOG),
        FAILED,
        "planner b:7400",
        ["still reads", "takes seconds"],
    ),
    "TLS is not ours": (
        part_with_answer("UNAVAILABLE", "not believed", tls_differs=True),
        FAILED,
        "planner b:7400",
        ["not believed", "SPILLWAY_CA"],
    ),
    "a wrong token": (part_with_answer("UNAUTHENTICATED", "no caller"), FAILED, "planner b:7400", ["SPILLWAY_TOKEN"]),
    "a caller without rights": (
        part_with_answer("PERMISSION_DENIED", "may not"),
        WARNING,
        "planner b:7400",
        ["`read`"],
    ),
    "another service there": (
        part_with_answer("NOT_FOUND", ""),
        FAILED,
        "planner b:7400",
        ["not the planner", "spillway config"],
    ),
    "one that does not serve": (
        {"probed": (ACTIVE, replace(STANDBY, serving=False))},
        FAILED,
        "planner b:7400",
        ["/readyz"],
    ),
    "a certificate that ends": (
        {"probed": (ACTIVE, replace(STANDBY, certificate_ends=NOW + 2 * DAY))},
        WARNING,
        "planner b:7400",
        ["ends in 2d", "restart it"],
    ),
    "two are active": ({"probed": (ACTIVE, replace(STANDBY, stale=False))}, FAILED, "planner turn", ["2 instances"]),
    "none is active": ({"probed": (replace(STANDBY, leader=""),)}, FAILED, "planner turn", ["none is active"]),
    "the active one is not ours": ({"probed": (STANDBY,)}, WARNING, "planner turn", ["a:7400", "endpoints"]),
    "another version": (
        {"versions": {"hpa x": "0.9+bb", "planner": VERSION}},
        WARNING,
        "versions",
        ["0.9+bb: hpa x", "Upgrade"],
    ),
    "a process is down": (
        {"pages": (HealthPages("hpa-1", trouble="refused"),)},
        FAILED,
        "process hpa-1",
        ["refused", "up?"],
    ),
    "a process is not ready": (
        {"pages": (replace(PAGE, not_ready={"log": "reading"}),)},
        FAILED,
        "process planner-1",
        ["log: reading"],
    ),
    "a process lost the log": (
        {"pages": (replace(PAGE, values={"spillway_bus_connected": 0}),)},
        FAILED,
        "process planner-1",
        ["Kafka does not answer"],
    ),
    "a reader lags": (
        {"pages": (replace(PAGE, lag_by_topic={"spillway.pods.v1": 9000}),)},
        WARNING,
        "process planner-1",
        ["9000 of spillway.pods.v1"],
    ),
    "unreadable records": (
        {"pages": (replace(PAGE, dead_letters_by_topic={"spillway.pods.v1": 2}),)},
        WARNING,
        "process planner-1",
        ["2 of spillway.pods.v1", "dead-letters"],
    ),
    "a bad callers file": (
        {"pages": (replace(PAGE, values={"spillway_callers_file_bad": 1}),)},
        FAILED,
        "process planner-1",
        ["callers file"],
    ),
    "a topic is missing": (
        {"log": log_without_topic("shapes")},
        FAILED,
        "topics",
        ["spillway.shapes.v1", "`spillway topics`"],
    ),
    "no fleet": ({"log": replace(FOUND, fleet="")}, FAILED, "fleet", ["no fleet yet"]),
    "another fleet": ({"fleet": "prod-2"}, FAILED, "fleet", ["prod-1", "prod-2"]),
    "wrong partitions": (
        {"log": log_with_topic("capacity", partitions=63)},
        FAILED,
        "partitions",
        ["spillway.capacity.v1 has 63, not 64"],
    ),
    "two partitions of one": ({"log": log_with_topic("fleet", partitions=2)}, FAILED, "partitions", ["has 2, not 1"]),
    "not compacted": (
        {"log": log_with_config("placements", "cleanup.policy", "delete")},
        FAILED,
        "cleanup and sizes",
        ["spillway.placements.v1: cleanup.policy is delete, not compact", "at once"],
    ),
    "records too small": (
        {"log": log_with_config("workloads", "max.message.bytes", "1000")},
        FAILED,
        "cleanup and sizes",
        ["max.message.bytes is 1000"],
    ),
    "other retention": (
        {"log": log_with_config("decisions", "retention.ms", "60000")},
        WARNING,
        "retention and lag",
        ["retention.ms is 60000"],
    ),
    "other lag": (
        {"log": log_with_config("workloads", "min.compaction.lag.ms", "0")},
        WARNING,
        "retention and lag",
        ["min.compaction.lag.ms is 0, not 86400000"],
    ),
    "configs are not told": (
        {"log": log_with_all_topics(configs={})},
        SKIPPED,
        "cleanup, sizes and retention",
        ["not readable", "DESCRIBE_CONFIGS"],
    ),
    "nobody leads": ({"log": log_with_topic("pods", leaderless=1)}, FAILED, "leaders", ["spillway.pods.v1"]),
    "a copy lags": ({"log": log_with_topic("pods", behind=1)}, WARNING, "copies in sync", ["spillway.pods.v1"]),
    "one copy": ({"log": log_with_min_insync("1", 1)}, WARNING, "copies", ["lost with its disk", "three brokers"]),
    "nothing can be written": ({"log": log_with_min_insync("4")}, FAILED, "copies", ["nothing can be written"]),
    "one in sync is enough": (
        {"log": log_with_min_insync("1")},
        WARNING,
        "copies",
        ["one copy is enough", "min.insync.replicas=2"],
    ),
    "all must be in sync": ({"log": log_with_min_insync("3")}, WARNING, "copies", ["with one broker down"]),
    "two copies": ({"log": log_with_min_insync("2", 2)}, WARNING, "copies", ["2: with one broker down"]),
    "a full disk": ({"log": log_with_disk(free=4)}, FAILED, "disk of broker 1 /data", ["4%", "stops the broker"]),
    "a disk that fills": ({"log": log_with_disk(free=10)}, WARNING, "disk of broker 1 /data", ["10%"]),
    "a disk that is not ours to ask": (
        {"log": log_with_disk(trouble="no", may_not_ask=True)},
        SKIPPED,
        "disk of broker 1 /data",
        ["DESCRIBE"],
    ),
    "a broken disk": (
        {"log": log_with_disk(trouble="KafkaStorageError")},
        SKIPPED,
        "disk of broker 1 /data",
        ["KafkaStorageError", "broker's own log"],
    ),
    "Redis is a replica": ({"store": replace(STORE, writes=False)}, FAILED, "Redis", ["takes no writes"]),
    "Redis evicts": ({"store": replace(STORE, evicted=7)}, WARNING, "Redis", ["evicted 7 keys"]),
    "Redis is nearly full": ({"store": replace(STORE, bytes_used=2**30)}, WARNING, "Redis", ["raise maxmemory"]),
    "Redis is another's": ({"store": replace(STORE, filled=False)}, WARNING, "Redis", ["nothing of fleet prod-1"]),
    "no cluster": ({"clusters": (), "visits": ()}, WARNING, "clusters", ["none has joined", "cluster join"]),
    "never heard": (
        part_with_cluster(state="Unknown", age_ms=-1),
        FAILED,
        "cluster own-1",
        ["no report yet", "snapshot"],
    ),
    "heard long ago": (part_with_cluster(state="Stale", age_ms=90_000), FAILED, "cluster own-1", ["Stale", "90s ago"]),
    "not reachable": (
        part_with_cluster(state="Unreachable", trouble="own-1: timeout: x"),
        FAILED,
        "cluster own-1",
        ["timeout", "API server"],
    ),
    "too large": (
        part_with_cluster(state="Unreachable", trouble="3 MB in namespaces", trouble_code=TroubleCode.UNWRITABLE),
        FAILED,
        "cluster own-1",
        ["3 MB in namespaces", "fewer labels"],
    ),
    "too large, of an older planner": (
        part_with_cluster(state="Unreachable", trouble="capacity: unwritable: 3 MB in namespaces"),
        FAILED,
        "cluster own-1",
        ["3 MB in namespaces", "fewer labels"],
    ),
    "forbidden": (
        part_with_cluster(state="Unreachable", trouble="nodes: no", trouble_code=TroubleCode.NOT_ALLOWED),
        FAILED,
        "cluster own-1",
        ["nodes: no", "own-1.kubeconfig"],
    ),
    "forbidden, of an older planner": (
        part_with_cluster(state="Unreachable", trouble=FORBIDDEN),
        FAILED,
        "cluster own-1",
        ["nodes is forbidden", "own-1.kubeconfig"],
    ),
    "something forbidden": (
        part_with_cluster(trouble="volumes: no", trouble_code=TroubleCode.NOT_ALLOWED),
        FAILED,
        "cluster own-1",
        ["volumes: no"],
    ),
    "in trouble": (part_with_cluster(trouble="own-1: closed: x"), WARNING, "cluster own-1", ["closed"]),
    "a twin": (
        part_with_cluster(state="Duplicate", trouble="own-0"),
        WARNING,
        "cluster own-1",
        ["own-0", "cluster leave own-1"],
    ),
    "no nodes": (part_with_cluster(nodes=0, nodes_ready=0), WARNING, "cluster own-1", ["no usable node"]),
    "frozen": ({"brakes": replace(BRAKES, brakes=(FROZEN,))}, WARNING, "brake fleet", ["ann", "audit", "unfreeze"]),
    "a confirmation": (
        {"brakes": replace(BRAKES, confirmations=(WAITS,))},
        WARNING,
        "confirmation Drain/own-1",
        ["spillway confirm Drain/own-1"],
    ),
    "an orphan": (
        {"orphans": api.ListOrphansReply((api.Orphan("own-1", "shop", "old", 1, 1, ""),), False)},
        WARNING,
        "orphans",
        ["shop/old in own-1"],
    ),
    "no room": (
        {"workloads": (replace(WORKLOAD, placement=replace(PLACEMENT, unplaced=2, waiting_for="cpu")),)},
        WARNING,
        "workload shop/web",
        ["2 of 4 replicas have no place: cpu", "spillway explain web -n shop"],
    ),
    "not ours": (
        part_with_status(state="NotOwned", message="helm's"),
        FAILED,
        "workload shop/web in own-1",
        ["helm's", "adopt"],
    ),
    "no ConfigMap": (
        part_with_status(state="DependencyMissing", message="no ConfigMap a"),
        FAILED,
        "workload shop/web in own-1",
        ["no ConfigMap a", "apply a ConfigMap"],
    ),
    "refused": (
        part_with_status(state="Refused", message="denied: x"),
        FAILED,
        "workload shop/web in own-1",
        ["denied: x"],
    ),
    "contested": (
        part_with_status(state="ReplicasContested", message="HPA web"),
        FAILED,
        "workload shop/web in own-1",
        ["HPA web", "remove that scaler"],
    ),
    "on hold": (
        part_with_status(message="3 ready; on hold: waits for own-2"),
        WARNING,
        "workload shop/web in own-1",
        ["waits for own-2"],
    ),
    "not schedulable": (
        part_with_status(unschedulable=2, unschedulable_reason="few cpu"),
        WARNING,
        "workload shop/web in own-1",
        ["2 pods cannot", "few cpu"],
    ),
    "a metric fails": (
        {"policies": (replace(POLICY, metrics=(TROUBLE,)),)},
        WARNING,
        "scale policy shop/web",
        ["cpu: broker gone", "explain hpa/web"],
    ),
    "not able to scale": (
        part_with_condition("AbleToScale", "False"),
        FAILED,
        "scale policy shop/web",
        ["AbleToScale is False"],
    ),
    "on its fallback": (part_with_condition("Fallback", "True"), FAILED, "scale policy shop/web", ["Fallback is True"]),
    "lending paused": (
        {"lending": (replace(LENDING, paused=True, by="ann", reason="sale"),)},
        WARNING,
        "lending own-1",
        ["paused by ann: sale", "lending resume own-1"],
    ),
    "lending unseen": ({"lending": (replace(LENDING, nodes=-1),)}, WARNING, "lending own-1", ["not known"]),
    "lending that warns": (
        {"lending": (replace(LENDING, warnings=("frozen",)),)},
        WARNING,
        "lending own-1",
        ["frozen"],
    ),
    "a late recall": ({"lent": (RECALLED,)}, WARNING, "lent node own-1/n1", ["17m ago", "2 pods leave"]),
    "a bad kubeconfig": (
        part_with_visit(bad="own-1.kubeconfig: users: expected"),
        FAILED,
        "credential own-1",
        ["users: expected"],
    ),
    "a credential that ended": (
        part_with_visit(expires=NOW - DAY),
        FAILED,
        "credential own-1",
        ["expired on 2023-11-13", "renew"],
    ),
    "a credential that ends": (part_with_visit(expires=NOW + 3 * DAY), WARNING, "credential own-1", ["in 3d", "renew"]),
    "a credential refused": (
        part_with_visit(trouble="no", not_known=True),
        FAILED,
        "credential own-1",
        ["no", "renew"],
    ),
    "a cluster unreached": (part_with_visit(trouble="timeout"), FAILED, "credential own-1", ["timeout", "API server"]),
    "a right is missing": (
        part_with_visit(denied=("jobs.batch",)),
        FAILED,
        "credential own-1",
        ["does not let us list jobs.batch", "rights"],
    ),
    "another's credential ends": (
        part_with_visit(expires=NOW + DAY, service="propagator"),
        WARNING,
        "credential own-1 of propagator",
        ["in 24h", "own-1.kubeconfig of propagator"],
    ),
    "a server's certificate ends": (
        part_with_visit(server_expires=NOW + DAY),
        WARNING,
        "certificate of own-1",
        ["ends in 24h", "renew it there"],
    ),
    "marks that no rule made": (
        part_with_visit(cluster="own-2", marked=(("n1", "prod-1"),)),
        WARNING,
        "marks of lending in own-2",
        ["n1 have the taint", "lending withdraw own-2"],
    ),
    "marks of another fleet": (
        part_with_visit(cluster="own-2", marked=(("n1", "prod-0"),)),
        WARNING,
        "marks of lending in own-2",
        ["of fleet prod-0", "kubectl taint"],
    ),
    "an owner without one request for many": (
        part_with_bridge("own-1", MANY),
        WARNING,
        "rights of vk-bridge in own-1",
        ["may not deletecollection pods", "a request of its own, and returns", "deploy/rbac/vk-bridge-owner.yaml"],
    ),
    "a pool without one request for many": (
        part_with_bridge("pool", MANY, LOGS),
        WARNING,
        "rights of vk-bridge in pool",
        ["may not deletecollection pods", "deploy/rbac/vk-bridge-pool.yaml"],
    ),
    "an owner without logs": (
        part_with_bridge("own-1", LOGS),
        WARNING,
        "rights of vk-bridge in own-1",
        ["may not get pods/log: logs of pool pods are refused"],
    ),
    "a server that does not say rights": (
        part_with_bridge("own-1", lacking=None),
        SKIPPED,
        "rights of vk-bridge in own-1",
        ["does not say", "vk-bridge-owner.yaml"],
    ),
    "the bridge's credentials are not named": (
        {"visits": (VISIT,)},
        SKIPPED,
        "rights of vk-bridge",
        ["names a folder", "vk-bridge=folder"],
    ),
    "a clock is wrong": (part_with_visit(skew_seconds=-61.0), WARNING, "clock of own-1", ["61 s behind", "NTP"]),
}


@pytest.mark.parametrize(("broken", "outcome", "name", "words"), BREAKS.values(), ids=BREAKS)
def test_each_break_is_found_and_nothing_else(
    broken: dict[str, Any], outcome: CheckOutcome, name: str, words: list[str]
) -> None:
    found = [check for check in all_checks(WELL | broken) if check.outcome is not CheckOutcome.ok]
    assert [(check.name, check.outcome) for check in found] == [(name, outcome)]
    said = f"{found[0].text} → {found[0].hint}"
    assert [word for word in words if word not in said] == []
    assert found[0].hint


QUIET: dict[str, dict[str, Any]] = {
    "a certificate for months": {"probed": (replace(ACTIVE, certificate_ends=NOW + 90 * DAY), STANDBY)},
    "a disk that does not say its size": {"log": log_with_disk(size=-1, free=-1)},
    "a store without a bound": {"store": replace(STORE, bytes_max=0, bytes_used=2**40)},
    "a drained cluster": part_with_cluster(phase="Draining"),
    "a brake that was released": {"brakes": replace(BRAKES, brakes=(replace(FROZEN, frozen=False),))},
    "a confirmation that was given": {"brakes": replace(BRAKES, confirmations=(replace(WAITS, given=True),))},
    "a workload with no replica": part_with_condition("ScalingActive", "False", "ScalingDisabled"),
    "a condition that is not known yet": part_with_condition("AbleToScale", "Unknown"),
    "a recall just now": {"lent": (replace(RECALLED, recalled_ms=int(NOW * 1000)),)},
    "a credential without an end": part_with_visit(expires=None),
    "an answer without a date": part_with_visit(skew_seconds=None),
    "any fleet": {"fleet": ""},
    "marks where lending is declared": part_with_visit(marked=(("n1", "prod-1"),)),
    "a right that is missing where nothing is lent": part_with_bridge("own-2", MANY),
    "an API server without TLS": part_with_visit(server_expires=None),
}


@pytest.mark.parametrize("fine", QUIET.values(), ids=QUIET)
def test_what_looks_like_a_break_and_is_none(fine: dict[str, Any]) -> None:
    assert [check for check in all_checks(WELL | fine) if check.outcome is not CheckOutcome.ok] == []


def test_the_one_that_had_the_turn_is_silent_and_not_a_stranger() -> None:
    check = services.check_active_instance("planner", (replace(ACTIVE, code="DEADLINE_EXCEEDED", leader=""), STANDBY))
    assert (check.outcome, check.text) == (FAILED, "a:7400 had the turn last, and does not answer")
    assert "look again" in check.hint


def test_several_faults_of_one_process_are_all_told() -> None:
    page = replace(PAGE, not_ready={"log": "x"}, lag_by_topic={"t": 9000}, dead_letters_by_topic={"t": 1})
    outcomes = [check.outcome for check in services.check_health_pages(page)]
    assert outcomes == [FAILED, WARNING, WARNING]


@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(
            lambda: services.check_active_instance("hpa", [replace(ACTIVE, code="UNAVAILABLE")]), id="no instance"
        ),
        pytest.param(lambda: services.check_versions(VERSION, {}), id="no version"),
    ],
)
def test_what_could_not_be_looked_at_is_skipped_and_says_what_would_help(judge: Callable[[], Check]) -> None:
    check = judge()
    assert (check.outcome, bool(check.hint)) == (SKIPPED, True)


def test_of_many_alike_the_first_are_named_the_worst_before_the_others() -> None:
    waiting = replace(WORKLOAD, placement=replace(PLACEMENT, unplaced=1))
    refused = replace(WORKLOAD, statuses=(replace(STATUS, state="Refused"),))
    checks: Sequence[Check] = fleet.check_workloads([*[waiting] * 50, refused])
    assert len(checks) == SHOWN_MAX + 1
    assert (checks[0].outcome, checks[-1].text) == (FAILED, "31 more are like these")
