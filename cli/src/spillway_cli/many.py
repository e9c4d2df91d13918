"""Applies many workloads in batches. Each workload has its own answer."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway.texts import counted_noun
from spillway_cli import tables
from spillway_cli.exits import Code, make_waiting_printer, print_message
from spillway_cli.grouping import RequestGroup
from spillway_cli.manifests import text_with_places
from spillway_cli.options import Format
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.waiting import wait_until_ready

BATCH_ITEMS_MAX = 200
BATCH_CHARACTERS_MAX = 1024 * 1024
"""The most characters of a batch.

A planner takes more, but other callers wait while it writes a batch as one transaction.
"""


async def apply_groups_in_batches(
    client: PlannerClient, groups: Sequence[RequestGroup], output: Format, seconds: float
) -> Code:
    """Applies the groups in batches and prints a line for each workload.

    seconds: how long to wait until all workloads are ready; 0 does not wait.
    """
    answers: list[api.BatchAnswer] = []
    for batch in batched_groups(groups):
        items = tuple(api.BatchItem(apply=api.ApplyRequest(_document_texts(group))) for group in batch)
        reply = await client.plan_batch(api.PlanBatchRequest(items))
        named = zip(batch, reply.answers, strict=True)
        answers += [replace(answer, error=text_with_places(answer.error, group.documents)) for group, answer in named]
    placed = [answer.placement for answer in answers if answer.placement is not None]
    if output is Format.table:
        stdout_console().print(tables.render_batch_answers([group.workload_key for group in groups], answers))
        for placement in placed:
            for warning in placement.warnings:
                print_message(f"warning: {placement.namespace}/{placement.name}: {warning}")
    else:
        print_for_machines(api.PlanBatchReply(tuple(answers)), output)
    refused = sum(answer.placement is None for answer in answers)
    if refused:
        print_message(f"{counted_noun(refused, 'workload')} of {len(answers)} refused")
        return Code.FAILED
    deadline = time.monotonic() + seconds
    for placement in placed if seconds else ():
        await wait_until_ready(client, placement, max(0.1, deadline - time.monotonic()), make_waiting_printer())
    return Code.IN_PART if any(placement.unplaced for placement in placed) and not seconds else Code.DONE


def batched_groups(groups: Sequence[RequestGroup]) -> Iterator[list[RequestGroup]]:
    """Yields the groups in their order, in batches within the limits.

    A group that is too large alone is its own batch.
    """
    batch: list[RequestGroup] = []
    size = 0
    for group in groups:
        more = sum(map(len, _document_texts(group)))
        if batch and (len(batch) == BATCH_ITEMS_MAX or size + more > BATCH_CHARACTERS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(group)
        size += more
    if batch:
        yield batch


def _document_texts(group: RequestGroup) -> tuple[str, ...]:
    return tuple(document.text for document in group.documents)
