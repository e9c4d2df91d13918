"""Makes the output of replay and simulate, for people and for machines."""

import hashlib
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.core.explaining.simulating import Simulation
from planner.core.placement.replaying import ReplayResult
from spillway.api import ExportReply
from spillway.events import DecisionRecorded
from spillway.texts import counted_noun
from spillway_cli.output import make_table, wall_time_text

COMPARED = "the division, computed again from what the record holds: replicas held, policy, room of each cluster"


def render_replay(record: DecisionRecorded, found: ReplayResult, notes: list[str]) -> RenderableType:
    title = Text(f"{record.namespace}/{record.name}", style="bold")
    title.append(f"  decision {record.generation}, {record.cause}, {wall_time_text(record.at_ms)}", style="not bold")
    places = ", ".join(f"{name} {count}" for name, count in sorted(found.division.replicas.items()) if count)
    verdict = "the same result, byte by byte" if found.is_same else "THE RESULT DIFFERS"
    lines = [
        title,
        Text(verdict, style="green" if found.is_same else "bold red"),
        Text(f"  compared    {COMPARED}"),
        Text(f"  divided     {record.replicas} replicas: {places or 'none'}; {found.division.unplaced} have no place"),
        Text(f"  recorded    {_size_and_digest_text(found.recorded)}"),
        Text(f"  recomputed  {_size_and_digest_text(found.recomputed)}"),
    ]
    lines += [Text(f"  {difference}", style="red") for difference in found.differences]
    lines += [Text(f"  not part of the division: {text}") for text in found.aside]
    lines += [Text(f"  {note}", style="yellow") for note in notes]
    return Group(*lines)


def _size_and_digest_text(text: bytes) -> str:
    return f"{counted_noun(len(text), 'byte')}, sha256 {hashlib.sha256(text).hexdigest()[:16]}"


def simulation_document(simulation: Simulation, is_settled: bool, header: ExportReply) -> dict[str, Any]:
    """Returns a simulation's result for machines: answers in the order of the requests, and changed workloads."""
    return {
        "fleet": header.fleet,
        "at_ms": header.at_ms,
        "settled": is_settled,
        "answers": [
            {
                "workload": answer.workload,
                "refused": answer.refused,
                "placed": answer.placement.placed if answer.placement else 0,
                "unplaced": answer.placement.unplaced if answer.placement else 0,
                "clusters": {part.cluster: part.replicas for part in answer.placement.parts if part.replicas}
                if answer.placement
                else {},
                "unmodelled": list(answer.placement.unmodelled) if answer.placement else [],
                "warnings": list(answer.placement.warnings) if answer.placement else [],
            }
            for answer in simulation.answers
        ],
        "workloads": [
            {
                "workload": outcome.workload,
                "replicas": outcome.replicas,
                "before": dict(outcome.before),
                "after": dict(outcome.after),
                "new_before": dict(outcome.new_before),
                "new_after": dict(outcome.new_after),
                "unplaced": outcome.unplaced,
                "waiting_for": outcome.waiting_for,
            }
            for outcome in simulation.placement_outcomes()
        ],
    }


def render_simulation(document: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [
        Text(
            f"fleet {document['fleet']} as it was {wall_time_text(document['at_ms'])}; nothing is changed", style="bold"
        )
    ]
    refused = [answer for answer in document["answers"] if answer["refused"]]
    if refused:
        whys = [(answer["workload"], answer["refused"]) for answer in refused]
        parts += [Text(""), make_table(("WOULD BE REFUSED", "WHY"), whys)]
    if document["workloads"]:
        rows = [
            (
                entry["workload"],
                entry["replicas"],
                entry["unplaced"] or "",
                _replicas_by_cluster_text(entry["before"], entry["new_before"]),
                _replicas_by_cluster_text(entry["after"], entry["new_after"]),
                entry["waiting_for"],
            )
            for entry in document["workloads"]
        ]
        columns = ("WORKLOAD", "REPLICAS", "WAITING", "IS IN", "WOULD BE IN", "")
        parts += [Text(""), make_table(columns, rows, right=("REPLICAS", "WAITING"))]
    elif not refused:
        parts.append(Text("no replica would move, and none waits"))
    for answer in document["answers"]:
        parts += [Text(f"{answer['workload']}: {text}", style="yellow") for text in _answer_notes(answer)]
    if not document["settled"]:
        parts.append(Text("the simulation did not come to rest: the table shows its last state", style="yellow"))
    return Group(*parts)


def _answer_notes(answer: dict[str, Any]) -> list[str]:
    """Returns the notes that `spillway apply` would print in addition to the placement."""
    unmodelled = answer["unmodelled"]
    return [*([f"not computed: {', '.join(unmodelled)}"] if unmodelled else []), *answer["warnings"]]


def _replicas_by_cluster_text(replicas: dict[str, int], new: dict[str, int]) -> str:
    """Returns the replicas by cluster as text. new: how many of them are for nodes that do not exist yet."""
    on_nodes = [(name, count - new.get(name, 0)) for name, count in sorted(replicas.items())]
    on_new = [(f"{name} on new nodes", count) for name, count in sorted(new.items())]
    return ", ".join(f"{where} {count}" for where, count in (*on_nodes, *on_new) if count) or "-"
