"""One invocation: its connection flags, its config, its client; and the options that many commands share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from spillway.api import RequestError
from spillway.rpc import PlannerClient
from spillway_cli.config import Config, Resolved, resolve
from spillway_cli.exits import finish
from spillway_cli.output import Format

T = TypeVar("T")

Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the answer on stdout.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is so in the clusters.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that --wait may take.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; without it the configured one.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Flags:
    """The connection flags as given, before anything is read."""

    values: Mapping[str, Any]
    file: Path | None

    def resolve(self) -> Resolved:
        return resolve(self.values, self.file)


def config_of(context: typer.Context) -> Resolved:
    flags: Flags = context.obj
    return flags.resolve()


def with_planner(context: typer.Context, body: Callable[[PlannerClient, Config], Awaitable[T]]) -> T:
    """Runs body with a client of the configured planners; errors end the command in one line."""

    async def work() -> T:
        config = config_of(context).config
        identity = (config.certificate, config.key) if config.certificate else None
        client = PlannerClient(
            config.endpoints,
            token=config.token,
            ca=config.ca,
            identity=identity,
            timeout_seconds=config.timeout_seconds,
            retry_seconds=config.retry_seconds,
        )
        async with client:
            try:
                return await body(client, config)
            except RequestError as error:
                if error.code == "UNAVAILABLE":
                    hint = "is the planner running? `spillway config` shows where it is looked for"
                    raise RequestError(error.code, f"planner not reachable: {error.text}; {hint}") from None
                raise

    return finish(work())
