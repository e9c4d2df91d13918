"""Commands on the fleet: cluster join, list, nodes, cordon, uncordon, drain, leave; status."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from spillway import api
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING
from spillway.model import TIER_CLOUD, TIER_OWN
from spillway.rpc.calls import PLANNER
from spillway.rpc.client import PlannerClient
from spillway.texts import counted_noun
from spillway_cli import tables
from spillway_cli.config import Config, addresses_file
from spillway_cli.exits import (
    Code,
    CommandFailed,
    bad_input_error,
    exiting_on_error,
    make_waiting_printer,
    print_message,
)
from spillway_cli.lending_commands import pods_on_lent_nodes_text
from spillway_cli.local_commands import ANSWER_SECONDS, processes_table, read_processes
from spillway_cli.options import Format, Output, Timeout, Wait
from spillway_cli.output import duration_text, print_for_machines, stdout_console
from spillway_cli.reading import list_all_workloads
from spillway_cli.session import planner_client, print_answering_fleet, run_with_config, run_with_planner_client
from spillway_cli.waiting import is_access_refused, read_clusters, wait_until_handed_over, wait_until_heard

Name = Annotated[str, typer.Argument(help="Name of the cluster in the fleet.", show_default=False)]

NODES_PAGE_SIZE = 1000
LEAVE_SECONDS = 15.0
"""The longest wait, in seconds, until a cluster without any report has left. Usually that takes a few seconds."""

app = typer.Typer()


@app.command(epilog="Example:  spillway cluster join own-1 --credential own-1 --tier own --region eu --label gpu=a100")
def join(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    name: Name,
    *,
    credential: Annotated[
        str, typer.Option(help="Name of a kubeconfig in the services' credential folder.", show_default=False)
    ],
    tier: Annotated[str, typer.Option(help=f"Tier: {TIER_OWN}, {TIER_CLOUD}, or your own name for one.")] = TIER_OWN,
    new_tier: Annotated[
        bool, typer.Option("--new-tier", help="Allow a tier that no cluster has and no policy names.")
    ] = False,
    region: Annotated[str, typer.Option(help="Region of the cluster, for policies.")] = "",
    zone: Annotated[str, typer.Option(help="Zone of the cluster, for policies.")] = "",
    endpoint: Annotated[str, typer.Option(help="URL of the cluster's API, if it differs from the kubeconfig's.")] = "",
    label: Annotated[
        list[str] | None, typer.Option(help="Label key=value of the cluster, for policies. Repeatable.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until snapshot reports the cluster; --no-wait checks nothing."),
    ] = True,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that waiting may take.")] = 10.0,
    output: Output = Format.table,
) -> None:
    """Add a cluster to the fleet, or change its properties; then check that its credential works.

    If the credential does not work, a cluster that is new in the fleet is removed again.
    """

    async def join_cluster(client: PlannerClient, _: Config) -> None:
        request = api.JoinClusterRequest(
            name, credential, endpoint, tier, region, zone, _parse_labels(label or []), known_tier=not new_tier
        )
        is_new = wait and name not in [entry.cluster for entry in await read_clusters(client)]
        reply = await client.join_cluster(request)
        for warning in reply.warnings:
            print_message(f"warning: {name}: {warning}")
        if wait:
            reply = await wait_until_heard(client, reply, timeout)
            if is_new and is_access_refused(reply) and reply.state == "Unreachable":
                await _remove_joined_cluster(client, reply)
        _print_answer(reply, output, tables.render_cluster(reply))
        if wait:
            _report_join_trouble(reply, timeout)

    run_with_planner_client(context, join_cluster)


@app.command(name="list", epilog="Example:  spillway cluster list -o json")
def list_clusters(context: typer.Context, output: Output = Format.table) -> None:
    """List the clusters with their state, the age of their last report, and their use of CPU and memory."""

    async def show_clusters(client: PlannerClient, _: Config) -> None:
        reply = await client.list_clusters(api.ListClustersRequest())
        if output is Format.table:
            print_answering_fleet(client)
        _print_answer(reply.clusters, output, tables.render_clusters(reply))
        if reply.stale and output is not Format.table:
            print_message(
                "warning: the planner that answered cannot prove that it is the active one: the answer may be old"
            )

    run_with_planner_client(context, show_clusters)


@app.command(epilog="Example:  spillway cluster nodes own-1 -o json")
def nodes(context: typer.Context, name: Name, output: Output = Format.table) -> None:
    """List the nodes of a cluster by their names: state, how full each is, which are lent or stand for lent ones."""

    async def show_nodes(client: PlannerClient, _: Config) -> None:
        found: list[api.ListedNode] = []
        request = api.ListNodesRequest(name, NODES_PAGE_SIZE)
        while True:
            reply = await client.list_nodes(request)
            found += reply.nodes
            if not reply.next_page_token:
                break
            request = replace(request, page_token=reply.next_page_token)
        _print_answer(found, output, tables.nodes_table(found))
        known = f"as heard {duration_text(reply.age_ms)} ago" if reply.age_ms >= 0 else "no report of it yet"
        print_message(f"{counted_noun(len(found), 'node')} of {name}, {known}")
        if reply.stale:
            print_message(
                "warning: the planner that answered cannot prove that it is the active one: the answer may be old"
            )

    run_with_planner_client(context, show_nodes)


@app.command(epilog="Example:  spillway cluster cordon own-1")
def cordon(context: typer.Context, name: Name, output: Output = Format.table) -> None:
    """Place no new replicas in a cluster; the replicas that it has stay."""
    _set_cluster_phase(context, name, PHASE_CORDONED, output)


@app.command(epilog="Example:  spillway cluster uncordon own-1")
def uncordon(context: typer.Context, name: Name, output: Output = Format.table) -> None:
    """Make a cluster active again: end its cordon, drain or leave, while it is still in the fleet.

    Replicas that already have a replacement elsewhere still leave; the others stay.
    """
    _set_cluster_phase(context, name, PHASE_ACTIVE, output)


@app.command(epilog="Example:  spillway cluster drain own-1 --wait")
def drain(
    context: typer.Context,
    name: Name,
    *,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Move the replicas of a cluster to other clusters; each one leaves once its replacement is available."""
    _set_cluster_phase(context, name, PHASE_DRAINING, output, timeout if wait else 0.0)


@app.command(epilog="Examples:  spillway cluster leave own-1 --wait  ·  spillway cluster leave own-1 --lost")
def leave(
    context: typer.Context,
    name: Name,
    *,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="The cluster will not return: give up its replicas. Refused while it reports."),
    ] = False,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Remove a cluster from the fleet: its replicas move to other clusters, and it leaves once it has none."""

    async def leave_fleet(client: PlannerClient, config: Config) -> None:
        reply = await client.leave_cluster(api.LeaveClusterRequest(name, lost))
        await _show_moves(client, config, reply, output, timeout if wait else 0.0)

    run_with_planner_client(context, leave_fleet)


@app.command(epilog="Example:  spillway status -o json")
def status(context: typer.Context, output: Output = Format.table) -> None:
    """Show the planner, brakes, each cluster's state and age, the totals of all workloads, and local processes."""
    with exiting_on_error():
        processes = read_processes(addresses_file().parent)
        if processes and output is Format.table:
            stdout_console().print(processes_table(processes), "")

    async def ask_answering_planners(config: Config) -> None:
        silent = await _silent_planner_endpoints(config)
        answering = tuple(one for one in config.endpoints if one not in silent)
        # A planner that hangs is left out. If no planner answers, the client says why.
        async with planner_client(replace(config, endpoints=answering or config.endpoints)) as client:
            await show_status(client, config, silent)

    async def show_status(client: PlannerClient, config: Config, silent: Sequence[str]) -> None:
        fleet = await client.list_clusters(api.ListClustersRequest())
        brakes = await client.list_brakes(api.ListBrakesRequest())
        workloads = await list_all_workloads(client, "")
        placements = [workload.placement for workload in workloads]
        sums = {
            "workloads": len(workloads),
            "deleting": sum(placement.deleting for placement in placements),
            "replicas": sum(placement.replicas for placement in placements),
            "placed": sum(placement.placed for placement in placements),
            "unplaced": sum(placement.unplaced for placement in placements),
            "ready": sum(tables.count_ready_replicas(workload) for workload in workloads),
        }
        planner = {
            "endpoints": list(config.endpoints),
            "fleet": client.fleets.answered,
            "leader": client.active_instance_address(),
            "stale": fleet.stale,
            "silent": list(silent),
        }
        if output is not Format.table:
            document = {
                "planner": planner,
                "brakes": brakes.brakes,
                "confirmations": brakes.confirmations,
                "clusters": fleet.clusters,
                "workloads": sums,
                "processes": processes,
            }
            print_for_machines(document, output)
            return
        _print_planner(client, silent)
        _print_fleet_tables(fleet, brakes, sums)

    run_with_config(context, ask_answering_planners)


def _print_planner(client: PlannerClient, silent: Sequence[str]) -> None:
    whose = f"; fleet {client.fleets.answered}" if client.fleets.answered else ""
    leader = client.active_instance_address()
    who = f"the active one is {leader}" if leader else "no active one is known"
    away = f"; silent: {', '.join(silent)}" if silent else ""
    line = Text("planner    ", style="bold").append(f"answers{whose}; {who}{away}", style="not bold")
    stdout_console().print(line)


def _print_fleet_tables(fleet: api.ListClustersReply, brakes: api.ListBrakesReply, sums: Mapping[str, int]) -> None:
    """Prints the sums over all workloads, the brakes, and the clusters."""
    out = stdout_console()
    line = ", ".join(f"{count} {name}" for name, count in list(sums.items())[2:])
    out.print(Text("workloads  ", style="bold").append(f"{sums['workloads']}: {line}", style="not bold"))
    if brakes.brakes or brakes.confirmations or brakes.over_budget:
        out.print("", tables.render_brakes(replace(brakes, stale=False)))
    out.print("")
    out.print(tables.render_clusters(fleet))


async def _silent_planner_endpoints(config: Config) -> list[str]:
    """Returns the planner endpoints that do not answer. All are asked at the same time."""
    from spillway.rpc.probe import Identity, probe_instance

    identity = Identity(config.token, config.ca, config.certificate, config.key)
    probed = await asyncio.gather(
        *(probe_instance(PLANNER, endpoint, identity, ANSWER_SECONDS) for endpoint in config.endpoints)
    )
    return [one.endpoint for one in probed if one.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")]


def _set_cluster_phase(context: typer.Context, name: str, phase: str, output: Format, seconds: float = 0.0) -> None:
    async def set_phase_and_show_moves(client: PlannerClient, config: Config) -> None:
        reply = await client.set_cluster_phase(api.SetClusterPhaseRequest(name, phase))
        await _show_moves(client, config, reply, output, seconds)

    run_with_planner_client(context, set_phase_and_show_moves)


async def _show_moves(
    client: PlannerClient, config: Config, reply: api.ClusterMovesReply, output: Format, seconds: float
) -> None:
    """Shows how many replicas will move. seconds: how long to wait until they have moved; 0 does not wait."""
    _print_answer(reply, output, tables.render_cluster_moves(reply))
    if seconds:
        name, phase = reply.cluster.cluster, reply.cluster.phase
        drained = await wait_until_handed_over(client, name, phase, seconds, make_waiting_printer())
        outcome = "it has left the fleet" if drained is None else await _drained_cluster_text(config, drained)
        print_message(f"{name}: {outcome}")


async def _drained_cluster_text(config: Config, drained: api.ClusterReply) -> str:
    """Returns a text on the nodes that a drained cluster has lent: which pods of other clusters still run there."""
    nothing = "no replica of the fleet's workloads is left there"
    if not drained.nodes_lent:
        return nothing
    try:
        lent = await pods_on_lent_nodes_text(config, drained.cluster)
    except api.RequestError as error:
        lent = f"{counted_noun(drained.nodes_lent, 'lent node')}, and what runs on them is not known: {error.text}"
    back = f"`spillway lending pause {drained.cluster}` and `spillway recall {drained.cluster}` bring the nodes back"
    empty = f"{nothing}; no pod runs on its {counted_noun(drained.nodes_lent, 'lent node')}"
    return f"{nothing}, but {lent}; {back}" if lent else empty


async def _remove_joined_cluster(client: PlannerClient, cluster: api.ClusterReply) -> None:
    """Removes a cluster that has just joined from the fleet, because its credential does not work. Then fails."""
    name = cluster.cluster
    await client.leave_cluster(api.LeaveClusterRequest(name))
    text = f"credential {cluster.credential!r} does not work: {cluster.trouble}"
    try:
        await wait_until_handed_over(client, name, PHASE_LEAVING, LEAVE_SECONDS, lambda _: None)
    except CommandFailed as error:
        raise CommandFailed(f"{name}: {text}; it has not left the fleet again yet: {error}") from None
    raise CommandFailed(f"{name} has not joined: {text}")


def _report_join_trouble(cluster: api.ClusterReply, seconds: float) -> None:
    """Prints why nothing can be placed in a cluster that has just joined. Fails if nothing can be read there."""
    name, trouble = cluster.cluster, cluster.trouble
    if cluster.state == "Unknown":
        text = f"{name} has joined, but no report of it came within {seconds:g} s"
        where = "`spillway cluster list` shows when one comes, `spillway doctor` why none comes"
        raise CommandFailed(f"{text}; {where}", Code.TIMED_OUT)
    if cluster.state == "Ready" and trouble:
        print_message(f"warning: {name}: {trouble}")
    elif is_access_refused(cluster):
        mend = f"fix it, join again with another --credential, or remove the cluster: `spillway cluster leave {name}`"
        text = f"{name} is in the fleet, but credential {cluster.credential!r} does not work: {trouble}; {mend}"
        raise CommandFailed(text)
    elif cluster.state == "Unreachable":
        text = f"{name} has joined, but was not reached within {seconds:g} s, so nothing is placed there: {trouble}"
        raise CommandFailed(f"{text}; `spillway cluster leave {name}` removes it")


def _parse_labels(given: list[str]) -> tuple[tuple[str, str], ...]:
    labels: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise bad_input_error(f"--label {text!r}: expected key=value")
        labels[key] = value
    return tuple(sorted(labels.items()))


def _print_answer(value: object, output: Format, shown: Any) -> None:
    if output is Format.table:
        stdout_console().print(shown)
    else:
        print_for_machines(value, output)
