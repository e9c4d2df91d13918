"""Makes the tables and summaries that commands print for people."""

from __future__ import annotations  # Showing one value must not import the types of all others.

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from rich.console import Group
from rich.text import Text

from spillway.events_answered import PHASE_ACTIVE, PHASE_LEAVING, PHASE_LOST
from spillway.texts import counted_noun
from spillway_cli.output import duration_text, make_table, resource_amount_text, wall_time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spillway.api import (
        BatchAnswer,
        Brake,
        CapacityReply,
        ClusterMovesReply,
        ClusterReply,
        ClusterStatus,
        Confirmation,
        ListBrakesReply,
        ListClustersReply,
        ListedNode,
        ListOrphansReply,
        PlacedPart,
        PlacementReply,
        RecoverFleetReply,
        WorkloadReply,
    )
    from spillway.events_answered import DecisionRecorded
    from spillway.model_basics import ClusterInput
    from spillway_cli.fitting_table import Table

    class _OfCluster(Protocol):
        @property
        def cluster(self) -> str: ...


C = TypeVar("C", bound="_OfCluster")

_STALE = "the planner that answered cannot prove that it is the active one: the answer may be old"


def sorted_by_cluster(entries: Iterable[C]) -> list[C]:
    """Sorts entries by the names of their clusters, so that every table shows clusters in the same order."""
    return sorted(entries, key=lambda entry: entry.cluster)


def render_placement(reply: PlacementReply) -> RenderableType:
    """Renders the replicas for each cluster, and the limit that applied to each."""
    inputs = {entry.cluster: entry for entry in reply.inputs}
    rows: list[tuple[object, ...]] = [
        (
            part.cluster,
            part.tier,
            part.replicas,
            part.replicas_new or "",
            *_room_cells(inputs.get(part.cluster)),
            _part_note(part),
        )
        for part in reply.parts
    ]
    placed = {part.cluster for part in reply.parts}
    rows += [
        (entry.cluster, entry.tier, 0, "", *_room_cells(entry), "")
        for entry in reply.inputs
        if entry.cluster not in placed
    ]
    columns = ("CLUSTER", "TIER", "REPLICAS", "ON NEW NODES", "ROOM BEFORE", "LIMITED BY", "AGE", "")
    shown = make_table(
        columns, sorted(rows, key=lambda row: str(row[0])), right=("REPLICAS", "ON NEW NODES", "ROOM BEFORE")
    )
    warnings = [
        *_warning_lines(reply.unmodelled, reply.stale),
        *(Text(text, style="yellow") for text in reply.warnings),
    ]
    return Group(placement_summary_line(reply), *((shown,) if rows else ()), *warnings)


def render_workload(reply: WorkloadReply) -> RenderableType:
    """Renders a workload: what was asked for, its places, what each cluster reports, and its last decisions.

    Of a workload that is not declared any more it shows only the last decisions.
    """
    if reply.gone:
        return Group(
            _undeclared_workload_line(reply),
            Text(""),
            decision_history_table(reply.history),
            *_warning_lines((), reply.placement.stale),
        )
    parts: list[RenderableType] = [placement_summary_line(reply.placement, reply.kind), workload_parts_table(reply)]
    if reply.history:
        parts += [Text(""), decision_history_table(reply.history)]
    return Group(*parts, *_warning_lines(reply.placement.unmodelled, reply.placement.stale))


def _undeclared_workload_line(reply: WorkloadReply) -> Text:
    last = reply.history[0]
    text = Text(f"{reply.placement.namespace}/{reply.placement.name}", style="bold")
    return text.append(f"  is not declared any more: {last.cause} {wall_time_text(last.at_ms)}", style="not bold")


def workload_parts_table(reply: WorkloadReply) -> Table:
    statuses = {status.cluster: status for status in reply.statuses}
    rows = [
        (
            part.cluster,
            part.tier,
            part.replicas,
            part.replicas_new or "",
            *_status_cells(statuses.get(part.cluster), part),
        )
        for part in sorted_by_cluster(reply.placement.parts)
    ]
    columns = ("CLUSTER", "TIER", "REPLICAS", "ON NEW NODES", "READY", "UPDATED", "PENDING", "STATE", "")
    return make_table(columns, rows, right=("REPLICAS", "ON NEW NODES", "READY", "UPDATED", "PENDING"))


def workloads_table(replies: Iterable[WorkloadReply]) -> Table:
    rows = [workload_row(reply) for reply in replies]
    columns = ("NAMESPACE", "NAME", "REPLICAS", "PLACED", "READY", "WAITING", "CLUSTERS", "")
    return make_table(columns, rows, right=("REPLICAS", "PLACED", "READY", "WAITING"))


def workload_row(reply: WorkloadReply) -> tuple[object, ...]:
    shown = reply.placement
    held = [part for part in sorted_by_cluster(shown.parts) if part.replicas or part.removing or part.disowning]
    where = ", ".join(f"{part.cluster} {part.replicas}" for part in held)
    adopting = "being taken over" if any(part.adopting for part in held) else ""
    changing_hands = "disowning" if shown.disowning else adopting
    waits = "; ".join(filter(None, (changing_hands, _scaling_and_waiting_note(shown))))
    note = "deleting" if shown.deleting else waits
    return (
        shown.namespace,
        shown.name,
        shown.replicas,
        shown.placed,
        count_ready_replicas(reply),
        shown.unplaced or "",
        where,
        note,
    )


def workload_line(reply: WorkloadReply) -> str:
    namespace, name, replicas, placed, are_ready, waiting, where, note = workload_row(reply)
    counts = f"{counted_noun(int(str(replicas)), 'replica')}, {placed} placed, {are_ready} ready"
    rest = (f"{waiting} waiting" if waiting else "", f"in {where}" if where else "", str(note))
    return f"{namespace}/{name}: {'; '.join(filter(None, (counts, *rest)))}"


def _scaling_and_waiting_note(reply: PlacementReply) -> str:
    scaled = f"scaled by {reply.scaled_by}" if reply.scaled_by else ""
    return "; ".join(filter(None, (scaled, reply.waiting_for)))


def count_ready_replicas(reply: WorkloadReply) -> int:
    return sum(status.ready for status in reply.statuses)


def render_clusters(reply: ListClustersReply) -> RenderableType:
    """Renders the fleet: the state of each cluster, the age of its report, and how full it is."""
    rows = [_cluster_row(cluster) for cluster in sorted_by_cluster(reply.clusters)]
    columns = (
        "CLUSTER",
        "TIER",
        "STATE",
        "AGE",
        "NODES",
        "CPU USED",
        "MEMORY USED",
        "REPLICAS",
        "PENDING",
        "WHERE",
        "",
    )
    shown = make_table(columns, rows, right=("AGE", "NODES", "REPLICAS", "PENDING"))
    return (
        Group(shown, *_warning_lines((), reply.stale)) if rows else Text("no cluster: `spillway cluster join` adds one")
    )


def render_cluster(reply: ClusterReply) -> RenderableType:
    from spillway.api_clusters import ListClustersReply

    return render_clusters(ListClustersReply((reply,), False))


def loans_text(cluster: ClusterReply) -> str:
    """Returns the number of nodes that a cluster has lent and of virtual nodes in it; empty: there are none."""
    loans = ((cluster.nodes_lent, "lent node"), (cluster.nodes_virtual, "virtual node"))
    return " and ".join(counted_noun(number, what) for number, what in loans if number)


def nodes_table(found: Sequence[ListedNode]) -> Table:
    """Renders nodes. STATE has kubectl's words and the state of a loan."""
    rows = [
        (
            node.name,
            ", ".join(filter(None, ("Ready" if node.ready else "NotReady", "Cordoned" * node.cordoned, node.loan))),
            *(_usage_text(node, resource) for resource in ("cpu", "memory")),
            node.stands_for,
            ", ".join(node.taints),
        )
        for node in found
    ]
    return make_table(("NODE", "STATE", "CPU USED", "MEMORY USED", "STANDS FOR", "TAINTS"), rows)


def render_cluster_moves(reply: ClusterMovesReply) -> Text:
    """Renders the replicas that a cluster's new phase moves, and the reasons why some of them wait."""
    name, phase = reply.cluster.cluster, reply.cluster.phase
    text = Text(f"{name} is {phase}" if reply.changed else f"{name} is {phase} already", style="bold")
    if reply.replicas:
        verb = "are given up" if phase == PHASE_LOST else "go elsewhere"
        text.append(f": {counted_noun(reply.replicas, 'replica')} {verb}", style="not bold")
    if reply.confirm:
        text.append(f"; they wait for `spillway confirm {reply.confirm}`", style="yellow")
    if phase == PHASE_LEAVING and (loans := loans_text(reply.cluster)):
        text.append(f"; {loans} go back to their owners first", style="not bold")
    if reply.frozen:
        text.append(f"; nothing moves: {reply.frozen}", style="yellow")
    if phase == PHASE_LOST:
        text.append(f"; {_lost_cluster_warning(reply.cluster)}", style="yellow")
    elif reply.cluster.trouble:
        text.append(f"; {reply.cluster.trouble}", style="yellow")
    return text.append(_remaining_workload_lines(reply), style="not bold")


def _remaining_workload_lines(reply: ClusterMovesReply) -> str:
    """Returns a line for each workload that still is in the cluster.

    If this request has changed the phase, only those workloads appear that will not leave by themselves.
    """
    from spillway.api_clusters import LEFT_HELD, LEFT_REMOVING

    stuck = (LEFT_HELD, LEFT_REMOVING)
    found = [one for one in reply.cluster.left if not reply.changed or one.state in stuck]
    lines = [
        f"\n  {one.namespace}/{one.name}, {counted_noun(one.replicas)}: {one.state}"
        + (f": {one.reason}" if one.reason else "")
        for one in found
    ]
    more = reply.cluster.workloads - len(reply.cluster.left)
    return "".join(lines) + (f"\n  and {counted_noun(more, 'workload')} more" if lines and more > 0 else "")


def _lost_cluster_warning(cluster: ClusterReply) -> str:
    """Returns a warning about a cluster that an operator has declared lost: its pods may still run."""
    if cluster.trouble:
        return f"its collector says: {cluster.trouble}"
    return "no report of it comes, but it may still run: make sure that it is off"


def render_brakes(reply: ListBrakesReply) -> RenderableType:
    """Renders the brakes, the moves that wait for a confirmation, and the replicas that wait for the budget."""
    parts: list[RenderableType] = [brake_line(brake) for brake in reply.brakes] or [Text("nothing is frozen")]
    parts += [confirmation_line(confirmation) for confirmation in reply.confirmations]
    if reply.over_budget:
        waiting = counted_noun(reply.over_budget, "replica")
        budget = f"{waiting} wait for the budget of {reply.moves_per_minute:g} moves a minute"
        parts.append(Text(budget, style="yellow"))
    if reply.moved_last_minute or not reply.over_budget:
        moved = f"{counted_noun(reply.moved_last_minute, 'replica')} moved in the last minute"
        parts.append(Text(f"{moved}, of {reply.moves_per_minute:g} that the budget allows"))
    return Group(*parts, *_warning_lines((), reply.stale))


def brake_line(brake: Brake) -> Text:
    if not brake.frozen:
        was = f" any more; it was: {brake.reason or 'no reason given'}" if brake.at_ms else ", and was not"
        return Text(f"{brake.scope} is not frozen{was}")
    by = f" by {brake.by} {wall_time_text(brake.at_ms)}"
    text = Text(f"{brake.scope} is frozen", style="bold").append(
        f"{by}: {brake.reason or 'no reason given'}", "not bold"
    )
    if brake.replicas:
        text.append(f"; {counted_noun(brake.replicas, 'replica')} would move", style="yellow")
    return text


def confirmation_line(confirmation: Confirmation) -> Text:
    of = f"{confirmation.replicas} of {counted_noun(confirmation.fleet_replicas, 'replica')}"
    if confirmation.given:
        by = f" by {confirmation.by} {wall_time_text(confirmation.at_ms)}"
        return Text(f"{confirmation.scope} is confirmed", style="bold").append(f"{by}: {of} to move", "not bold")
    text = Text(f"{confirmation.scope} waits", style="bold yellow")
    return text.append(f" for `spillway confirm {confirmation.scope}`: {of} would move", "not bold")


def render_orphans(reply: ListOrphansReply) -> RenderableType:
    """Renders the orphans, each with the version of the last placement that listed it."""
    rows = [
        (
            one.cluster,
            one.kind,
            f"{one.namespace}/{one.name}",
            one.replicas if one.version else "",
            one.ready if one.version else "",
            one.version,
        )
        for one in sorted_by_cluster(reply.orphans)
    ]
    columns = ("CLUSTER", "KIND", "OBJECT", "REPLICAS", "READY", "LAST PLACEMENT")
    return Group(make_table(columns, rows, right=("REPLICAS", "READY")), *_warning_lines((), reply.stale))


def render_recovered_workloads(reply: RecoverFleetReply) -> RenderableType:
    """Renders the workloads that bear a former fleet's label, and the state of each."""
    rows = [
        (
            f"{one.namespace}/{one.name}",
            sum(count for _, count in one.replicas),
            ", ".join(f"{cluster} {count}" for cluster, count in sorted(one.replicas)),
            one.state,
            one.message,
        )
        for one in reply.workloads
    ]
    columns = ("DEPLOYMENT", "REPLICAS", "CLUSTERS", "STATE", "")
    return Group(make_table(columns, rows, right=("REPLICAS",)), *(Text(note, style="yellow") for note in reply.notes))


def render_batch_answers(names: Sequence[str], answers: Sequence[BatchAnswer]) -> RenderableType:
    """Renders a line for each workload of a batch; a refused workload has the reason."""
    rows = [_batch_row(name, answer) for name, answer in zip(names, answers, strict=True)]
    columns = ("WORKLOAD", "REPLICAS", "PLACED", "WAITING", "CLUSTERS", "")
    return make_table(columns, rows, right=("REPLICAS", "PLACED", "WAITING"))


def _batch_row(name: str, answer: BatchAnswer) -> tuple[object, ...]:
    reply = answer.placement
    if reply is None:
        return name, "", "", "", "", f"refused, {answer.code}: {answer.error}"
    where = ", ".join(f"{part.cluster} {part.replicas}" for part in sorted_by_cluster(reply.parts) if part.replicas)
    return name, reply.replicas, reply.placed, reply.unplaced or "", where, _scaling_and_waiting_note(reply)


def render_capacity(reply: CapacityReply) -> RenderableType:
    """Renders how many replicas of a shape fit in each cluster."""
    rows = [
        (
            entry.cluster,
            entry.tier,
            entry.certain,
            entry.possible,
            entry.reserved,
            entry.limited_by,
            duration_text(entry.age_ms),
        )
        for entry in sorted_by_cluster(reply.clusters)
    ]
    total = sum(entry.certain for entry in reply.clusters)
    columns = ("CLUSTER", "TIER", "FITS MORE", "AT MOST", "RESERVED", "LIMITED BY", "AGE")
    shown = make_table(columns, rows, right=("FITS MORE", "AT MOST", "RESERVED"))
    return Group(Text(f"{total} replicas fit", style="bold"), shown, *_warning_lines(reply.unmodelled, reply.stale))


def decision_history_table(records: Sequence[DecisionRecorded]) -> Table:
    rows = [
        (
            str(record.generation),
            f"{record.cause} by {record.scaled_by}" if record.scaled_by else record.cause,
            record.replicas,
            record.unplaced or "",
            ", ".join(
                f"{entry.cluster} {entry.before}→{entry.after}"
                for entry in sorted_by_cluster(record.inputs)
                if entry.after or entry.before
            ),
        )
        for record in records
    ]
    return make_table(("DECISION", "CAUSE", "REPLICAS", "UNPLACED", "CLUSTERS"), rows, right=("REPLICAS", "UNPLACED"))


def placement_summary_line(reply: PlacementReply, kind: str = "") -> Text:
    """Returns one line: how many replicas were asked for, and how many have a place."""
    text = Text(f"{kind + ' ' if kind else ''}{reply.namespace}/{reply.name}", style="bold")
    if reply.deleting or reply.disowning:
        left, what = sum(1 for _ in reply.parts), "deleted" if reply.deleting else "disowned"
        text.append(f"  is being {what}: {left} cluster{'s' * (left != 1)} to go", style="not bold")
        return text.append(f"; {reply.waiting_for}", style="yellow") if reply.disowning and reply.waiting_for else text
    scaled = f" (scaled by {reply.scaled_by})" if reply.scaled_by else ""
    text.append(f"  {reply.replicas} replicas{scaled}: {reply.placed} placed", style="not bold")
    if reply.unplaced:
        text.append(f", {reply.unplaced} wait", style="yellow")
        if reply.waiting_for:
            text.append(f" for {reply.waiting_for}", style="not bold")
    elif reply.waiting_for:
        text.append(f"; {reply.waiting_for}", style="yellow")
    return text


def _cluster_row(reply: ClusterReply) -> tuple[object, ...]:
    nodes = f"{reply.nodes_ready}/{reply.nodes}"
    nodes += f", {reply.nodes_virtual} virtual" if reply.nodes_virtual else ""
    nodes += f" + {reply.nodes_lent} lent" if reply.nodes_lent else ""
    used = (_usage_text(reply, resource) for resource in ("cpu", "memory"))
    where = "/".join(part for part in (reply.region, reply.zone) if part)
    pending = reply.unschedulable_pods or ""
    state = reply.state if reply.phase == PHASE_ACTIVE else f"{reply.state}, {reply.phase}"
    age = duration_text(reply.age_ms)
    return reply.cluster, reply.tier, state, age, nodes, *used, reply.replicas or "", pending, where, reply.trouble


def _usage_text(reply: ClusterReply | ListedNode, resource: str) -> str:
    have, asked = dict(reply.allocatable).get(resource, 0), dict(reply.requested).get(resource, 0)
    if not have:
        return ""
    return (
        f"{resource_amount_text(resource, asked)} of {resource_amount_text(resource, have)} ({100 * asked // have} %)"
    )


def _room_cells(entry: ClusterInput | None) -> tuple[object, ...]:
    return (entry.certain, entry.limited_by, duration_text(entry.age_ms)) if entry else ("", "", "")


def _status_cells(status: ClusterStatus | None, part: PlacedPart) -> tuple[object, ...]:
    if status is None:
        return "", "", "", "", _part_note(part)
    said = "; ".join(text for text in (_part_note(part), status.message, status.unschedulable_reason) if text)
    return status.ready, status.updated, status.unschedulable or "", status.state, said


def _part_note(part: PlacedPart) -> str:
    notes = (
        "being removed" if part.removing else "",
        "being disowned" if part.disowning else "",
        "being taken over" if part.adopting else "",
        f"{part.replicas_lost} lost, replaced elsewhere" if part.replicas_lost else "",
        f"{part.replicas_leaving} leaving" if part.replicas_leaving else "",
    )
    return ", ".join(note for note in notes if note)


def _warning_lines(unmodelled: Sequence[str], stale: bool) -> list[Text]:
    found = [Text(f"not computed: {', '.join(unmodelled)}", style="yellow")] if unmodelled else []
    return found + ([Text(_STALE, style="yellow")] if stale else [])
