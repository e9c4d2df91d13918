"""Runs the commands that change workloads or show the effect of a change, and prints the answers."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import many, scaling_commands, tables
from spillway_cli.carried import check_each, read_with_policies
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_named
from spillway_cli.exits import Code, bad_input, say, say_waits
from spillway_cli.grouping import grouped
from spillway_cli.manifests import (
    Document,
    ShortForm,
    place_names,
    workload_of,
    written_out,
)
from spillway_cli.options import Format
from spillway_cli.output import console, show_answer
from spillway_cli.policy_names import policy_name
from spillway_cli.scale_policies import WORKLOAD_KINDS
from spillway_cli.session import planner_client, refuse_unnamed, with_config, with_planner
from spillway_cli.waiting import until_gone, until_ready

T = TypeVar("T")


class ShortWorkload(NamedTuple):
    """The arguments of the short form of `apply`, as the user gave them."""

    name: str | None
    image: str
    replicas: int | None
    cpu: str
    memory: str
    own_first: bool | None


def apply(
    context: typer.Context,
    files: list[str] | None,
    short: ShortWorkload,
    namespace: str | None,
    seconds: float,
    output: Format,
) -> None:
    """Applies files or the short form. seconds: how long to wait until all is ready; 0 does not wait."""

    async def body(config: Config) -> Code:
        if files and any(given not in (None, "") for given in short):
            raise bad_input("apply: expected either files (-f) or the short form (NAME --image --replicas), not both")
        if not files:
            if not short.name or not short.image or short.replicas is None:
                raise bad_input("apply: expected -f FILE, or NAME --image IMAGE --replicas N")
            space = namespace or config.namespace
            rest = (short.cpu, short.memory, short.own_first)
            documents = written_out(ShortForm(short.name, space, short.image, short.replicas, *rest))
            return await _apply(config, documents, output, seconds)
        documents, policies = read_with_policies(files, namespace, config.namespace)
        code = Code.DONE
        if policies:
            await refuse_unnamed(config, "scaling_endpoints")
        if documents:
            await scaling_commands.check(config, policies)
            code = await _apply(config, documents, output, seconds)
        if code in (Code.DONE, Code.IN_PART):
            scaling_commands.show_declared(await scaling_commands.declare(config, policies), output)
        elif policies:
            say(f"scale policies not declared: {len(policies)}")
        return code

    raise typer.Exit(with_config(context, body))


def scale(
    context: typer.Context, name: str, replicas: int, namespace: str | None, seconds: float, output: Format
) -> None:
    async def body(client: PlannerClient, config: Config) -> Code:
        space = namespace or config.namespace
        async with workload_named(client, space, name):
            reply = await client.scale(api.ScaleRequest(space, name, replicas))
        return await _show_placed(client, reply, output, seconds)

    raise typer.Exit(with_planner(context, body))


def delete(
    context: typer.Context, name: str, with_policy: bool, namespace: str | None, seconds: float, output: Format
) -> None:
    async def remove(config: Config) -> None:
        policy = policy_name(name)
        if policy is not None and with_policy:
            raise bad_input(f"{name}: expected the name of a workload before --with-policy")
        if policy is not None:
            await scaling_commands.delete(config, policy, namespace or config.namespace, output)
            return
        if with_policy:
            await refuse_unnamed(config, "scaling_endpoints")
        async with planner_client(config) as client:
            await body(client, config)

    async def body(client: PlannerClient, config: Config) -> None:
        space = namespace or config.namespace
        async with workload_named(client, space, name.rpartition("/")[2]):
            reply = await client.delete(api.DeleteRequest(space, await _name_of_its_kind(client, space, name)))
        await scaling_commands.say_what_stays(config, reply, with_policy)
        if seconds:
            await until_gone(client, reply.namespace, reply.name, seconds, say_waits())
        gone = f"{reply.namespace}/{reply.name} is gone" if seconds else None
        show_answer(reply, output, lambda: console().print(gone or tables.placement(replace(reply, inputs=()))))

    with_config(context, remove)


def plan(context: typer.Context, files: list[str], namespace: str | None, output: Format) -> None:
    async def body(client: PlannerClient, config: Config) -> Code:
        documents, policies = read_with_policies(files, namespace, config.namespace)
        workload_of(documents)
        reply = await _named(documents, client.plan(api.ApplyRequest(_texts(documents))))
        show_answer(reply, output, lambda: console().print(tables.placement(reply)))
        scaling_commands.show_declared(await scaling_commands.check(config, policies), output)
        return Code.IN_PART if reply.unplaced else Code.DONE

    raise typer.Exit(with_planner(context, body))


def capacity(context: typer.Context, files: list[str], namespace: str | None, output: Format) -> None:
    async def body(client: PlannerClient, config: Config) -> None:
        documents, _ = read_with_policies(files, namespace, config.namespace)
        workload_of(documents)
        reply = await _named(documents, client.capacity(api.CapacityRequest(_texts(documents))))
        show_answer(reply, output, lambda: console().print(tables.capacity(reply)))

    with_planner(context, body)


async def _name_of_its_kind(client: PlannerClient, namespace: str, given: str) -> str:
    """Returns the name in NAME or KIND/NAME. Raises NOT_FOUND if the workload of this name has another kind."""
    word, slash, name = given.partition("/")
    if not slash:
        return given
    kind = WORKLOAD_KINDS.get(word.lower())
    if kind is None or not name or "/" in name:
        known = ", ".join(sorted(WORKLOAD_KINDS))
        raise bad_input(f"{given!r}: expected NAME, or KIND/NAME with one of {known}; give the namespace with -n")
    found = (await client.get(api.GetRequest(namespace, name))).kind
    if found != kind:
        raise api.RequestError("NOT_FOUND", f"{given}: workload {namespace}/{name} is a {found}")
    return name


async def _apply(config: Config, documents: Sequence[Document], output: Format, seconds: float) -> Code:
    """Applies the workloads. seconds: how long to wait until all is ready; 0 does not wait."""
    groups = grouped(documents)
    async with planner_client(config) as client:
        if len(groups) > 1:
            check_each(groups)
            return await many.apply_all(client, groups, output, seconds)
        reply = await _named(documents, client.apply(api.ApplyRequest(_texts(documents))))
        await scaling_commands.say_who_decides(config, reply)
        return await _show_placed(client, reply, output, seconds)


async def _named(documents: Sequence[Document], call: Awaitable[T]) -> T:
    """Returns the answer. An error names files and documents in place of manifests[…]."""
    try:
        return await call
    except api.RequestError as error:
        raise error.with_text(place_names(error.text, documents)) from None


async def _show_placed(client: PlannerClient, reply: api.PlacementReply, output: Format, seconds: float) -> Code:
    """Prints a placement, or after waiting the workload. Returns the exit code: OK if all replicas are placed."""
    if not seconds:
        show_answer(reply, output, lambda: console().print(tables.placement(reply)))
        return Code.IN_PART if reply.unplaced else Code.DONE
    if output is Format.table:
        say(tables.summary(reply).plain)
    done = await until_ready(client, reply, seconds, say_waits())
    show_answer(done, output, lambda: console().print(tables.workload(done)))
    return Code.DONE


def _texts(documents: Sequence[Document]) -> tuple[str, ...]:
    return tuple(document.text for document in documents)
