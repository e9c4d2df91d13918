"""Commands on the fleet as a whole: recover."""

import asyncio
import time
from collections import Counter
from typing import Annotated

import typer

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway_cli import tables
from spillway_cli.config import Config
from spillway_cli.exits import Code, CommandFailed, print_message
from spillway_cli.options import Format, Output
from spillway_cli.output import print_for_machines, stdout_console
from spillway_cli.session import run_with_planner_client

app = typer.Typer()

POLL_SECONDS = 1.0


@app.command(epilog="Example:  spillway fleet recover --from prod-1a2b3c4d   shows it;  with --yes it is done")
def recover(
    context: typer.Context,
    fleet_before: Annotated[str, typer.Option("--from", help="Id of the former fleet.", show_default=False)],
    confirmed: Annotated[
        bool, typer.Option("--yes", help="Carry it out; without --yes the command only shows what it would do.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that the whole command may take.")
    ] = 600.0,
    output: Output = Format.table,
) -> None:
    """Take over all objects that have a former fleet's label, as they run, after its log was lost.

    Join the clusters first. Nothing is deleted, scaled or restarted. It can be run again at any time.
    """

    async def recover_fleet(client: PlannerClient, _: Config) -> Code:
        request = api.RecoverFleetRequest(fleet_before, confirmed)
        first = reply = await client.recover_fleet(request)
        seen = {(one.namespace, one.name): one for one in first.workloads}
        until = time.monotonic() + timeout
        while confirmed and (reply.remaining or _count_recovering_workloads(reply)):
            print_message(_progress_text(reply))
            if time.monotonic() > until:
                raise CommandFailed(
                    f"not done after {timeout:g} s: {_progress_text(reply)}; run it again", Code.TIMED_OUT
                )
            await asyncio.sleep(POLL_SECONDS)
            reply = await client.recover_fleet(request)
            found = {(one.namespace, one.name): one for one in reply.workloads}
            # A workload that no longer bears the former label has been taken over.
            seen |= found | {key: _recovered_workload(one) for key, one in seen.items() if key not in found}
        whole = api.RecoverFleetReply(fleet_before, tuple(seen[key] for key in sorted(seen)), 0, reply.notes)
        if output is not Format.table:
            print_for_machines(whole, output)
        else:
            _print_recovery(whole, confirmed)
        return Code.IN_PART if any(one.state == "Refused" for one in whole.workloads) else Code.DONE

    raise typer.Exit(run_with_planner_client(context, recover_fleet))


def _count_recovering_workloads(reply: api.RecoverFleetReply) -> int:
    return sum(one.state == "Recovering" for one in reply.workloads)


def _progress_text(reply: api.RecoverFleetReply) -> str:
    return f"{_count_recovering_workloads(reply)} workloads are being taken over, {reply.remaining} wait"


def _recovered_workload(one: api.RecoveredWorkload) -> api.RecoveredWorkload:
    if one.state == "Refused":
        return one
    return api.RecoveredWorkload(one.namespace, one.name, "Recovered", "", one.replicas)


def _print_recovery(reply: api.RecoverFleetReply, confirmed: bool) -> None:
    if not reply.workloads:
        print_message(f"no object has the label of fleet {reply.fleet_before}")
        return
    stdout_console().print(tables.render_recovered_workloads(reply))
    counts = Counter(one.state for one in reply.workloads)
    print_message(", ".join(f"{count} {state.lower()}" for state, count in sorted(counts.items())))
    print_message("each workload has the default policy: apply a workload with its PlacementPolicy to change that")
    if not confirmed:
        print_message("nothing was changed: --yes carries it out")
