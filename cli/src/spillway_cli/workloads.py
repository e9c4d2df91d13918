"""Runs the commands that change workloads or show the effect of a change, and prints the answers."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import many, scaling_commands, tables
from spillway_cli.carried import check_request_groups, read_documents_and_policies
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_namespace_hint
from spillway_cli.exits import Code, bad_input_error, make_waiting_printer, print_message
from spillway_cli.grouping import group_by_workload
from spillway_cli.manifests import (
    Document,
    ShortForm,
    documents_of_short_form,
    name_of_only_workload,
    text_with_places,
)
from spillway_cli.options import Format
from spillway_cli.output import show_answer, stdout_console
from spillway_cli.policy_names import parse_policy_name
from spillway_cli.scale_policies import WORKLOAD_KINDS
from spillway_cli.session import planner_client, refuse_unnamed_address, run_with_config, run_with_planner_client
from spillway_cli.waiting import wait_until_gone, wait_until_ready

T = TypeVar("T")


class ShortWorkload(NamedTuple):
    """The arguments of the short form of `apply`, as the user gave them."""

    name: str | None
    image: str
    replicas: int | None
    cpu: str
    memory: str
    own_first: bool | None


def apply_workloads(
    context: typer.Context,
    files: list[str] | None,
    short: ShortWorkload,
    namespace: str | None,
    seconds: float,
    output: Format,
) -> None:
    """Applies files or the short form. seconds: how long to wait until all is ready; 0 does not wait."""

    async def apply_files_or_short_form(config: Config) -> Code:
        if files and any(given not in (None, "") for given in short):
            raise bad_input_error(
                "apply: expected either files (-f) or the short form (NAME --image --replicas), not both"
            )
        if not files:
            if not short.name or not short.image or short.replicas is None:
                raise bad_input_error("apply: expected -f FILE, or NAME --image IMAGE --replicas N")
            space = namespace or config.namespace
            rest = (short.cpu, short.memory, short.own_first)
            documents = documents_of_short_form(ShortForm(short.name, space, short.image, short.replicas, *rest))
            return await _apply_documents(config, documents, output, seconds)
        documents, policies = read_documents_and_policies(files, namespace, config.namespace)
        code = Code.DONE
        if policies:
            await refuse_unnamed_address(config, "scaling_endpoints")
        if documents:
            await scaling_commands.try_declaring_policies(config, policies)
            code = await _apply_documents(config, documents, output, seconds)
        if code in (Code.DONE, Code.IN_PART):
            scaling_commands.print_declared_policies(await scaling_commands.declare_policies(config, policies), output)
        elif policies:
            print_message(f"scale policies not declared: {len(policies)}")
        return code

    raise typer.Exit(run_with_config(context, apply_files_or_short_form))


def scale_workload(
    context: typer.Context, name: str, replicas: int, namespace: str | None, seconds: float, output: Format
) -> None:
    async def scale_and_show(client: PlannerClient, config: Config) -> Code:
        space = namespace or config.namespace
        async with workload_namespace_hint(client, space, name):
            reply = await client.scale(api.ScaleRequest(space, name, replicas))
        return await _show_placement(client, reply, output, seconds)

    raise typer.Exit(run_with_planner_client(context, scale_and_show))


def delete_workload_or_policy(
    context: typer.Context, name: str, with_policy: bool, namespace: str | None, seconds: float, output: Format
) -> None:
    async def delete_by_kind(config: Config) -> None:
        policy = parse_policy_name(name)
        if policy is not None and with_policy:
            raise bad_input_error(f"{name}: expected the name of a workload before --with-policy")
        if policy is not None:
            await scaling_commands.delete_policy(config, policy, namespace or config.namespace, output)
            return
        if with_policy:
            await refuse_unnamed_address(config, "scaling_endpoints")
        async with planner_client(config) as client:
            await delete_and_show(client, config)

    async def delete_and_show(client: PlannerClient, config: Config) -> None:
        space = namespace or config.namespace
        async with workload_namespace_hint(client, space, name.rpartition("/")[2]):
            reply = await client.delete(api.DeleteRequest(space, await _checked_workload_name(client, space, name)))
        await scaling_commands.print_or_delete_remaining_policy(config, reply, with_policy)
        if seconds:
            await wait_until_gone(client, reply.namespace, reply.name, seconds, make_waiting_printer())
        gone = f"{reply.namespace}/{reply.name} is gone" if seconds else None
        show_answer(
            reply, output, lambda: stdout_console().print(gone or tables.render_placement(replace(reply, inputs=())))
        )

    run_with_config(context, delete_by_kind)


def plan_workload(context: typer.Context, files: list[str], namespace: str | None, output: Format) -> None:
    async def plan_and_show(client: PlannerClient, config: Config) -> Code:
        documents, policies = read_documents_and_policies(files, namespace, config.namespace)
        name_of_only_workload(documents)
        reply = await _naming_documents_in_errors(documents, client.plan(api.ApplyRequest(_document_texts(documents))))
        show_answer(reply, output, lambda: stdout_console().print(tables.render_placement(reply)))
        scaling_commands.print_declared_policies(
            await scaling_commands.try_declaring_policies(config, policies), output
        )
        return Code.IN_PART if reply.unplaced else Code.DONE

    raise typer.Exit(run_with_planner_client(context, plan_and_show))


def show_capacity(context: typer.Context, files: list[str], namespace: str | None, output: Format) -> None:
    async def ask_capacity_and_show(client: PlannerClient, config: Config) -> None:
        documents, _ = read_documents_and_policies(files, namespace, config.namespace)
        name_of_only_workload(documents)
        reply = await _naming_documents_in_errors(
            documents, client.capacity(api.CapacityRequest(_document_texts(documents)))
        )
        show_answer(reply, output, lambda: stdout_console().print(tables.render_capacity(reply)))

    run_with_planner_client(context, ask_capacity_and_show)


async def _checked_workload_name(client: PlannerClient, namespace: str, given: str) -> str:
    """Returns the name in NAME or KIND/NAME. Raises NOT_FOUND if the workload of this name has another kind."""
    word, slash, name = given.partition("/")
    if not slash:
        return given
    kind = WORKLOAD_KINDS.get(word.lower())
    if kind is None or not name or "/" in name:
        known = ", ".join(sorted(WORKLOAD_KINDS))
        raise bad_input_error(f"{given!r}: expected NAME, or KIND/NAME with one of {known}; give the namespace with -n")
    found = (await client.get(api.GetRequest(namespace, name))).kind
    if found != kind:
        raise api.RequestError("NOT_FOUND", f"{given}: workload {namespace}/{name} is a {found}")
    return name


async def _apply_documents(config: Config, documents: Sequence[Document], output: Format, seconds: float) -> Code:
    """Applies the workloads. seconds: how long to wait until all is ready; 0 does not wait."""
    groups = group_by_workload(documents)
    async with planner_client(config) as client:
        if len(groups) > 1:
            check_request_groups(groups)
            return await many.apply_groups_in_batches(client, groups, output, seconds)
        reply = await _naming_documents_in_errors(documents, client.apply(api.ApplyRequest(_document_texts(documents))))
        await scaling_commands.print_deciding_policy(config, reply)
        return await _show_placement(client, reply, output, seconds)


async def _naming_documents_in_errors(documents: Sequence[Document], call: Awaitable[T]) -> T:
    """Returns the answer. An error names files and documents in place of manifests[…]."""
    try:
        return await call
    except api.RequestError as error:
        raise error.with_text(text_with_places(error.text, documents)) from None


async def _show_placement(client: PlannerClient, reply: api.PlacementReply, output: Format, seconds: float) -> Code:
    """Prints the placement, or, after waiting, the workload. Returns DONE, or IN_PART if replicas wait for room."""
    if not seconds:
        show_answer(reply, output, lambda: stdout_console().print(tables.render_placement(reply)))
        return Code.IN_PART if reply.unplaced else Code.DONE
    if output is Format.table:
        print_message(tables.placement_summary_line(reply).plain)
    done = await wait_until_ready(client, reply, seconds, make_waiting_printer())
    show_answer(done, output, lambda: stdout_console().print(tables.render_workload(done)))
    return Code.DONE


def _document_texts(documents: Sequence[Document]) -> tuple[str, ...]:
    return tuple(document.text for document in documents)
