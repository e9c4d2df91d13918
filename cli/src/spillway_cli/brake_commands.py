"""Commands on brakes: freeze, unfreeze, brakes, confirm."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway.scopes import FLEET_SCOPE, SCOPE_KINDS, cluster_scope, workload_scope
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.exits import bad_input_error, print_message
from spillway_cli.options import Format, Namespace, Output
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.session import run_with_planner_client

app = typer.Typer()

Kind = Annotated[str, typer.Argument(metavar="[fleet|cluster|workload]", help="Kind of scope.")]
Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="Cluster, or NAMESPACE/NAME of a workload.", show_default=False)
]


@app.command(
    epilog="Examples:  spillway freeze --reason 'network change'  ·  spillway freeze cluster own-1  ·  "
    "spillway freeze workload shop/web"
)
def freeze(
    context: typer.Context,
    kind: Kind = FLEET_SCOPE,
    name: Name = "",
    reason: Annotated[str, typer.Option(help="Reason, for people who find the scope frozen.")] = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Stop moves of replicas in the fleet, a cluster or a workload; apply, scale and delete still work."""

    async def freeze_scope(client: PlannerClient, config: Config) -> None:
        scope = parse_scope(kind, name, namespace or config.namespace)
        _print_brake(await client.freeze(api.FreezeRequest(scope, reason)), output)

    run_with_planner_client(context, freeze_scope)


@app.command(epilog="Examples:  spillway unfreeze  ·  spillway unfreeze cluster own-1")
def unfreeze(
    context: typer.Context,
    kind: Kind = FLEET_SCOPE,
    name: Name = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Release a brake that freeze set."""

    async def unfreeze_scope(client: PlannerClient, config: Config) -> None:
        scope = parse_scope(kind, name, namespace or config.namespace)
        _print_brake(await client.unfreeze(api.UnfreezeRequest(scope)), output)

    run_with_planner_client(context, unfreeze_scope)


@app.command(epilog="Example:  spillway brakes -o json")
def brakes(context: typer.Context, output: Output = Format.table) -> None:
    """Show the brakes and the open confirmations, and how many replicas each of them holds back."""

    async def show_brakes(client: PlannerClient, _: Config) -> None:
        reply = await client.list_brakes(api.ListBrakesRequest())
        if output is Format.table:
            stdout_console().print(tables.render_brakes(reply))
            return
        print_for_machines(reply, output)
        if reply.stale:
            print_message(
                "warning: the planner that answered cannot prove that it is the active one: the answer may be old"
            )

    run_with_planner_client(context, show_brakes)


@app.command(epilog="Example:  spillway confirm Drain/own-1")
def confirm(
    context: typer.Context,
    scope: Annotated[str, typer.Argument(help="CAUSE/CLUSTER, as `spillway brakes` shows it.", show_default=False)],
    output: Output = Format.table,
) -> None:
    """Allow a cause to move more replicas of the fleet than its limit, until the cause is over."""

    async def confirm_moves(client: PlannerClient, _: Config) -> None:
        reply = await client.confirm(api.ConfirmRequest(scope))
        if output is Format.table:
            stdout_console().print(tables.confirmation_line(reply))
        else:
            print_for_machines(reply, output)

    run_with_planner_client(context, confirm_moves)


def parse_scope(kind: str, name: str, namespace: str) -> str:
    """Returns the scope that the arguments name: a kind and a name, or one scope as `spillway brakes` shows it."""
    if "/" in kind and not name:
        return kind
    match kind, name:
        case "fleet", "":
            return FLEET_SCOPE
        case "cluster", name if name:
            return cluster_scope(name)
        case "workload", name if name:
            space, slash, own = name.rpartition("/")
            return workload_scope(space if slash else namespace, own)
    given = f"{kind} {name}".strip()
    raise bad_input_error(f"{given!r}: expected one of {', '.join(SCOPE_KINDS)}, and a name after cluster or workload")


def _print_brake(reply: api.Brake, output: Format) -> None:
    if output is Format.table:
        stdout_console().print(tables.brake_line(reply))
    else:
        print_for_machines(reply, output)
