"""Commands on scale policies: autoscale, and the parts of apply, get, explain and delete that concern them."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import RenderableType

from spillway.api import PlacementReply, RequestError
from spillway.api_scaling import (
    DeclarePolicyRequest,
    DeletePolicyRequest,
    ExplainPolicyRequest,
    GetPolicyRequest,
    ListPoliciesRequest,
    PolicyReply,
)
from spillway.rpc.client import ScalingClient
from spillway_cli import scaling_tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import namespaces_with_policies_text, policy_namespace_hint
from spillway_cli.exits import bad_input_error, print_message
from spillway_cli.manifests import Document
from spillway_cli.options import Format, Namespace, Output, WideFormat
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.policy_names import PolicyName
from spillway_cli.scale_policies import CPU_PERCENT_DEFAULT, autoscaler_json, parse_scale_target
from spillway_cli.session import run_with_scaling_client, scaling_client

app = typer.Typer()

PAGE_SIZE = 200


@app.command(epilog="Example:  spillway autoscale web --min 2 --max 50 --cpu-percent 60")
def autoscale(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="NAME, deployment/NAME or statefulset/NAME.", show_default=False)],
    *,
    most: Annotated[
        int,
        typer.Option(
            "--max", min=1, help="Largest number of replicas; a workload with more is cut to it.", show_default=False
        ),
    ],
    least: Annotated[int, typer.Option("--min", min=0, help="Least number of replicas.")] = 1,
    cpu_percent: Annotated[
        int, typer.Option(min=1, help="Target for the pods' CPU use, in percent of their requests.")
    ] = CPU_PERCENT_DEFAULT,
    name: Annotated[
        str, typer.Option(help="Name of the HorizontalPodAutoscaler.", show_default="as the workload")
    ] = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Scale a workload by the CPU use of its pods in all clusters together.

    As with kubectl, it takes effect at once: a workload with more replicas than --max is cut to --max.
    """

    async def declare_autoscaler(client: ScalingClient, config: Config) -> None:
        if least > most:
            raise bad_input_error(f"--min {least}: expected at most --max, {most}")
        space = namespace or config.namespace
        manifest = autoscaler_json(parse_scale_target(workload), space, name, (least, most), cpu_percent)
        if (await client.declare_policy(DeclarePolicyRequest(manifest, plan_only=True))).replicas < 0:
            ahead = "`spillway apply -f` also takes a policy for a workload that is declared later"
            raise bad_input_error(
                f"{space}/{parse_scale_target(workload)[1]}: no workload of that name is declared; {ahead}"
            )
        _print_declared_policy(await client.declare_policy(DeclarePolicyRequest(manifest)), output)

    run_with_scaling_client(context, declare_autoscaler)


# ── What other commands do with scale policies ──────────────────────────────────────────────────────────────────────


async def try_declaring_policies(config: Config, documents: Sequence[Document]) -> list[PolicyReply]:
    """Returns the answers to a trial declaration of these policies. Nothing is stored.

    An error names file and document.
    """
    return await _declare_each_policy(config, documents, plan_only=True)


async def declare_policies(config: Config, documents: Sequence[Document]) -> list[PolicyReply]:
    return await _declare_each_policy(config, documents, plan_only=False)


async def _declare_each_policy(config: Config, documents: Sequence[Document], plan_only: bool) -> list[PolicyReply]:
    replies: list[PolicyReply] = []
    if not documents:
        return replies
    async with scaling_client(config) as client:
        for document in documents:
            try:
                replies.append(await client.declare_policy(DeclarePolicyRequest(document.text, plan_only)))
            except RequestError as error:
                text = error.text if error.code == "UNAVAILABLE" else f"{document.where}: {error.text}"
                raise error.with_text(text) from None
    return replies


def print_declared_policies(replies: Sequence[PolicyReply], output: Format) -> None:
    """Prints a line or a document for each policy."""
    for reply in replies:
        _print_declared_policy(reply, output)


def _print_declared_policy(reply: PolicyReply, output: Format) -> None:
    done = "declared" if reply.changed else "is as it was"
    _print_answer(
        reply, None if output is Format.table else output, lambda: scaling_tables.render_policy_result(reply, done)
    )


async def show_policies(config: Config, asked: PolicyName, namespace: str, output: WideFormat) -> None:
    """Shows one policy, or all of a namespace."""
    async with scaling_client(config) as client:
        if asked.name:
            request = GetPolicyRequest(namespace, policy=asked.name, kind=asked.kind)
            async with policy_namespace_hint(client, namespace, asked.name):
                found = [await client.get_policy(request)]
        else:
            found = [reply for reply in await _list_all_policies(client, namespace) if asked.kind in ("", reply.kind)]
        others = await namespaces_with_policies_text(client, namespace) if not found else ""
    if any(reply.stale for reply in found):
        print_message("warning: the hpa instance that answered is not the active one: the answer may be old")
    for reply in found:
        if reply.replicas_max < 0:
            print_message(f"warning: {reply.kind} {reply.namespace}/{reply.policy}: {'; '.join(reply.warnings)}")
    if output.machine_format is None and any(scaling_tables.UNKNOWN in reply.targets for reply in found):
        print_message("`spillway explain hpa/NAME` tells why a value is unknown")
    if not found and output.machine_format is None:
        print_message(f"no scale policy in {namespace}{others}")
        return
    now_ms, wide = round(time.time() * 1000), output is WideFormat.wide
    value = found[0] if asked.name else found
    _print_answer(value, output.machine_format, lambda: scaling_tables.policies_table(found, now_ms, wide))


async def _list_all_policies(client: ScalingClient, namespace: str) -> list[PolicyReply]:
    found: list[PolicyReply] = []
    token = ""
    while True:
        reply = await client.list_policies(ListPoliciesRequest(namespace, PAGE_SIZE, token))
        found += reply.policies
        token = reply.next_page_token
        if not token:
            return found


async def explain_policy(config: Config, asked: PolicyName, namespace: str, output: Format) -> None:
    async with scaling_client(config) as client, policy_namespace_hint(client, namespace, asked.name):
        reply = await client.explain_policy(
            ExplainPolicyRequest(namespace, policy=_required_policy_name(asked), kind=asked.kind)
        )
    machine = None if output is Format.table else output
    _print_answer(reply, machine, lambda: scaling_tables.render_policy_explanation(reply))


async def delete_policy(config: Config, asked: PolicyName, namespace: str, output: Format) -> None:
    reply = await _call_delete_policy(config, asked, namespace)
    machine = None if output is Format.table else output
    _print_answer(reply, machine, lambda: scaling_tables.render_policy_result(reply, "is gone"))


async def _call_delete_policy(config: Config, asked: PolicyName, namespace: str) -> PolicyReply:
    async with scaling_client(config) as client, policy_namespace_hint(client, namespace, asked.name):
        return await client.delete_policy(
            DeletePolicyRequest(namespace, policy=_required_policy_name(asked), kind=asked.kind)
        )


async def print_deciding_policy(config: Config, placement: PlacementReply) -> None:
    """Prints which policy decides the replicas of an applied workload, their present number, and the bounds."""
    if not placement.scaled_by:
        return
    policy = _attached_policy_name(placement)
    try:
        async with scaling_client(config) as client:
            request = GetPolicyRequest(placement.namespace, policy=policy.name, kind=policy.kind)
            within = f", of {scaling_tables.replica_bounds_text(await client.get_policy(request))}"
    except RequestError as error:
        within = f"; its bounds are not known: {error.text}"
    who = f"{placement.namespace}/{placement.name}: {placement.scaled_by} decides the number of replicas"
    print_message(f"{who}: {placement.replicas} now{within}; `{_deletion_command(placement)}` ends that")


async def print_or_delete_remaining_policy(config: Config, placement: PlacementReply, delete_too: bool) -> None:
    """Prints which scale policy remains after its workload was deleted. delete_too: deletes it and prints that."""
    if not placement.scaled_by:
        if delete_too:
            print_message(f"{placement.namespace}/{placement.name} has no scale policy")
        return
    if delete_too:
        gone = await _call_delete_policy(config, _attached_policy_name(placement), placement.namespace)
        print_message(f"{gone.kind} {gone.namespace}/{gone.policy} is gone")
        return
    again = f"decides the number of replicas of {placement.namespace}/{placement.name} if that is applied again"
    print_message(
        f"{placement.scaled_by} stays, and {again}; `{_deletion_command(placement)}`, or --with-policy here, deletes it"
    )


def _attached_policy_name(placement: PlacementReply) -> PolicyName:
    """Returns the policy that scales a workload, which the planner names KIND/NAME."""
    kind, _, name = placement.scaled_by.partition("/")
    return PolicyName(kind, name)


def _deletion_command(placement: PlacementReply) -> str:
    return f"spillway delete hpa/{_attached_policy_name(placement).name} -n {placement.namespace}"


def _required_policy_name(asked: PolicyName) -> str:
    if not asked.name:
        raise bad_input_error("hpa: expected hpa/NAME")
    return asked.name


def _print_answer(value: object, machine: Format | None, shown: Callable[[], RenderableType]) -> None:
    if machine is None:
        stdout_console().print(shown())
    else:
        print_for_machines(value, machine)
