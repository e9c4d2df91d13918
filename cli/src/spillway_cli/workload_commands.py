"""Commands on workloads: apply, scale, delete, get, list, plan, capacity, watch; run by workloads.py and reading.py."""

from typing import Annotated

import typer

from spillway_cli.options import Format, Namespace, OneNamespace, Output, Timeout, Wait, WideFormat

app = typer.Typer()

Files = Annotated[
    list[str] | None, typer.Option("--file", "-f", help="File of manifests; - is stdin. May be given several times.")
]
RequiredFiles = Annotated[list[str], typer.Option("--file", "-f", help="File of manifests; - is stdin. Repeatable.")]
Name = Annotated[str, typer.Argument(help="Name of the workload.", show_default=False)]
NameOrPolicy = Annotated[str, typer.Argument(help="Name of the workload, or hpa/NAME.", show_default=False)]


@app.command(
    epilog="Examples:  spillway apply -f web.yaml -f policy.yaml --wait  ·  "
    "spillway apply web --image nginx --replicas 60 --cpu 500m --own-first"
)
def apply(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Short form: name of the Deployment.", show_default=False)] = None,
    *,
    files: Files = None,
    image: Annotated[str, typer.Option(help="Short form: container image.")] = "",
    replicas: Annotated[int | None, typer.Option(help="Short form: number of replicas.", show_default=False)] = None,
    cpu: Annotated[str, typer.Option(help="Short form: CPU of one replica, for example 500m.")] = "",
    memory: Annotated[str, typer.Option(help="Short form: memory of one replica, for example 256Mi.")] = "",
    own_first: Annotated[
        bool | None,
        typer.Option(
            "--own-first/--any-order", help="Short form: use own clusters before the cloud, or all clusters alike."
        ),
    ] = None,
    namespace: Namespace = None,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Declare a workload: from manifests (-f), or in the short form (NAME --image --replicas).

    The files hold Deployments, StatefulSets or Jobs, the ConfigMaps and Services that go with them, and at most one
    PlacementPolicy for all, or one for each with its name (a PropagationPolicy of Karmada: for those that it selects).
    Many workloads go to the planner in batches.
    HorizontalPodAutoscalers, ScaledObjects and ScalePolicies go to hpa, alone or with workloads: they are checked
    before anything is changed, and declared once the workloads are.
    """
    from spillway_cli import workloads

    short = workloads.ShortWorkload(name, image, replicas, cpu, memory, own_first)
    workloads.apply_workloads(context, files, short, namespace, timeout if wait else 0.0, output)


@app.command(epilog="Example:  spillway scale web --replicas 400 --wait")
def scale(
    context: typer.Context,
    name: Name,
    replicas: Annotated[int, typer.Option(help="New number of replicas.", show_default=False)],
    namespace: Namespace = None,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Change the number of replicas."""
    from spillway_cli import workloads

    workloads.scale_workload(context, name, replicas, namespace, timeout if wait else 0.0, output)


@app.command(
    epilog="Examples:  spillway delete web --wait  ·  spillway delete web --with-policy  ·  spillway delete hpa/web"
)
def delete(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="NAME, KIND/NAME as deployment/web, or hpa/NAME.", show_default=False)],
    *,
    with_policy: Annotated[
        bool,
        typer.Option(
            "--with-policy", help="Delete the workload's scale policy, too; without this option the policy stays."
        ),
    ] = False,
    namespace: Namespace = None,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    output: Output = Format.table,
) -> None:
    """Delete a workload from every cluster; or a scale policy, whose workload then keeps its replicas.

    The scale policy of a workload stays, as kubectl leaves it, and decides again once the workload is applied again.
    """
    from spillway_cli import workloads

    workloads.delete_workload_or_policy(context, name, with_policy, namespace, timeout if wait else 0.0, output)


@app.command(
    epilog="Examples:  spillway get web --history 5 -o yaml  ·  spillway get hpa  ·  spillway get hpa/web -o wide"
)
def get(
    context: typer.Context,
    name: NameOrPolicy,
    policy: Annotated[
        str, typer.Argument(help="After the word hpa: the name of the scale policy.", show_default="all of them")
    ] = "",
    history: Annotated[int, typer.Option(min=0, max=1000, help="Number of past decisions to show.")] = 0,
    namespace: Namespace = None,
    output: Annotated[WideFormat, typer.Option("--output", "-o", help="Form of the answer.")] = WideFormat.table,
) -> None:
    """Show one workload: its replicas, and the status that each cluster reports. Or show scale policies."""
    from spillway_cli import reading

    reading.show_workload_or_policies(context, name, policy, history, namespace, output)


@app.command(name="list", epilog="Example:  spillway list -n shop")
def list_workloads(
    context: typer.Context,
    namespace: OneNamespace = "",
    output: Output = Format.table,
) -> None:
    """List the workloads of all namespaces, or of one."""
    from spillway_cli import reading

    reading.show_workloads(context, namespace, output)


@app.command(epilog="Example:  spillway plan -f web.yaml")
def plan(
    context: typer.Context, files: RequiredFiles, namespace: Namespace = None, output: Output = Format.table
) -> None:
    """Show what apply would do now. Nothing is changed."""
    from spillway_cli import workloads

    workloads.plan_workload(context, files, namespace, output)


@app.command(epilog="Example:  spillway capacity -f web.yaml -o json")
def capacity(
    context: typer.Context, files: RequiredFiles, namespace: Namespace = None, output: Output = Format.table
) -> None:
    """Show how many replicas of a workload each cluster can take, and what limits it."""
    from spillway_cli import workloads

    workloads.show_capacity(context, files, namespace, output)


@app.command(epilog="Examples:  spillway watch  ·  spillway watch web -o json --changes 10")
def watch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a workload.", show_default="all of them")] = "",
    namespace: Namespace = None,
    changes: Annotated[int, typer.Option(min=0, help="Stop after this many changes; 0: no limit.")] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a workload that is not declared yet.")] = False,
    output: Output = Format.table,
) -> None:
    """Follow workloads as they change: a live table, a line for each change in a pipe, or JSON documents."""
    from spillway_cli import reading

    reading.watch_workloads(context, name, namespace, changes, wait, output)
