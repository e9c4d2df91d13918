"""Commands that compute past or supposed decisions with the planner's own code, without a planner."""

import time
from pathlib import Path
from typing import Annotated

import typer

from planner.api import exports
from planner.core.explaining.simulating import Simulation
from planner.core.knowledge.rules import PlannerRules
from planner.core.placement.recording import CODE_VERSION
from planner.core.placement.replaying import NotReplayable, ReplayResult, replay_division
from spillway import api
from spillway.events import DecisionRecorded
from spillway.rpc.client import PlannerClient
from spillway_cli import whatif_tables
from spillway_cli.carried import read_planner_documents
from spillway_cli.config import Config
from spillway_cli.exits import Code, CommandFailed, bad_input_error, exiting_on_error, print_message
from spillway_cli.explain_commands import split_name
from spillway_cli.grouping import RequestGroup, group_by_workload
from spillway_cli.manifests import text_with_places
from spillway_cli.options import Format, Namespace, Output, config_of
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.reading import get_with_history
from spillway_cli.session import run_with_planner_client

app = typer.Typer()

HISTORY_MAX = 1000
NOT_COUNTED = "this state comes from a version that does not count its records: nobody can see whether one is missing"


@app.command(epilog="Examples:  spillway replay shop/web  ·  spillway replay web --decision 12.40 -o json")
def replay(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Workload, NAME or NAMESPACE/NAME.", show_default=False)],
    decision: Annotated[
        str,
        typer.Option(
            help="Number of a decision, as `get --history` shows it.", show_default="the newest with a division"
        ),
    ] = "",
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Compute the division of a recorded decision again, from its record alone, and compare both byte by byte."""

    async def replay_decision(client: PlannerClient, config: Config) -> Code:
        space, given = split_name(name, namespace or config.namespace)
        history = (await get_with_history(client, space, given, HISTORY_MAX)).history
        record = _chosen_decision(history, decision, f"{space}/{given}")
        try:
            found = replay_division(record)
        except NotReplayable as why:
            raise CommandFailed(f"decision {record.generation} ({record.cause}): not replayed: {why}") from None
        notes = _replay_notes(record)
        if output is Format.table:
            stdout_console().print(whatif_tables.render_replay(record, found, notes))
        else:
            print_for_machines(_replay_document(record, found, notes), output)
        return Code.DONE if found.is_same else Code.FAILED

    raise typer.Exit(run_with_planner_client(context, replay_decision))


def _chosen_decision(history: tuple[DecisionRecorded, ...], decision: str, workload: str) -> DecisionRecorded:
    if not history:
        raise CommandFailed(f"{workload}: no decision is kept any more")
    if not decision:  # The newest records may have no division, for example of a workload that was removed.
        return next((record for record in history if record.division), history[0])
    for record in history:
        if decision == str(record.generation):
            return record
    known = ", ".join(str(record.generation) for record in history[:5])
    raise bad_input_error(
        f"{workload}: decision {decision!r} is not kept, or was never made: the last decisions are {known}"
    )


def _replay_notes(record: DecisionRecorded) -> list[str]:
    """Returns lines for the user: how this command's version and settings differ from those of the deciding planner."""
    notes = []
    if record.code_version != CODE_VERSION:
        notes.append(f"decided by version {record.code_version}, computed again by {CODE_VERSION}")
    here = set(PlannerRules().to_text().split())
    other = [entry for entry in record.settings.split() if entry not in here]
    if other:
        notes.append(
            f"settings that differ from this version's defaults, but have no effect on a division: {', '.join(other)}"
        )
    return notes


def _replay_document(record: DecisionRecorded, found: ReplayResult, notes: list[str]) -> dict[str, object]:
    return {
        "namespace": record.namespace,
        "name": record.name,
        "decision": record.generation,
        "cause": record.cause,
        "at_ms": record.at_ms,
        "compared": whatif_tables.COMPARED,
        "same": found.is_same,
        "differences": list(found.differences),
        "aside": list(found.aside),
        "notes": notes,
        "recorded": found.recorded,
        "recomputed": found.recomputed,
    }


@app.command(epilog="Example:  spillway export fleet.gz")
def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File that the state is written to.", show_default=False)],
) -> None:
    """Write the state of the fleet to a file, for `simulate --state`."""

    async def save_fleet_state(client: PlannerClient, _: Config) -> None:
        replies = await _read_export(client)
        _save_export(replies, file)
        print_message(f"{file}: {file.stat().st_size} bytes, {sum(len(reply.events) for reply in replies)} events")

    run_with_planner_client(context, save_fleet_state)


@app.command(
    epilog="Examples:  spillway simulate -f release.yaml  ·  spillway simulate --without own-1  ·  "
    "spillway simulate --state fleet.gz -f web.yaml --add-nodes cloud-1/burst=5"
)
def simulate(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    *,
    files: Annotated[list[str] | None, typer.Option("--file", "-f", help="Workloads to apply; - is stdin.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="File written by `export`, used instead of the planner's state.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Also write the state to this file.")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Cluster to leave out, as if it were gone. Repeatable.")
    ] = None,
    add_nodes: Annotated[
        list[str] | None, typer.Option(help="CLUSTER/GROUP=N or CLUSTER/NODE=N: add N empty nodes. Repeatable.")
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.table,
) -> None:
    """Show where replicas would go, which would wait, and which workloads would be refused. Nothing is changed.

    First the fleet is changed as supposed, then the workloads are applied in their order, as in one batch, then what
    waits is tried again until nothing more changes. Nothing binds meanwhile.
    """

    async def read_fleet_state(client: PlannerClient, _: Config) -> list[api.ExportReply]:
        return await _read_export(client)

    with exiting_on_error():
        config = config_of(context).config
        documents = read_planner_documents(files, namespace, config.namespace) if files else ()
        groups = group_by_workload(documents) if documents else []
        nodes = [_parse_added_nodes(text) for text in add_nodes or ()]
        if state is not None:
            replies = _load_export(state)
    if state is None:
        replies = run_with_planner_client(context, read_fleet_state)
    with exiting_on_error():
        if save is not None:
            _save_export(replies, save)
        if not exports.has_event_counts(replies):
            print_message(NOT_COUNTED)
        simulation, is_settled = run_simulation(replies, without or (), nodes, groups, state)
        document = whatif_tables.simulation_document(simulation, is_settled, replies[0])
        if output is Format.table:
            stdout_console().print(whatif_tables.render_simulation(document))
        else:
            print_for_machines(document, output)
    refused = any(answer["refused"] for answer in document["answers"])
    waits = any(outcome["unplaced"] for outcome in document["workloads"])
    raise typer.Exit(Code.FAILED if refused else Code.IN_PART if waits else Code.DONE)


def run_simulation(
    replies: list[api.ExportReply],
    without: list[str] | tuple[()],
    nodes: list[tuple[str, str, int]],
    groups: list[RequestGroup],
    file: Path | None,
) -> tuple[Simulation, bool]:
    """Returns the simulation after all decisions, and whether it came to rest.

    file: the file that the state was read from; None: a planner sent the state.
    """
    try:
        simulation = Simulation(exports.read_state(replies), exports.NOW, time.time_ns() // 1_000_000)
    except exports.NotAnExport as why:
        if file is not None:
            raise bad_input_error(f"--state {file}: the file cannot be used: {why}") from None
        raise CommandFailed(f"the exported state cannot be used: {why}") from None
    for cluster in without:
        simulation.lose_cluster(cluster)
    for cluster, like, count in nodes:
        simulation.add_nodes(cluster, like, count)
    for group in groups:
        texts = tuple(document.text for document in group.documents)
        answer = simulation.answer_request(group.workload_key, api.ApplyRequest(texts))
        answer.refused = text_with_places(answer.refused, group.documents)
    return simulation, simulation.run_until_quiet()


async def _read_export(client: PlannerClient) -> list[api.ExportReply]:
    return [reply async for reply in client.export(api.ExportRequest())]


def _save_export(replies: list[api.ExportReply], file: Path) -> None:
    try:
        exports.save_export(replies, file)
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror or error}") from None


def _load_export(file: Path) -> list[api.ExportReply]:
    try:
        return exports.load_export(file)
    except exports.NotAnExport as why:
        raise bad_input_error(f"--state {why}: expected a complete file written by `spillway export`") from None


def _parse_added_nodes(text: str) -> tuple[str, str, int]:
    """Returns (cluster, node group or node, count) of the text CLUSTER/GROUP=N."""
    place, _, count = text.rpartition("=")
    cluster, slash, like = place.partition("/")
    if not (cluster and slash and like and count.isdecimal()):
        raise bad_input_error(f"--add-nodes {text!r}: expected CLUSTER/GROUP=N, for example cloud-1/burst=5")
    return cluster, like, int(count)
