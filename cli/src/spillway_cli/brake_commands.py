"""Commands on brakes: freeze, unfreeze, brakes, confirm."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway.scopes import FLEET_SCOPE, SCOPE_KINDS, cluster_scope, workload_scope
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.exits import bad_input, say
from spillway_cli.options import Format, Namespace, Output
from spillway_cli.output import console, print_machine
from spillway_cli.session import with_planner

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
    """Keep replicas of the fleet, a cluster or a workload where they are; apply, scale and delete go on."""

    async def body(client: PlannerClient, config: Config) -> None:
        scope = scope_of(kind, name, namespace or config.namespace)
        _show(await client.freeze(api.FreezeRequest(scope, reason)), output)

    with_planner(context, body)


@app.command(epilog="Examples:  spillway unfreeze  ·  spillway unfreeze cluster own-1")
def unfreeze(
    context: typer.Context,
    kind: Kind = FLEET_SCOPE,
    name: Name = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Release a brake that freeze set."""

    async def body(client: PlannerClient, config: Config) -> None:
        scope = scope_of(kind, name, namespace or config.namespace)
        _show(await client.unfreeze(api.UnfreezeRequest(scope)), output)

    with_planner(context, body)


@app.command(epilog="Example:  spillway brakes -o json")
def brakes(context: typer.Context, output: Output = Format.table) -> None:
    """Show what is frozen, which confirmations wait, and how many replicas each holds back."""

    async def body(client: PlannerClient, _: Config) -> None:
        reply = await client.list_brakes(api.ListBrakesRequest())
        if output is Format.table:
            console().print(tables.brakes(reply))
            return
        print_machine(reply, output)
        if reply.stale:
            say("warning: the planner that answered cannot prove that it is the active one: the answer may be old")

    with_planner(context, body)


@app.command(epilog="Example:  spillway confirm Drain/own-1")
def confirm(
    context: typer.Context,
    scope: Annotated[str, typer.Argument(help="CAUSE/CLUSTER, as `spillway brakes` shows it.", show_default=False)],
    output: Output = Format.table,
) -> None:
    """Let a cause move more of the fleet than its bound, until the cause is over."""

    async def body(client: PlannerClient, _: Config) -> None:
        reply = await client.confirm(api.ConfirmRequest(scope))
        if output is Format.table:
            console().print(tables.confirmation_line(reply))
        else:
            print_machine(reply, output)

    with_planner(context, body)


def scope_of(kind: str, name: str, namespace: str) -> str:
    """Returns the scope of the arguments: a kind and a name, or a scope as `spillway brakes` shows it."""
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
    raise bad_input(f"{given!r}: expected one of {', '.join(SCOPE_KINDS)}, and a name after cluster or workload")


def _show(reply: api.Brake, output: Format) -> None:
    if output is Format.table:
        console().print(tables.brake_line(reply))
    else:
        print_machine(reply, output)
