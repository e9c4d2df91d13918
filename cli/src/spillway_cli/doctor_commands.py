"""The command doctor, which checks an installation and gives a hint for each fault."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from spillway_cli.exits import Code, print_message, run_or_exit
from spillway_cli.options import Format, Output, config_of
from spillway_cli.output import print_for_machines, stdout_console

if TYPE_CHECKING:
    from spillway_cli.doctor.checks import Check

app = typer.Typer()

SECONDS_MAX = 3600.0
_MARKS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-"}


@app.command(epilog="Examples:  spillway doctor  ·  spillway doctor --quiet  ·  spillway doctor -o json")
def doctor(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, max=SECONDS_MAX, help="Seconds that one answer may take.")] = 5.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only checks that are not ok.")] = False,
    output: Output = Format.table,
) -> None:
    """Check services, log, store and clusters, and say how to fix each fault. Exit code 1 if a check failed.

    It changes nothing. It skips what no setting names, and says so: health ports, Redis, the folder of credentials.
    """

    async def run_and_print_checks() -> Code:
        from spillway_cli.doctor.asking import Examination

        found = await Examination(config_of(context).config, seconds).run_checks()
        shown = [check for check in found if check.outcome != "ok"] if quiet else found
        if output is Format.table:
            _print_checks(shown)
        else:
            print_for_machines(shown, output)
        counts = Counter(check.outcome.value for check in found)
        sys.stdout.flush()
        print_message(", ".join(f"{counts[name]} {name}" for name in _MARKS if counts[name]))
        return Code.FAILED if counts["failed"] else Code.DONE

    raise typer.Exit(run_or_exit(run_and_print_checks()))


def _print_checks(checks: "Sequence[Check]") -> None:
    """Prints a line for each check, with its hint below."""
    lines = stdout_console()
    for check in checks:
        lines.print(f"{_MARKS[check.outcome]} {check.outcome:<7}  {check.name}: {check.text}", soft_wrap=True)
        if check.hint:
            lines.print(f"             → {check.hint}", soft_wrap=True)
