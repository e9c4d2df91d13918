"""Commands on workloads that ran before Spillway: adopt, disown, orphans."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_namespace_hint
from spillway_cli.exits import bad_input_error, make_waiting_printer, print_message
from spillway_cli.manifests import read_documents
from spillway_cli.options import Format, Namespace, OneNamespace, Output
from spillway_cli.output import print_for_machines, show_answer, stdout_console
from spillway_cli.session import run_with_planner_client
from spillway_cli.waiting import wait_until_gone

app = typer.Typer()

DEPLOYMENT = "Deployment"
"""The only kind that can be adopted."""

Clusters = Annotated[
    list[str], typer.Option("--cluster", help="Cluster where the workload runs. Repeatable.", show_default=False)
]


@app.command(epilog="Example:  spillway adopt deployment/web -n shop --cluster own-1 --cluster own-2 -f policy.yaml")
def adopt(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="For example deployment/web.", show_default=False)],
    clusters: Clusters,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="File with a PlacementPolicy; without it, the default policy holds."),
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Take over a Deployment that runs already, in one cluster or in several. Nothing is scaled, no pod restarts."""

    async def adopt_workload(client: PlannerClient, config: Config) -> None:
        kind, slash, name = target.partition("/")
        if not slash or not kind or not name:
            raise bad_input_error(f"{target!r}: expected KIND/NAME, for example deployment/web")
        documents = read_documents(files) if files else []
        if len(documents) > 1:
            raise bad_input_error(f"-f: {len(documents)} documents: expected one PlacementPolicy")
        policy = documents[0].text if documents else ""
        request = api.AdoptRequest(namespace or config.namespace, name, kind, tuple(clusters), policy)
        reply = await client.adopt(request)
        if output is not Format.table:
            print_for_machines(reply, output)
            return
        stdout_console().print(tables.render_placement(reply))
        if not policy:
            print_message(
                "the workload keeps its declared policy, or has the default one; "
                "`spillway apply` with a PlacementPolicy changes it"
            )

    run_with_planner_client(context, adopt_workload)


@app.command(epilog="Example:  spillway disown deployment/web -n shop --wait")
def disown(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="NAME", help="web, or deployment/web.", show_default=False)],
    namespace: Namespace = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until no cluster has Spillway's marks on the workload.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that --wait may take.")] = 300.0,
    output: Output = Format.table,
) -> None:
    """Stop managing a workload: Spillway's labels are removed, its objects and pods stay as they are."""

    async def disown_workload(client: PlannerClient, config: Config) -> None:
        name = target.removeprefix("deployment/")
        if not name or "/" in name:
            raise bad_input_error(
                f"NAME {target!r}: expected a workload's name, or deployment/NAME; give the namespace with -n"
            )
        space = namespace or config.namespace
        async with workload_namespace_hint(client, space, name):
            reply = await client.disown(api.DisownRequest(space, name))
        if wait:
            await wait_until_gone(client, reply.namespace, reply.name, timeout, make_waiting_printer())
        disowned = f"{reply.namespace}/{reply.name} is disowned" if wait else None
        show_answer(reply, output, lambda: stdout_console().print(disowned or tables.render_placement(reply)))

    run_with_planner_client(context, disown_workload)


@app.command(epilog="Example:  spillway orphans -n shop -o json")
def orphans(
    context: typer.Context,
    namespace: OneNamespace = "",
    output: Output = Format.table,
) -> None:
    """List objects that have this fleet's label but are in no placement. Spillway leaves them as they are."""

    async def show_orphans(client: PlannerClient, _: Config) -> None:
        reply = await client.list_orphans(api.ListOrphansRequest(namespace))
        if output is not Format.table:
            print_for_machines(reply, output)
            return
        if not reply.orphans:
            print_message("no orphan")
            return
        stdout_console().print(tables.render_orphans(reply))
        kinds = {one.kind or DEPLOYMENT for one in reply.orphans}
        if DEPLOYMENT in kinds:
            print_message(
                "`spillway adopt deployment/NAME -n NAMESPACE --cluster CLUSTER` takes over a Deployment again,"
            )
            print_message(
                "with the ConfigMaps and Services that have the same labels; if a workload of its name is placed"
            )
            print_message("elsewhere, `spillway explain NAME -n NAMESPACE` shows the two commands that keep it;")
        for kind in sorted(kinds):
            print_message(
                f"`kubectl delete {kind.lower()} NAME -n NAMESPACE` in that cluster deletes a {kind} that nobody needs"
            )

    run_with_planner_client(context, show_orphans)
