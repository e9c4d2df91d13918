"""Judges what the services report on the fleet: clusters, brakes, workloads, scale policies and lending."""

from collections.abc import Iterable, Sequence

from spillway import api
from spillway.api_lending import ClusterLending, LentNode
from spillway.api_scaling import ExplainPolicyReply
from spillway.clusters.rights import BRIDGE_OWNER, BRIDGE_POOL, AccountRole
from spillway.events import (
    PHASE_ACTIVE,
    STATE_CONTESTED,
    STATE_DEPENDENCY_MISSING,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_REFUSED,
)
from spillway.lending_marks import LENDING
from spillway.status_details import details_of_status, hold_text
from spillway.texts import counted_noun
from spillway.troubles import TroubleCode, code_of_record
from spillway_cli.doctor.checks import (
    Check,
    failed_check,
    ok_check,
    shortened_checks,
    shown_names_text,
    skipped_check,
    warning_check,
)
from spillway_cli.doctor.cluster_visits import Visit
from spillway_cli.output import duration_text

RECALL_MS_MAX = 15 * 60_000
"""The longest time of a recall; the same as in the alert SpillwayRecallsLate."""

UNWRITABLE_HINT = "the named field is the largest one: use fewer labels of namespaces, quotas or workloads there"
_HELD = {
    STATE_NOT_OWNED: "another owner has an object of that name: rename one of them, or `spillway adopt` it",
    STATE_DEPENDENCY_MISSING: "create the object that is named there; apply a ConfigMap together with the workload",
    STATE_REFUSED: "the cluster's admission refuses it: change the manifest, or give our account the named right",
    STATE_CONTESTED: "another program sets the replicas: remove that scaler, or attach its policy to Spillway",
    STATE_ORPHANED: "`spillway orphans`; delete it by hand when nobody needs it",
}


def check_cluster(found: api.ClusterReply) -> Check:
    """Judges one cluster: the age of its last report, and the reason why it cannot be followed, if any."""
    name = f"cluster {found.cluster}"
    age = duration_text(found.age_ms)
    if found.state == "Duplicate":
        hint = f"`spillway cluster leave {found.cluster}`: the other cluster has the same nodes"
        return warning_check(name, f"is the same API server as {found.trouble}, and gets no replicas", hint)
    if found.state == "Unknown":
        hint = "is a snapshot service up, and does its credentials folder have this credential's file?"
        return failed_check(name, f"it has sent no report yet (credential {found.credential})", hint)
    trouble = code_of_record(found.trouble_code, found.trouble)
    if trouble == TroubleCode.UNWRITABLE:
        return failed_check(name, f"last heard {age} ago: {found.trouble}", UNWRITABLE_HINT)
    is_ours = trouble == TroubleCode.NOT_ALLOWED
    if found.state == "Unreachable" or is_ours:
        mended = f"renew {found.credential}.kubeconfig, or give its account the right that is named"
        hint = mended if is_ours else "its API server or the network to it is down: fix that"
        return failed_check(name, f"last heard {age} ago: {found.trouble}", hint)
    if found.state != "Ready":
        hint = "no new replicas go there: is a snapshot service up, and does it have this cluster's turn?"
        return failed_check(name, f"{found.state}: last heard {age} ago", hint)
    if found.trouble:
        return warning_check(name, f"heard {age} ago: {found.trouble}", "its collector tries again by itself")
    if not found.nodes:
        return warning_check(name, f"heard {age} ago: it has no usable node", "`spillway cluster nodes` says why")
    phase = "" if found.phase == PHASE_ACTIVE else f", {found.phase}"
    return ok_check(name, f"heard {age} ago, {found.nodes_ready} of {counted_noun(found.nodes, 'node')} ready{phase}")


def check_clusters(found: Sequence[api.ClusterReply]) -> list[Check]:
    if not found:
        return [
            warning_check("clusters", "none has joined", "`spillway cluster join NAME --credential NAME --tier own`")
        ]
    return [check_cluster(one) for one in found]


def check_brakes(found: api.ListBrakesReply) -> list[Check]:
    """Judges brakes that are set, and moves that wait for an operator's confirmation."""
    checks = [
        warning_check(
            f"brake {brake.scope}",
            f"frozen by {brake.by}: {brake.reason or 'no reason given'}; holds back {counted_noun(brake.replicas)}",
            "while it is set, only requested moves happen: `spillway unfreeze` when its reason is over",
        )
        for brake in found.brakes
        if brake.frozen
    ]
    checks += [
        warning_check(
            f"confirmation {one.scope}",
            f"{one.replicas} of {counted_noun(one.fleet_replicas)} wait for an operator's confirmation to move",
            f"`spillway confirm {one.scope}` lets them move",
        )
        for one in found.confirmations
        if not one.given
    ]
    return checks or [ok_check("brakes", "nothing is frozen, nothing waits for a confirmation")]


def check_orphans(found: api.ListOrphansReply) -> list[Check]:
    """Judges objects of ours that no placement names."""
    if not found.orphans:
        return []
    listed = shown_names_text(f"{one.namespace}/{one.name} in {one.cluster}" for one in found.orphans)
    return [warning_check("orphans", f"no placement names {listed}", "`spillway orphans`; they are never touched")]


def check_workloads(found: Sequence[api.WorkloadReply]) -> list[Check]:
    """Judges workloads. Each one that is stuck appears with its reason."""
    stuck = [check for one in found for check in _check_stuck_workload(one)]
    if not stuck:
        return [ok_check("workloads", f"{len(found)}, none is stuck")]
    return shortened_checks("workloads", stuck, "`spillway get` lists all")


def _check_stuck_workload(found: api.WorkloadReply) -> Iterable[Check]:
    placement = found.placement
    name, short = f"workload {placement.namespace}/{placement.name}", f"{placement.name} -n {placement.namespace}"
    if placement.unplaced:
        why = f": {placement.waiting_for}" if placement.waiting_for else ""
        text = f"{placement.unplaced} of {counted_noun(placement.replicas)} have no place{why}"
        yield warning_check(name, text, f"`spillway explain {short}` says what limits it, and what would make room")
    for status in found.statuses:
        where = f"{name} in {status.cluster}"
        if status.state in _HELD:
            yield failed_check(where, f"{status.state}: {status.message}", _HELD[status.state])
        elif hold := details_of_status(status).hold:
            yield warning_check(where, hold_text(hold), f"`spillway get {short}` says more")
        if status.unschedulable:
            text = f"{counted_noun(status.unschedulable, 'pod')} cannot be scheduled: {status.unschedulable_reason}"
            yield warning_check(
                where, text, "they move if another cluster has room; else `spillway explain` says why not"
            )


_GOOD_WHEN = {"AbleToScale": "True", "ScalingActive": "True", "Ready": "True", "Fallback": "False"}
_DISABLED = "ScalingDisabled"
"""The condition's reason for a workload with 0 replicas. Such a workload is not scaled, and this is no fault."""


def check_policies(found: Sequence[ExplainPolicyReply]) -> list[Check]:
    """Judges scale policies: those that cannot decide, or that cannot read some of their metrics."""
    checks = [check for one in found for check in _check_policy(one)]
    if not checks:
        return [ok_check("scale policies", f"{len(found)}, none has an error")]
    return shortened_checks("scale policies", checks, "`spillway get hpa` lists all")


def _check_policy(found: ExplainPolicyReply) -> Iterable[Check]:
    policy = found.policy
    name = f"scale policy {policy.namespace}/{policy.policy}"
    hint = f"`spillway explain hpa/{policy.policy} -n {policy.namespace}` says which value of which metric is missing"
    for metric in found.metrics:
        if metric.trouble:
            yield warning_check(name, f"{metric.metric}: {metric.trouble}", hint)
    for one in found.conditions:
        good = _GOOD_WHEN.get(one.type)
        if good and one.status not in (good, "Unknown") and one.reason != _DISABLED:
            yield failed_check(name, f"{one.type} is {one.status}: {one.reason}: {one.message}".rstrip(": "), hint)


def check_lending_marks(visits: Sequence[Visit], declared: Sequence[ClusterLending], ours: str) -> list[Check]:
    """Judges nodes that have the taint of lending in clusters that declare no lending.

    ours: the id of this fleet; empty: unknown.

    The cluster schedules no pod on such a node, and no bridge takes the taint away.
    """
    lending = {one.cluster for one in declared}
    left = [visit for visit in visits if visit.cluster not in lending]
    return [check for visit in left for check in _check_cluster_marks(visit.cluster, visit.marked, ours)]


def _check_cluster_marks(cluster: str, marked: Sequence[tuple[str, str]], ours: str) -> Iterable[Check]:
    """Judges one cluster. marked: (node, fleet id in its label) for each node with the taint."""
    others = sorted({fleet for _, fleet in marked if ours and fleet != ours})
    name = f"marks of lending in {cluster}"
    if left := [node for node, fleet in marked if fleet not in others]:
        text = f"{shown_names_text(left)} have the taint {LENDING}, but the cluster declares no lending"
        hint = (
            f"`spillway lending declare {cluster} --pool POOL`, then `spillway lending withdraw {cluster}`: "
            "after that the nodes are emptied and returned (docs/lending.md)"
        )
        yield warning_check(name, text, hint)
    for fleet in others:
        nodes = shown_names_text(node for node, of in marked if of == fleet)
        hint = f"is fleet {fleet} there no more? `kubectl taint node NODE {LENDING}-` once no lent pod is on it"
        yield warning_check(name, f"{nodes} have the taint {LENDING} of fleet {fleet}", hint)


def check_bridge_rights(visits: Sequence[Visit], declared: Sequence[ClusterLending]) -> list[Check]:
    """Judges the rights that the bridge lacks in clusters that lend and in pools. It works without them, only worse."""
    roles: dict[str, list[AccountRole]] = {}
    for one in declared:
        roles.setdefault(one.cluster, []).append(BRIDGE_OWNER)
    for pool in sorted({one.pool for one in declared}):
        roles.setdefault(pool, []).append(BRIDGE_POOL)
    of_bridge = {visit.cluster: visit for visit in visits if visit.service == BRIDGE_OWNER.service}
    if roles and visits and not of_bridge:
        text = "the rights of its account cannot be checked: no setting names a folder with its credentials"
        return [skipped_check("rights of vk-bridge", text, "SPILLWAY_CREDENTIALS: vk-bridge=folder of its kubeconfigs")]
    return [
        check
        for name, asked in roles.items()
        if name in of_bridge
        for check in _check_cluster_rights(of_bridge[name], asked)
    ]


def _check_cluster_rights(visit: Visit, roles: Sequence[AccountRole]) -> Iterable[Check]:
    name = f"rights of vk-bridge in {visit.cluster}"
    if visit.bad or visit.trouble:
        return  # The check of its credential reports that.
    if visit.lacking is None:
        files = " and ".join(_role_file(role) for role in roles)
        yield skipped_check(
            name, "its API server does not say what the account may do", f"compare with {files} by hand"
        )
        return
    missing = {right: (role, without) for role in roles for right, without in role.effect_by_optional_right().items()}
    for right, (role, without) in missing.items():
        if right in visit.lacking:
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            hint = f"apply {_role_file(role)} there again; the bridge tries again by itself"
            yield warning_check(name, f"its account may not {right.verb} {resource}: {without}", hint)


def _role_file(role: AccountRole) -> str:
    return f"deploy/rbac/{role.name}.yaml"


def check_lending(declared: Sequence[ClusterLending], lent: Sequence[LentNode], now_ms: int) -> list[Check]:
    """Judges lending: clusters whose declared lending does not work, and recalls that take too long."""
    checks = []
    for one in declared:
        name = f"lending {one.cluster}"
        if one.paused:
            hint = f"`spillway lending resume {one.cluster}` when its reason is over"
            checks.append(
                warning_check(name, f"declared, and paused by {one.by}: {one.reason or 'no reason given'}", hint)
            )
        elif one.nodes < 0:
            hint = f"see the check of cluster {one.cluster}"
            checks.append(warning_check(name, "declared, and the cluster's capacity is not known", hint))
        checks += [
            warning_check(name, text, "docs/lending.md; `spillway lending get` shows what holds")
            for text in one.warnings
        ]
    late = [
        warning_check(
            f"lent node {node.cluster}/{node.node}",
            f"recalled {duration_text(now_ms - node.recalled_ms)} ago and not back: {node.waiting}",
            "`spillway lent` says what it waits for; a pod with a finalizer or a long grace in the pool?",
        )
        for node in lent
        if node.recalled_ms and now_ms - node.recalled_ms > RECALL_MS_MAX
    ]
    checks += shortened_checks("lent nodes", late, "`spillway lent` lists all")
    return checks or [
        ok_check("lending", f"declared by {counted_noun(len(declared), 'cluster')}, {len(lent)} nodes are lent")
    ]
