"""Renders an explanation for people: the verdict, then each cluster, then what would change it."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from spillway.api import ExplainedCluster, ExplainedNode, ExplainReply, NodeReason
from spillway.texts import counted_noun
from spillway_cli.output import duration_text, make_table, wall_time_text
from spillway_cli.tables import sorted_by_cluster

REASONS_SHOWN = 5


def render_explanation(reply: ExplainReply) -> RenderableType:
    parts: list[RenderableType] = [_title_line(reply), Text(reply.verdict), Text("")]
    if reply.node is not None:
        parts += [_render_node(reply.node)]
    else:
        parts += [line for entry in sorted_by_cluster(reply.clusters) for line in _cluster_lines(entry)]
    if reply.changes:
        parts += [Text(""), Text("Changes that would help, each one planned:", style="bold")]
        parts += [Text(f"  {change.text}") for change in reply.changes]
    notes = [*reply.notes, *((f"not computed: {', '.join(reply.unmodelled)}",) if reply.unmodelled else ())]
    if reply.stale:
        notes.append("the planner that answered cannot prove that it is the active one: the answer may be old")
    if notes:
        parts += [Text(""), *(Text(note, style="yellow") for note in notes)]
    return Group(*parts)


def _title_line(reply: ExplainReply) -> Text:
    text = Text(f"{reply.namespace}/{reply.name}", style="bold")
    if reply.decision:
        text.append(f"  decision {reply.decision}, {reply.cause}, {wall_time_text(reply.at_ms)}", style="not bold")
    return text


def _cluster_lines(entry: ExplainedCluster) -> Iterator[Text]:
    where = f"{entry.cluster}, on new nodes" if entry.node_groups else entry.cluster
    line = Text(where, style="bold")
    tier = f"tier {entry.tier}" if entry.tier else "in no tier"
    heard = "never heard" if entry.age_ms < 0 else f"heard {duration_text(entry.age_ms)} ago"
    line.append(f"  {tier}  {_replicas_and_room_text(entry)}  {heard}", style="not bold")
    yield line
    yield Text(f"  why not more: {entry.why}")
    if entry.reasons and (left := _room_left(entry, entry.certain)):
        yield Text(f"  what limits it after {left} more:")
    for reason in entry.reasons[:REASONS_SHOWN]:
        yield Text(f"    {_node_reason_text(reason)}")
    rest = sum(reason.nodes for reason in entry.reasons[REASONS_SHOWN:])
    if rest:
        yield Text(f"    {counted_noun(rest, 'node')}: other reasons")
    if entry.reserved_replicas:
        names = ", ".join(f"{name} {count}" for name, count in entry.reserved)
        more = " and others" if sum(count for _, count in entry.reserved) < entry.reserved_replicas else ""
        yield Text(f"    {counted_noun(entry.reserved_replicas, 'replica')} reserved, not bound yet: {names}{more}")


def _replicas_and_room_text(entry: ExplainedCluster) -> str:
    """Returns what a cluster has now, what the division gives it if that differs, and the room that is left then."""
    changes = entry.before != entry.after
    held = f"holds {entry.before} → {entry.after} replicas" if changes else f"holds {counted_noun(entry.after)}"
    least, most = _room_left(entry, entry.certain), _room_left(entry, entry.possible)
    left = f"{least}" if least == most else f"{least} to {most}"
    return f"{held}, room for {left} more{' then' if changes else ''}"


def _room_left(entry: ExplainedCluster, room: int) -> int:
    return max(0, room - max(0, entry.after - entry.before))


def _node_reason_text(reason: NodeReason) -> str:
    example = f" (e.g. {reason.example})" if reason.example else ""
    barred_by = f" [{reason.filter}]" if reason.filter else ""
    return f"{counted_noun(reason.nodes, 'node')}: {reason.reason}{example}{barred_by}"


def _render_node(node: ExplainedNode) -> RenderableType:
    verdict = f"takes {counted_noun(node.takes, 'replica')}" if node.takes else "takes none"
    rows = [(entry.filter, "passes" if entry.passes else "bars", entry.reason) for entry in node.filters]
    title = Text(f"{node.cluster} {node.node}: {verdict}", style="bold")
    return Group(title, make_table(("FILTER", "", "WHY"), rows))
