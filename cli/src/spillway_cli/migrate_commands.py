"""Commands that move replicas by name: migrate workload."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_named
from spillway_cli.exits import say, say_waits
from spillway_cli.options import Format, Namespace, Output, Timeout, Wait
from spillway_cli.output import console, print_machine
from spillway_cli.session import with_planner
from spillway_cli.waiting import until_moved

app = typer.Typer()


@app.command(
    epilog="Examples:  spillway migrate workload web --to own-2 --wait  ·  "
    "spillway migrate workload web --to cloud-1 --from own-1 --replicas 5"
)
def workload(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the workload.", show_default=False)],
    *,
    to: Annotated[str, typer.Option(help="Cluster that the replicas go to.", show_default=False)],
    from_: Annotated[
        str,
        typer.Option(
            "--from", help="Cluster that the replicas leave.", show_default="any, the policy's last tier first"
        ),
    ] = "",
    replicas: Annotated[int | None, typer.Option(min=1, help="Number of replicas.", show_default="all")] = None,
    namespace: Namespace = None,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Move replicas of a workload; each goes once the one that replaces it is available. All or none."""

    async def body(client: PlannerClient, config: Config) -> None:
        space = namespace or config.namespace
        async with workload_named(client, space, name):
            reply = await client.migrate(api.MigrateRequest(space, name, to, from_, replicas or 0))
        if not wait:
            _show(reply, tables.placement(reply), output)
            return
        if output is Format.table:
            say(tables.summary(reply).plain)
        done = await until_moved(client, reply, timeout, say_waits())
        _show(done, tables.workload(done), output)

    with_planner(context, body)


def _show(reply: api.PlacementReply | api.WorkloadReply, shown: object, output: Format) -> None:
    if output is Format.table:
        console().print(shown)
    else:
        print_machine(reply, output)
