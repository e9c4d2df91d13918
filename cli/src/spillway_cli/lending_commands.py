"""Commands on lent nodes: lent, recall, idle report."""

import time
from collections import Counter
from typing import Annotated

import typer

from spillway.api_lending import IdleNode, IdleReportReply, IdleReportRequest, LentNode, ListLentRequest, RecallRequest
from spillway.events_lending import LOAN_LENT
from spillway.rpc.client import LendingClient
from spillway.texts import counted_noun
from spillway_cli.config import Config
from spillway_cli.exits import print_message
from spillway_cli.options import Format, Output
from spillway_cli.output import duration_text, make_table, print_for_machines, resource_amount_text, stdout_console
from spillway_cli.session import lending_client, run_with_lending_client

app = typer.Typer()

PAGE_SIZE = 500
NODES_NAMED = 10
"""The most nodes that a sentence names; `spillway lent` names all."""
HOUR_SECONDS = 3600
STALE = "warning: the descheduler that answered is not the active one: the answer may be old"
Cluster = Annotated[str, typer.Argument(metavar="[CLUSTER]", help="The owner of the nodes.", show_default="all")]


@app.command(epilog="Examples:  spillway lent  ·  spillway lent own-1  ·  spillway lent --pool pool-1 -o json")
def lent(
    context: typer.Context,
    cluster: Cluster = "",
    pool: Annotated[str, typer.Option(help="Show only nodes that are lent to this cluster.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:
    """Show the lent cores, and each lent or recalled node with its pods, its times and the cause of its recall."""

    async def show_lent_nodes(client: LendingClient, _: Config) -> None:
        found = await _list_all_lent_nodes(client, cluster, pool)
        print_message(_recovered_cores_text(found))
        _print_lent_nodes(found, output)

    run_with_lending_client(context, show_lent_nodes)


@app.command(epilog="Examples:  spillway recall own-1 node-7 --grace 5  ·  spillway recall own-1 --plan")
def recall(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(help="The owner of the nodes.", show_default=False)],
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="Names of the owner's nodes.", show_default="all")
    ] = None,
    *,
    grace: Annotated[int, typer.Option(min=0, help="Grace period in seconds of the nodes' pods; 0: as declared.")] = 0,
    reason: Annotated[str, typer.Option(help="Reason, for people who read it later.", show_default=False)] = "",
    plan: Annotated[
        bool, typer.Option("--plan", "--plan-only", help="Show the nodes that would go back, and recall none.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Recall lent nodes of a cluster, by name or all of them. Neither brakes nor the budget delay the recall."""

    async def recall_nodes(client: LendingClient, _: Config) -> None:
        reply = await client.recall(RecallRequest(cluster, tuple(nodes or ()), grace, reason, plan))
        _print_lent_nodes(list(reply.nodes), output)
        print_message(f"{counted_noun(reply.changed, 'node')} {'would be ' if plan else ''}recalled of {cluster}")

    run_with_lending_client(context, recall_nodes)


@app.command(epilog="Examples:  spillway idle report  ·  spillway idle report own-1 --hours 24 -o json")
def report(
    context: typer.Context,
    cluster: Cluster = "",
    hours: Annotated[int, typer.Option(min=1, max=168, help="Number of past hours that are shown.")] = 72,
    output: Output = Format.table,
) -> None:
    """Show nodes that were idle for at least half of the time, with the probable reason and a suggestion."""

    async def show_idle_report(client: LendingClient, _: Config) -> None:
        found: list[IdleNode] = []
        token = ""
        while True:
            reply = await client.idle_report(IdleReportRequest(cluster, hours, PAGE_SIZE, token))
            found += reply.nodes
            token = reply.next_page_token
            if not token:
                break
        if reply.stale:
            print_message(STALE)
        print_message(_average_recovered_cores_text(reply))
        _print_idle_nodes(found, reply, output)

    run_with_lending_client(context, show_idle_report)


async def pods_on_lent_nodes_text(config: Config, cluster: str) -> str:
    """Returns a text: how many pool pods run on nodes that a cluster has lent, and from which pools; empty: none."""
    async with lending_client(config) as client:
        found = [node for node in await _list_all_lent_nodes(client, cluster) if node.pods]
    names = [f"{node.node} ({counted_noun(node.pods, 'pod')} of {node.pool})" for node in found]
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    pods = counted_noun(sum(node.pods for node in found), "pod")
    of_nodes = counted_noun(len(found), "lent node")
    return f"{pods} of others on {of_nodes}: {', '.join(names[:NODES_NAMED])}{more}" if found else ""


async def _list_all_lent_nodes(client: LendingClient, cluster: str, pool: str = "") -> list[LentNode]:
    found: list[LentNode] = []
    token, stale = "", False
    while True:
        reply = await client.list_lent(ListLentRequest(cluster, pool, PAGE_SIZE, token))
        found += reply.nodes
        token, stale = reply.next_page_token, stale or reply.stale
        if not token:
            break
    if stale:
        print_message(STALE)
    return found


def _recovered_cores_text(nodes: list[LentNode]) -> str:
    """Returns a text with the totals: the lent cores by supply class, the nodes by state, and the pods."""
    cores = Counter[str]()
    for node in nodes:
        if node.state == LOAN_LENT:
            cores[node.supply_class] += dict(node.offered).get("cpu", 0)
    by_class = ", ".join(f"{resource_amount_text('cpu', milli)} {name}" for name, milli in sorted(cores.items()))
    lent = sum(node.state == LOAN_LENT for node in nodes)
    total = resource_amount_text("cpu", cores.total())
    return (
        f"{total} cores lent{f' ({by_class})' if by_class else ''}: {counted_noun(lent, 'node')} lent, "
        f"{len(nodes) - lent} recalled, {counted_noun(sum(node.pods for node in nodes), 'pod')}"
    )


def _average_recovered_cores_text(reply: IdleReportReply) -> str:
    cores, hours = resource_amount_text("cpu", reply.cores_lent_milli), reply.core_seconds_lent / HOUR_SECONDS
    span = duration_text(reply.until_ms - reply.from_ms)
    return f"{cores} cores lent on average in {span}: {hours:.1f} core-hours lent"


def _print_lent_nodes(nodes: list[LentNode], output: Format) -> None:
    if output is not Format.table:
        print_for_machines(nodes, output)
        return
    now_ms = round(time.time() * 1000)
    rows = [
        (
            node.cluster,
            node.node,
            node.pool,
            node.supply_class,
            f"{node.state} {duration_text(max(now_ms - node.recalled_ms, 0))} ago" if node.recalled_ms else node.state,
            resource_amount_text("cpu", dict(node.offered).get("cpu", 0)),
            node.pods,
            duration_text(max(now_ms - node.lent_ms, 0)) if node.lent_ms else "",
            ", ".join((node.cause, *node.wanted_by)) if node.cause else "",
            node.waiting,
        )
        for node in nodes
    ]
    heads = ("CLUSTER", "NODE", "POOL", "CLASS", "STATE", "CPU", "PODS", "LENT FOR", "RECALLED FOR", "WAITS FOR")
    stdout_console().print(make_table(heads, rows, right=("CPU", "PODS")))


def _print_idle_nodes(nodes: list[IdleNode], reply: IdleReportReply, output: Format) -> None:
    if output is not Format.table:
        print_for_machines({"nodes": nodes, **_idle_report_totals(reply)}, output)
        return
    rows = [
        (
            node.cluster,
            node.node,
            node.kind,
            resource_amount_text("cpu", node.cores_milli),
            duration_text(node.idle_ms),
            duration_text(node.lent_ms),
            duration_text(node.observed_ms),
            "requests only" if node.used_max_milli < 0 else resource_amount_text("cpu", node.used_max_milli),
            node.suggestion,
        )
        for node in nodes
    ]
    heads = ("CLUSTER", "NODE", "KIND", "CPU", "IDLE", "LENT", "OBSERVED", "CPU USED", "SUGGESTION")
    stdout_console().print(make_table(heads, rows, right=("CPU",)))
    cores, unused = (resource_amount_text("cpu", milli) for milli in (reply.cores_milli, reply.cores_idle_milli))
    observed = f"{counted_noun(reply.nodes_observed, 'node')} with {cores} cores, {unused} of them idle on average"
    print_message(f"{observed}; nodes of which only the pods' requests are known: {reply.requests_only}")


def _idle_report_totals(reply: IdleReportReply) -> dict[str, int]:
    return {
        "nodes_observed": reply.nodes_observed,
        "requests_only": reply.requests_only,
        "cores_milli": reply.cores_milli,
        "cores_idle_milli": reply.cores_idle_milli,
        "cores_lent_milli": reply.cores_lent_milli,
        "core_seconds_lent": reply.core_seconds_lent,
        "from_ms": reply.from_ms,
        "until_ms": reply.until_ms,
    }
