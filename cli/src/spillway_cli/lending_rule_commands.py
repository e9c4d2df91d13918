"""Commands on how clusters lend: lending declare, list, get, pause, resume, withdraw."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from spillway.api import RequestError
from spillway.api_lending import (
    ClusterLending,
    DeclareLendingRequest,
    ListLendingRequest,
    PauseLendingRequest,
    ResumeLendingRequest,
    WithdrawLendingRequest,
)
from spillway.events_lending import LendingRule
from spillway.model import Requirement
from spillway.rpc.client import LendingClient
from spillway.texts import counted_noun
from spillway_cli.config import Config
from spillway_cli.exits import say, say_waits
from spillway_cli.lending_commands import STALE
from spillway_cli.lending_rules import (
    NUMBER_MAX,
    LendingFields,
    RuleFields,
    asked_of,
    label_requirements,
)
from spillway_cli.options import Format, Output, Timeout, Wait
from spillway_cli.output import amount, console, print_machine, table, when
from spillway_cli.session import with_lending
from spillway_cli.waiting import until_withdrawn

app = typer.Typer()

Owner = Annotated[str, typer.Argument(help="The owner of the nodes.", show_default=False)]
OwnerOrAll = Annotated[str, typer.Argument(metavar="[CLUSTER]", help="The owner of the nodes.", show_default="all")]
Reason = Annotated[str, typer.Option(help="Reason, for people who look later.", show_default=False)]


@app.command(
    epilog="Examples:  spillway lending declare own-1 --pool pool-1 --share 50 --reserve 2  ·  "
    "spillway lending declare own-1 --pool pool-1 --nodes disk=nvme --class dedicated --plan  ·  "
    "spillway lending declare -f lending.yaml"
)
def declare(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    cluster: Annotated[
        str, typer.Argument(metavar="[CLUSTER]", help="The owner of the nodes; not with -f.", show_default=False)
    ] = "",
    *,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="YAML with cluster, pool and rules; - is stdin. Repeatable."),
    ] = None,
    pool: Annotated[str, typer.Option(help="Cluster that gets the virtual nodes.", show_default=False)] = "",
    nodes: Annotated[
        list[str] | None, typer.Option(help="Only nodes with this label: KEY, or KEY=VALUE[,VALUE]. Repeatable.")
    ] = None,
    supply_class: Annotated[
        str, typer.Option("--class", help="idle; or dedicated: lent always.", show_default="idle")
    ] = "",
    share: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Most nodes to lend, in percent; see lending pause.", show_default="100"),
    ] = None,
    reserve: Annotated[int, typer.Option(min=0, max=NUMBER_MAX, help="Idle nodes that are never lent.")] = 0,
    idle: Annotated[
        int | None,
        typer.Option(min=0, max=NUMBER_MAX, help="Least idle seconds before a loan.", show_default="600; dedicated: 0"),
    ] = None,
    cost: Annotated[float, typer.Option(min=0, max=NUMBER_MAX, help="Cost of one node per hour.")] = 0,
    grace: Annotated[
        int | None,
        typer.Option(min=1, max=NUMBER_MAX, help="Grace seconds of evicted pods.", show_default="30"),
    ] = None,
    cooldown: Annotated[
        int | None,
        typer.Option(min=1, max=NUMBER_MAX, help="Seconds that a node stays after its return.", show_default="1800"),
    ] = None,
    recalls: Annotated[
        int,
        typer.Option(
            "--recalls-per-minute", min=0, max=NUMBER_MAX, help="Most recalls a minute for pods; 0: no bound."
        ),
    ] = 0,
    plan: Annotated[bool, typer.Option("--plan", "--plan-only", help="Show the declaration; keep nothing.")] = False,
    output: Output = Format.table,
) -> None:
    """Declare how a cluster lends its idle nodes, and to which pool; this replaces a former declaration."""

    async def body(client: LendingClient, _: Config) -> None:
        rule = RuleFields("all", label_requirements(nodes or ()), supply_class, share or 0, reserve, idle, cost)
        flags = LendingFields(cluster, pool, (rule,), grace or 0, cooldown or 0, recalls)
        asked = asked_of(files, flags)
        planned = [await _declare(client, replace(request, plan_only=True), where) for request, where in asked]
        declared = planned if plan else [await _declare(client, request, where) for request, where in asked]
        _show(declared, output)
        for one in declared:
            said = "would be declared" if plan and one.changed else "declared" if one.changed else "is as it was"
            say(f"{one.cluster} lends to {one.pool}: {said}")

    with_lending(context, body)


@app.command(name="list", epilog="Examples:  spillway lending list  ·  spillway lending list -o json")
def list_all(context: typer.Context, output: Output = Format.table) -> None:
    """Show which clusters lend, to which pools, and how much of each is lent now."""

    async def body(client: LendingClient, _: Config) -> None:
        found = await _listed(client, "")
        say(_recovered(found))
        _show(found, output)

    with_lending(context, body)


@app.command(epilog="Example:  spillway lending get own-1 -o yaml")
def get(context: typer.Context, cluster: Owner, output: Output = Format.table) -> None:
    """Show how one cluster lends: its rules, its numbers, and who said so."""

    async def body(client: LendingClient, _: Config) -> None:
        (found,) = await _listed(client, cluster)
        if output is Format.table:
            console().print(_rules(found))
            say(_numbers(found))
        else:
            print_machine(found, output)

    with_lending(context, body)


@app.command(epilog="Examples:  spillway lending pause own-1 --reason 'sale'  ·  spillway lending pause")
def pause(context: typer.Context, cluster: OwnerOrAll = "", reason: Reason = "", output: Output = Format.table) -> None:
    """Lend nothing new, of one cluster or of all, until resumed; what is lent stays."""

    async def body(client: LendingClient, _: Config) -> None:
        reply = await client.pause_lending(PauseLendingRequest(cluster, reason))
        _say_changed(reply.clusters, "paused", output)

    with_lending(context, body)


@app.command(epilog="Examples:  spillway lending resume own-1  ·  spillway lending resume")
def resume(context: typer.Context, cluster: OwnerOrAll = "", output: Output = Format.table) -> None:
    """Lend again what was paused."""

    async def body(client: LendingClient, _: Config) -> None:
        reply = await client.resume_lending(ResumeLendingRequest(cluster))
        _say_changed(reply.clusters, "resumed", output)

    with_lending(context, body)


@app.command(
    epilog="Examples:  spillway lending withdraw own-1 --reason 'sold'  ·  spillway lending withdraw own-1 --wait"
)
def withdraw(
    context: typer.Context,
    cluster: Owner,
    reason: Reason = "",
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Recall all that a cluster has lent, then forget what it declared; `spillway lent` shows what is away still."""

    async def body(client: LendingClient, _: Config) -> None:
        reply = await client.withdraw_lending(WithdrawLendingRequest(cluster, reason))
        _say_changed(reply.clusters, "being withdrawn", output)
        if wait:
            await until_withdrawn(client, cluster, timeout, say_waits())
            say(f"{cluster}: lending is withdrawn; none of its nodes is lent")
        else:
            say("`lending list` shows the cluster until its last node is back; --wait waits for it")

    with_lending(context, body)


async def _declare(client: LendingClient, request: DeclareLendingRequest, where: str) -> ClusterLending:
    try:
        return (await client.declare_lending(request)).clusters[0]
    except RequestError as error:
        if not where or error.code == "UNAVAILABLE":
            raise
        raise error.with_text(f"{where}: {error.text}") from None


async def _listed(client: LendingClient, cluster: str) -> Sequence[ClusterLending]:
    reply = await client.list_lending(ListLendingRequest(cluster))
    if reply.stale:
        say(STALE)
    return reply.clusters


def _recovered(clusters: Sequence[ClusterLending]) -> str:
    """Returns the totals of all clusters: cores that run others' work, and lent nodes of all nodes."""
    cores = amount("cpu", sum(one.cores_lent_milli for one in clusters))
    lent, nodes = (
        sum(count) for count in ([one.nodes_lent for one in clusters], [max(one.nodes, 0) for one in clusters])
    )
    owners = counted_noun(len(clusters), "cluster")
    text = f"{cores} cores recovered: {lent} of {counted_noun(nodes, 'node')} lent by {owners}"
    checking = sum(one.nodes_checking for one in clusters)
    return f"{text}; {checking} checked before they are lent" if checking else text


def _say_changed(clusters: Sequence[ClusterLending], word: str, output: Format) -> None:
    _show(clusters, output)
    for one in clusters:
        say(f"{one.cluster}: {word if one.changed else f'is {word} already'}")


def _show(clusters: Sequence[ClusterLending], output: Format) -> None:
    for one in clusters:
        for warning in one.warnings:
            say(f"warning: {one.cluster}: {warning}")
    if output is not Format.table:
        print_machine(clusters, output)
        return
    rows = [
        (
            one.cluster,
            one.pool,
            _state(one),
            ", ".join(rule.name for rule in one.rules),
            one.nodes if one.nodes >= 0 else "",
            one.nodes_checking,
            one.nodes_lent,
            one.nodes_recalled,
            amount("cpu", one.cores_lent_milli),
        )
        for one in clusters
    ]
    numbers = ("NODES", "CHECKED", "LENT", "RECALLED", "CPU LENT")
    console().print(table(("CLUSTER", "POOL", "STATE", "RULES", *numbers), rows, right=numbers))


def _state(one: ClusterLending) -> str:
    return "withdrawing" if one.withdrawing else "paused" if one.paused else "lending"


def _rules(one: ClusterLending) -> object:
    heads = ("RULE", "NODES", "CLASS", "SHARE", "RESERVE", "IDLE FOR", "COST PER HOUR")
    rows = [
        (
            rule.name,
            _meant(rule),
            rule.supply_class,
            f"{rule.share_percent} %",
            rule.reserve_nodes,
            f"{rule.idle_seconds} s",
            f"{rule.cost_per_hour:g}",
        )
        for rule in one.rules
    ]
    return table(heads, rows, right=("SHARE", "RESERVE", "IDLE FOR", "COST PER HOUR"))


def _meant(rule: LendingRule) -> str:
    return ", ".join(_requirement(requirement) for requirement in rule.nodes) or "all"


def _requirement(one: Requirement) -> str:
    if one.operator == "In":
        return f"{one.key}={','.join(one.values)}"
    return " ".join(part for part in (one.key, one.operator, ",".join(one.values)) if part)


def _numbers(one: ClusterLending) -> str:
    bound = (
        f"at most {counted_noun(one.recalls_per_minute, 'recall')} a minute" if one.recalls_per_minute else "no bound"
    )
    lent = counted_noun(one.nodes_lent, "node")
    parts = (
        f"{one.cluster} lends to {one.pool}: {_state(one)}",
        f"{lent} lent, {one.nodes_recalled} recalled, {one.nodes_checking} being checked",
        f"grace {one.grace_seconds} s, cooldown {one.cooldown_seconds} s, {bound}",
        f"by {one.by or 'nobody named'} {when(one.declared_ms)}{f': {one.reason}' if one.reason else ''}",
    )
    return "; ".join(parts)
