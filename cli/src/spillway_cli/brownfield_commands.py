"""Commands on workloads that ran before Spillway: adopt, disown, orphans."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_named
from spillway_cli.exits import bad_input, say, say_waits
from spillway_cli.manifests import read_documents
from spillway_cli.options import Format, Namespace, OneNamespace, Output
from spillway_cli.output import console, print_machine, show_answer
from spillway_cli.session import with_planner
from spillway_cli.waiting import until_gone

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

    async def body(client: PlannerClient, config: Config) -> None:
        kind, slash, name = target.partition("/")
        if not slash or not kind or not name:
            raise bad_input(f"{target!r}: expected KIND/NAME, for example deployment/web")
        documents = read_documents(files) if files else []
        if len(documents) > 1:
            raise bad_input(f"-f: {len(documents)} documents: expected one PlacementPolicy")
        policy = documents[0].text if documents else ""
        request = api.AdoptRequest(namespace or config.namespace, name, kind, tuple(clusters), policy)
        reply = await client.adopt(request)
        if output is not Format.table:
            print_machine(reply, output)
            return
        console().print(tables.placement(reply))
        if not policy:
            say("its declared policy holds, else the default one: `spillway apply` with a PlacementPolicy changes it")

    with_planner(context, body)


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
    """Give a workload back: our labels go, objects and pods stay as they are."""

    async def body(client: PlannerClient, config: Config) -> None:
        name = target.removeprefix("deployment/")
        if not name or "/" in name:
            raise bad_input(
                f"NAME {target!r}: expected a workload's name, or deployment/NAME; give the namespace with -n"
            )
        space = namespace or config.namespace
        async with workload_named(client, space, name):
            reply = await client.disown(api.DisownRequest(space, name))
        if wait:
            await until_gone(client, reply.namespace, reply.name, timeout, say_waits())
        disowned = f"{reply.namespace}/{reply.name} is disowned" if wait else None
        show_answer(reply, output, lambda: console().print(disowned or tables.placement(reply)))

    with_planner(context, body)


@app.command(epilog="Example:  spillway orphans -n shop -o json")
def orphans(
    context: typer.Context,
    namespace: OneNamespace = "",
    output: Output = Format.table,
) -> None:
    """List objects that bear this fleet's label and that no placement lists. They are left as they are."""

    async def body(client: PlannerClient, _: Config) -> None:
        reply = await client.list_orphans(api.ListOrphansRequest(namespace))
        if output is not Format.table:
            print_machine(reply, output)
            return
        if not reply.orphans:
            say("no orphan")
            return
        console().print(tables.orphans(reply))
        kinds = {one.kind or DEPLOYMENT for one in reply.orphans}
        if DEPLOYMENT in kinds:
            say("`spillway adopt deployment/NAME -n NAMESPACE --cluster CLUSTER` takes a Deployment over again,")
            say("with the ConfigMaps and Services that bear the same labels; where a workload of its name is placed")
            say("elsewhere, `spillway explain NAME -n NAMESPACE` has the two commands that keep it;")
        for kind in sorted(kinds):
            say(f"`kubectl delete {kind.lower()} NAME -n NAMESPACE` in that cluster ends a {kind} that nobody wants")

    with_planner(context, body)
