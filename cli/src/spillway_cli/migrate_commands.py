"""Commands that move replicas by name: migrate workload."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_namespace_hint
from spillway_cli.exits import make_waiting_printer, print_message
from spillway_cli.options import Format, Namespace, Output, Timeout, Wait
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.session import run_with_planner_client
from spillway_cli.waiting import wait_until_moved

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
    """Move replicas of a workload, all or none; each one leaves once its replacement is available."""

    async def migrate_replicas(client: PlannerClient, config: Config) -> None:
        space = namespace or config.namespace
        async with workload_namespace_hint(client, space, name):
            reply = await client.migrate(api.MigrateRequest(space, name, to, from_, replicas or 0))
        if not wait:
            _print_answer(reply, tables.render_placement(reply), output)
            return
        if output is Format.table:
            print_message(tables.placement_summary_line(reply).plain)
        done = await wait_until_moved(client, reply, timeout, make_waiting_printer())
        _print_answer(done, tables.render_workload(done), output)

    run_with_planner_client(context, migrate_replicas)


def _print_answer(reply: api.PlacementReply | api.WorkloadReply, shown: object, output: Format) -> None:
    if output is Format.table:
        stdout_console().print(shown)
    else:
        print_for_machines(reply, output)
