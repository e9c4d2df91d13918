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
from spillway_cli.exits import make_waiting_printer, print_message
from spillway_cli.lending_commands import STALE
from spillway_cli.lending_rules import (
    NUMBER_MAX,
    LendingFields,
    RuleFields,
    lending_requests_of,
    parse_label_requirements,
)
from spillway_cli.options import Format, Output, Timeout, Wait
from spillway_cli.output import make_table, print_for_machines, resource_amount_text, stdout_console, wall_time_text
from spillway_cli.session import run_with_lending_client
from spillway_cli.waiting import wait_until_withdrawn

app = typer.Typer()

Owner = Annotated[str, typer.Argument(help="The owner of the nodes.", show_default=False)]
OwnerOrAll = Annotated[str, typer.Argument(metavar="[CLUSTER]", help="The owner of the nodes.", show_default="all")]
Reason = Annotated[str, typer.Option(help="Reason, for people who read it later.", show_default=False)]


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
        str, typer.Option("--class", help="idle: lend idle nodes; dedicated: lend always.", show_default="idle")
    ] = "",
    share: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Largest share of nodes to lend, in percent.", show_default="100"),
    ] = None,
    reserve: Annotated[int, typer.Option(min=0, max=NUMBER_MAX, help="Number of idle nodes to keep, never lent.")] = 0,
    idle: Annotated[
        int | None,
        typer.Option(min=0, max=NUMBER_MAX, help="Idle seconds before a loan.", show_default="600; dedicated: 0"),
    ] = None,
    cost: Annotated[float, typer.Option(min=0, max=NUMBER_MAX, help="Cost of one node per hour.")] = 0,
    grace: Annotated[
        int | None,
        typer.Option(min=1, max=NUMBER_MAX, help="Grace period of evicted pods, in seconds.", show_default="30"),
    ] = None,
    cooldown: Annotated[
        int | None,
        typer.Option(min=1, max=NUMBER_MAX, help="Seconds for which a returned node is not lent.", show_default="1800"),
    ] = None,
    recalls: Annotated[
        int,
        typer.Option(
            "--recalls-per-minute", min=0, max=NUMBER_MAX, help="Most recalls a minute for waiting pods; 0: no limit."
        ),
    ] = 0,
    plan: Annotated[bool, typer.Option("--plan", "--plan-only", help="Show the declaration; store nothing.")] = False,
    output: Output = Format.table,
) -> None:
    """Declare how a cluster lends its idle nodes, and to which pool; this replaces a former declaration."""

    async def declare_lending_rules(client: LendingClient, _: Config) -> None:
        rule = RuleFields("all", parse_label_requirements(nodes or ()), supply_class, share or 0, reserve, idle, cost)
        flags = LendingFields(cluster, pool, (rule,), grace or 0, cooldown or 0, recalls)
        asked = lending_requests_of(files, flags)
        # All declarations are planned before the first is made, so that a mistake in one of them changes nothing.
        declared = [await _declare_or_name_place(client, replace(one, plan_only=True), where) for one, where in asked]
        if not plan:
            declared = [await _declare_or_name_place(client, one, where) for one, where in asked]
        _print_lending(declared, output)
        for reply in declared:
            outcome = "would be declared" if plan else "declared"
            print_message(f"{reply.cluster} lends to {reply.pool}: {outcome if reply.changed else 'is as it was'}")

    run_with_lending_client(context, declare_lending_rules)


@app.command(name="list", epilog="Examples:  spillway lending list  ·  spillway lending list -o json")
def list_lending(context: typer.Context, output: Output = Format.table) -> None:
    """Show which clusters lend, to which pools, and how much of each is lent now."""

    async def show_all_lending(client: LendingClient, _: Config) -> None:
        found = await _read_lending(client, "")
        print_message(_lending_totals_text(found))
        _print_lending(found, output)

    run_with_lending_client(context, show_all_lending)


@app.command(epilog="Example:  spillway lending get own-1 -o yaml")
def get(context: typer.Context, cluster: Owner, output: Output = Format.table) -> None:
    """Show the lending of one cluster: its rules, its numbers, and who declared it."""

    async def show_cluster_lending(client: LendingClient, _: Config) -> None:
        (found,) = await _read_lending(client, cluster)
        if output is Format.table:
            stdout_console().print(_rules_table(found))
            print_message(_lending_numbers_text(found))
        else:
            print_for_machines(found, output)

    run_with_lending_client(context, show_cluster_lending)


@app.command(epilog="Examples:  spillway lending pause own-1 --reason 'sale'  ·  spillway lending pause")
def pause(context: typer.Context, cluster: OwnerOrAll = "", reason: Reason = "", output: Output = Format.table) -> None:
    """Stop new loans of one cluster or of all until they are resumed; nodes that are lent stay lent."""

    async def pause_lending(client: LendingClient, _: Config) -> None:
        reply = await client.pause_lending(PauseLendingRequest(cluster, reason))
        _print_changed_lending(reply.clusters, "paused", output)

    run_with_lending_client(context, pause_lending)


@app.command(epilog="Examples:  spillway lending resume own-1  ·  spillway lending resume")
def resume(context: typer.Context, cluster: OwnerOrAll = "", output: Output = Format.table) -> None:
    """Allow new loans again after a pause."""

    async def resume_lending(client: LendingClient, _: Config) -> None:
        reply = await client.resume_lending(ResumeLendingRequest(cluster))
        _print_changed_lending(reply.clusters, "resumed", output)

    run_with_lending_client(context, resume_lending)


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

    async def withdraw_lending(client: LendingClient, _: Config) -> None:
        reply = await client.withdraw_lending(WithdrawLendingRequest(cluster, reason))
        _print_changed_lending(reply.clusters, "being withdrawn", output)
        if wait:
            await wait_until_withdrawn(client, cluster, timeout, make_waiting_printer())
            print_message(f"{cluster}: lending is withdrawn; none of its nodes is lent")
        else:
            print_message("`lending list` shows the cluster until its last node is back; --wait waits for it")

    run_with_lending_client(context, withdraw_lending)


async def _declare_or_name_place(client: LendingClient, request: DeclareLendingRequest, where: str) -> ClusterLending:
    try:
        return (await client.declare_lending(request)).clusters[0]
    except RequestError as error:
        if not where or error.code == "UNAVAILABLE":
            raise
        raise error.with_text(f"{where}: {error.text}") from None


async def _read_lending(client: LendingClient, cluster: str) -> Sequence[ClusterLending]:
    reply = await client.list_lending(ListLendingRequest(cluster))
    if reply.stale:
        print_message(STALE)
    return reply.clusters


def _lending_totals_text(clusters: Sequence[ClusterLending]) -> str:
    """Returns a text with the totals of all clusters: the lent cores, and how many of all nodes are lent."""
    cores = resource_amount_text("cpu", sum(one.cores_lent_milli for one in clusters))
    lent, nodes = (
        sum(count) for count in ([one.nodes_lent for one in clusters], [max(one.nodes, 0) for one in clusters])
    )
    owners = counted_noun(len(clusters), "cluster")
    text = f"{cores} cores lent: {lent} of {counted_noun(nodes, 'node')} lent by {owners}"
    checking = sum(one.nodes_checking for one in clusters)
    return f"{text}; {checking} checked before they are lent" if checking else text


def _print_changed_lending(clusters: Sequence[ClusterLending], word: str, output: Format) -> None:
    _print_lending(clusters, output)
    for one in clusters:
        print_message(f"{one.cluster}: {word if one.changed else f'is {word} already'}")


def _print_lending(clusters: Sequence[ClusterLending], output: Format) -> None:
    for one in clusters:
        for warning in one.warnings:
            print_message(f"warning: {one.cluster}: {warning}")
    if output is not Format.table:
        print_for_machines(clusters, output)
        return
    rows = [
        (
            one.cluster,
            one.pool,
            _lending_state(one),
            ", ".join(rule.name for rule in one.rules),
            one.nodes if one.nodes >= 0 else "",
            one.nodes_checking,
            one.nodes_lent,
            one.nodes_recalled,
            resource_amount_text("cpu", one.cores_lent_milli),
        )
        for one in clusters
    ]
    numbers = ("NODES", "CHECKED", "LENT", "RECALLED", "CPU LENT")
    stdout_console().print(make_table(("CLUSTER", "POOL", "STATE", "RULES", *numbers), rows, right=numbers))


def _lending_state(one: ClusterLending) -> str:
    return "withdrawing" if one.withdrawing else "paused" if one.paused else "lending"


def _rules_table(one: ClusterLending) -> object:
    heads = ("RULE", "NODES", "CLASS", "SHARE", "RESERVE", "IDLE FOR", "COST PER HOUR")
    rows = [
        (
            rule.name,
            _selected_nodes_text(rule),
            rule.supply_class,
            f"{rule.share_percent} %",
            rule.reserve_nodes,
            f"{rule.idle_seconds} s",
            f"{rule.cost_per_hour:g}",
        )
        for rule in one.rules
    ]
    return make_table(heads, rows, right=("SHARE", "RESERVE", "IDLE FOR", "COST PER HOUR"))


def _selected_nodes_text(rule: LendingRule) -> str:
    return ", ".join(_requirement_text(requirement) for requirement in rule.nodes) or "all"


def _requirement_text(one: Requirement) -> str:
    if one.operator == "In":
        return f"{one.key}={','.join(one.values)}"
    return " ".join(part for part in (one.key, one.operator, ",".join(one.values)) if part)


def _lending_numbers_text(one: ClusterLending) -> str:
    bound = (
        f"at most {counted_noun(one.recalls_per_minute, 'recall')} a minute" if one.recalls_per_minute else "no bound"
    )
    lent = counted_noun(one.nodes_lent, "node")
    parts = (
        f"{one.cluster} lends to {one.pool}: {_lending_state(one)}",
        f"{lent} lent, {one.nodes_recalled} recalled, {one.nodes_checking} being checked",
        f"grace {one.grace_seconds} s, cooldown {one.cooldown_seconds} s, {bound}",
        f"by {one.by or 'nobody named'} {wall_time_text(one.declared_ms)}{f': {one.reason}' if one.reason else ''}",
    )
    return "; ".join(parts)
