"""Runs the commands that show workloads.

This module imports nothing that only commands with changes need, because lists are asked for often.
"""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.elsewhere import namespaces_with_workloads_text, workload_namespace_hint
from spillway_cli.exits import print_message
from spillway_cli.options import Format, WideFormat
from spillway_cli.output import print_for_machines, show_answer, stdout_console
from spillway_cli.policy_names import parse_policy_name
from spillway_cli.session import planner_client, print_answering_fleet, run_with_config, run_with_planner_client

PAGE_SIZE = 200


def show_workload_or_policies(
    context: typer.Context, name: str, policy: str, history: int, namespace: str | None, output: WideFormat
) -> None:
    async def read_and_print(config: Config) -> None:
        asked = parse_policy_name(name, policy)
        if asked is not None:
            from spillway_cli import scaling_commands

            await scaling_commands.show_policies(config, asked, namespace or config.namespace, output)
            return
        space = namespace or config.namespace
        async with planner_client(config) as client, workload_namespace_hint(client, space, name):
            reply = await get_with_history(client, space, name, history)
        show_answer(
            reply, output.machine_format or Format.table, lambda: stdout_console().print(tables.render_workload(reply))
        )

    run_with_config(context, read_and_print)


async def get_with_history(client: PlannerClient, namespace: str, name: str, history: int) -> api.WorkloadReply:
    """Returns a workload with its last decisions. A long history comes in several answers."""
    reply, seen = await client.get(api.GetRequest(namespace, name, history)), set[str]()
    while reply.history_next not in ("", *seen):
        seen.add(reply.history_next)
        page = await client.get(api.GetRequest(namespace, name, history, reply.history_next))
        reply = replace(reply, history=reply.history + page.history, history_next=page.history_next)
    return replace(reply, history_next="")


def show_workloads(context: typer.Context, namespace: str, output: Format) -> None:
    async def list_and_print(client: PlannerClient, _: Config) -> None:
        found = await list_all_workloads(client, namespace)
        if output is not Format.table:
            print_for_machines(found, output)
            return
        print_answering_fleet(client)
        if found:
            stdout_console().print(tables.workloads_table(found))
        else:
            print_message(
                f"no workload in {namespace}{await namespaces_with_workloads_text(client, namespace)}"
                if namespace
                else "no workload"
            )

    run_with_planner_client(context, list_and_print)


def watch_workloads(
    context: typer.Context, name: str, namespace: str | None, changes: int, wait: bool, output: Format
) -> None:
    async def print_changes(client: PlannerClient, config: Config) -> None:
        space = namespace or (config.namespace if name else "")
        if name:
            await _check_declared(client, api.GetRequest(space, name), wait)
        replies = client.watch(api.WatchRequest(space, name))
        if output is Format.table:
            await (_show_live_table if sys.stdout.isatty() else _print_change_lines)(replies, changes)
            return
        count = 0
        async for reply in replies:
            print_for_machines(reply, output, one_line=True)
            count += 1
            if count == changes:
                return

    run_with_planner_client(context, print_changes)


async def list_all_workloads(client: PlannerClient, namespace: str) -> list[api.WorkloadReply]:
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
        print_message(
            "warning: the planner that answered cannot prove that it is the active one: the answer may be old"
        )
    return found


async def _check_declared(client: PlannerClient, request: api.GetRequest, wait: bool) -> None:
    """Raises NOT_FOUND for a workload that is not declared. With `wait` it prints that instead, and goes on."""
    try:
        await client.get(request)
    except api.RequestError as error:
        if error.code != "NOT_FOUND":
            raise
        if not wait:
            async with workload_namespace_hint(client, request.namespace, request.name):
                raise error.with_text(f"{error.text}; --wait waits until it is") from None
        print_message(f"{error.text} yet: waiting; Ctrl-C ends the wait")


async def _show_live_table(replies: AsyncIterator[api.WatchReply], changes: int) -> None:
    """Shows a table that is drawn again at each change."""
    from rich.live import Live

    seen: dict[tuple[str, str], api.WorkloadReply] = {}
    count = 0
    with Live(tables.workloads_table(()), console=stdout_console(), auto_refresh=False) as live:
        async for reply in replies:
            seen.pop((reply.namespace, reply.name), None)
            if reply.workload is not None:
                seen[reply.namespace, reply.name] = reply.workload
            live.update(tables.workloads_table(seen[key] for key in sorted(seen)), refresh=True)
            count += 1
            if count == changes:
                return


async def _print_change_lines(replies: AsyncIterator[api.WatchReply], changes: int) -> None:
    """Prints one line for each change as soon as it comes, for a program that reads the pipe."""
    count = 0
    async for reply in replies:
        gone = f"{reply.namespace}/{reply.name}: gone"
        typer.echo(tables.workload_line(reply.workload) if reply.workload is not None else gone)
        count += 1
        if count == changes:
            return
