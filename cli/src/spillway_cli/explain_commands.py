"""The command explain, which shows why replicas are in their clusters."""

from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import explain_tables, scaling_commands
from spillway_cli.carried import read_planner_documents
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_namespace_hint
from spillway_cli.exits import bad_input_error
from spillway_cli.options import Format, Namespace, Output
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.policy_names import parse_policy_name
from spillway_cli.session import planner_client, run_with_config

app = typer.Typer()


@app.command(
    epilog="Examples:  spillway explain web  ·  spillway explain shop/web --decision 12.40  ·  "
    "spillway explain -f web.yaml --replicas 400  ·  spillway explain web --cluster own-1 --node node-7  ·  "
    "spillway explain hpa/web"
)
def explain(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME; or hpa/NAME.", show_default=False)] = "",
    *,
    files: Annotated[
        list[str] | None, typer.Option("--file", "-f", help="File of manifests that are not declared; - is stdin.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="File of a PlacementPolicy to suppose in place of the declared one.", show_default=False)
    ] = "",
    replicas: Annotated[int | None, typer.Option(min=0, help="Suppose this many replicas.", show_default=False)] = None,
    decision: Annotated[str, typer.Option(help="Number of a past decision, as `get --history` shows it.")] = "",
    cluster: Annotated[str, typer.Option(help="Cluster of the node given with --node.", show_default=False)] = "",
    node: Annotated[str, typer.Option(help="Explain why one replica goes to this node, or does not.")] = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Explain why replicas are in their clusters, why others wait, and what would help. Nothing is changed.

    For a scale policy (hpa/NAME): the number that each metric asks for, the rules that limit it, and its next change.
    """

    async def explain_workload_or_policy(config: Config) -> None:
        scaling = parse_policy_name(name)
        if scaling is None:
            async with planner_client(config) as client:
                await explain_workload(client, config)
        elif files or policy or replicas is not None or decision or cluster or node:
            raise bad_input_error(f"explain {name}: expected no options other than -n and -o")
        else:
            await scaling_commands.explain_policy(config, scaling, namespace or config.namespace, output)

    async def explain_workload(client: PlannerClient, config: Config) -> None:
        if bool(name) == bool(files):
            raise bad_input_error("explain: expected the name of a workload, or -f FILE")
        if bool(cluster) != bool(node):
            raise bad_input_error("explain: expected --cluster and --node together")
        space, given = split_name(name, namespace or config.namespace)
        asked = [*(files or ()), *((policy,) if policy else ())]
        documents = read_planner_documents(asked, namespace, config.namespace) if asked else ()
        request = api.ExplainRequest(
            namespace=space if given else "",
            name=given,
            manifests=tuple(document.text for document in documents),
            replicas=-1 if replicas is None else replicas,
            decision=decision,
            cluster=cluster,
            node=node,
        )
        async with workload_namespace_hint(client, space, given):
            reply = await client.explain(request)
        if output is Format.table:
            stdout_console().print(explain_tables.render_explanation(reply))
        else:
            print_for_machines(reply, output)

    run_with_config(context, explain_workload_or_policy)


def split_name(name: str, namespace: str) -> tuple[str, str]:
    """Returns (namespace, name) of the text NAME or NAMESPACE/NAME."""
    space, slash, rest = name.partition("/")
    if slash and (not space or not rest or "/" in rest):
        raise bad_input_error(f"{name!r}: expected NAME or NAMESPACE/NAME")
    return (space, rest) if slash else (namespace, name)
