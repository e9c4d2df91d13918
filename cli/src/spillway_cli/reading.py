"""Runs the commands that show workloads.

It imports nothing that only changes need, because lists are asked for often.
"""

import sys
from collections.abc import AsyncIterator

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import workload_named, workloads_elsewhere
from spillway_cli.exits import say
from spillway_cli.options import Format, WideFormat
from spillway_cli.output import console, print_machine, show_answer
from spillway_cli.policy_names import policy_name
from spillway_cli.session import planner_client, say_fleet, with_config, with_planner

PAGE_SIZE = 200


def get(
    context: typer.Context, name: str, policy: str, history: int, namespace: str | None, output: WideFormat
) -> None:
    async def body(config: Config) -> None:
        asked = policy_name(name, policy)
        if asked is not None:
            from spillway_cli import scaling_commands

            await scaling_commands.get(config, asked, namespace or config.namespace, output)
            return
        space = namespace or config.namespace
        async with planner_client(config) as client, workload_named(client, space, name):
            reply = await client.get(api.GetRequest(space, name, history))
        show_answer(reply, output.machine or Format.table, lambda: console().print(tables.workload(reply)))

    with_config(context, body)


def list_all(context: typer.Context, namespace: str, output: Format) -> None:
    async def body(client: PlannerClient, _: Config) -> None:
        found = await all_workloads(client, namespace)
        if output is not Format.table:
            print_machine(found, output)
            return
        say_fleet(client)
        if found:
            console().print(tables.workloads(found))
        else:
            say(
                f"no workload in {namespace}{await workloads_elsewhere(client, namespace)}"
                if namespace
                else "no workload"
            )

    with_planner(context, body)


def watch(context: typer.Context, name: str, namespace: str | None, changes: int, wait: bool, output: Format) -> None:
    async def body(client: PlannerClient, config: Config) -> None:
        space = namespace or (config.namespace if name else "")
        if name:
            await _check_declared(client, api.GetRequest(space, name), wait)
        replies = client.watch(api.WatchRequest(space, name))
        if output is Format.table:
            await (_live if sys.stdout.isatty() else _lines)(replies, changes)
            return
        count = 0
        async for reply in replies:
            print_machine(reply, output, one_line=True)
            count += 1
            if count == changes:
                return

    with_planner(context, body)


async def all_workloads(client: PlannerClient, namespace: str) -> list[api.WorkloadReply]:
    """Returns every workload, read page by page."""
    found: list[api.WorkloadReply] = []
    token, stale = "", False
    while True:
        reply = await client.list(api.ListRequest(namespace, PAGE_SIZE, token))
        found += reply.workloads
        token, stale = reply.next_page_token, stale or reply.stale
        if not token:
            break
    if stale:
        say("warning: the planner that answered cannot prove that it is the active one: the answer may be old")
    return found


async def _check_declared(client: PlannerClient, request: api.GetRequest, wait: bool) -> None:
    """Raises NOT_FOUND for a workload that is not declared. With `wait` it prints that instead, and goes on."""
    try:
        await client.get(request)
    except api.RequestError as error:
        if error.code != "NOT_FOUND":
            raise
        if not wait:
            async with workload_named(client, request.namespace, request.name):
                raise error.with_text(f"{error.text}; --wait waits until it is") from None
        say(f"{error.text} yet: waiting; Ctrl-C ends the wait")


async def _live(replies: AsyncIterator[api.WatchReply], changes: int) -> None:
    """Shows a table that is drawn again at each change."""
    from rich.live import Live

    seen: dict[tuple[str, str], api.WorkloadReply] = {}
    count = 0
    with Live(tables.workloads(()), console=console(), auto_refresh=False) as live:
        async for reply in replies:
            seen.pop((reply.namespace, reply.name), None)
            if reply.workload is not None:
                seen[reply.namespace, reply.name] = reply.workload
            live.update(tables.workloads(seen[key] for key in sorted(seen)), refresh=True)
            count += 1
            if count == changes:
                return


async def _lines(replies: AsyncIterator[api.WatchReply], changes: int) -> None:
    """Prints a line for each change as it comes, for a reader of the pipe."""
    count = 0
    async for reply in replies:
        gone = f"{reply.namespace}/{reply.name}: gone"
        typer.echo(tables.workload_line(reply.workload) if reply.workload is not None else gone)
        count += 1
        if count == changes:
            return
