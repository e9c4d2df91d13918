"""Runs one invocation of a command with its connection flags, config and clients."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import typer

from spillway import tracing
from spillway.api_errors import RequestError
from spillway.rpc.client import LendingClient, PlannerClient, ScalingClient
from spillway.settings import settings_from_environment
from spillway_cli.config import Config, addresses_file, read_addresses, unreachable_hint
from spillway_cli.exits import print_message, run_or_exit
from spillway_cli.naming import OnlyReading, change_refused_error, describe_default_service, hint_by_unnamed_setting
from spillway_cli.options import config_of

T = TypeVar("T")
C = TypeVar("C", PlannerClient, ScalingClient, LendingClient)

_CHANGED: ContextVar[dict[str, str]] = ContextVar("changed")
"""The fleets in which this command has changed something, and an endpoint of each."""
_UNNAMED: ContextVar[Mapping[str, str]] = ContextVar("unnamed")
"""Settings whose address the user did not give, each with a text on how to give it; empty if a fleet is given."""


def run_with_config(context: typer.Context, body: Callable[[Config], Awaitable[T]]) -> T:
    """Runs body with the config of this invocation; errors end the command in one line."""

    async def run_and_print_changed_fleets() -> T:
        resolved = config_of(context)
        config = resolved.config
        _UNNAMED.set(hint_by_unnamed_setting(resolved))
        tracing.configure("cli", settings_from_environment(tracing.TraceSettings, os.environ, "SPILLWAY_", shared=True))
        changed: dict[str, str] = {}
        _CHANGED.set(changed)
        try:
            return await body(config)
        finally:
            tracing.shutdown()
            if not config.fleet and not _is_output_for_machines(context):
                for fleet, endpoint in changed.items():
                    print_message(f"fleet {fleet}, at {endpoint}")

    return run_or_exit(run_and_print_changed_fleets())


def _is_output_for_machines(context: typer.Context) -> bool:
    return str(getattr(context.params.get("output"), "value", "")) in ("json", "yaml")


def run_with_planner_client(context: typer.Context, body: Callable[[PlannerClient, Config], Awaitable[T]]) -> T:
    """Runs body with a client of the configured planners."""

    async def run_with_client(config: Config) -> T:
        async with planner_client(config) as client:
            return await body(client, config)

    return run_with_config(context, run_with_client)


def run_with_scaling_client(context: typer.Context, body: Callable[[ScalingClient, Config], Awaitable[T]]) -> T:
    """Runs body with a client of the configured instances of hpa."""

    async def run_with_client(config: Config) -> T:
        async with scaling_client(config) as client:
            return await body(client, config)

    return run_with_config(context, run_with_client)


def run_with_lending_client(context: typer.Context, body: Callable[[LendingClient, Config], Awaitable[T]]) -> T:
    """Runs body with a client of the configured deschedulers."""

    async def run_with_client(config: Config) -> T:
        async with lending_client(config) as client:
            return await body(client, config)

    return run_with_config(context, run_with_client)


@asynccontextmanager
async def _open_client(kind: type[C], who: str, setting: str, config: Config) -> AsyncIterator[C]:
    """Opens a client of a service. setting: the setting that names the service's endpoints."""
    with _naming_service_in_errors(who, setting, config):
        async with kind(getattr(config, setting), **connection_options(config)) as client:
            with _noting_changed_fleets(client, config):
                how_to_name = _UNNAMED.get({}).get(setting, "")
                if not how_to_name:
                    yield client
                else:
                    who, is_there = await describe_default_service(setting, config)
                    yield cast(C, OnlyReading(client, who, how_to_name, [] if is_there else [who]))


def print_answering_fleet(client: PlannerClient) -> None:
    """Prints above a list to which fleet it belongs."""
    if client.fleets.answered and "endpoints" not in _UNNAMED.get({}):
        print_message(f"fleet {client.fleets.answered}")


async def refuse_unnamed_address(config: Config, setting: str) -> None:
    """Raises CommandFailed if the user did not give this setting's address. For changes that call several services."""
    if how_to_name := _UNNAMED.get({}).get(setting, ""):
        raise change_refused_error((await describe_default_service(setting, config))[0], how_to_name)


def planner_client(config: Config) -> AbstractAsyncContextManager[PlannerClient]:
    return _open_client(PlannerClient, "planner", "endpoints", config)


def scaling_client(config: Config) -> AbstractAsyncContextManager[ScalingClient]:
    return _open_client(ScalingClient, "hpa", "scaling_endpoints", config)


def lending_client(config: Config) -> AbstractAsyncContextManager[LendingClient]:
    return _open_client(LendingClient, "descheduler", "lending_endpoints", config)


def connection_options(config: Config) -> dict[str, Any]:
    return {
        "token": config.token,
        "ca": config.ca,
        "identity": (config.certificate, config.key) if config.certificate else None,
        "timeout_seconds": config.timeout_seconds,
        "retry_seconds": config.retry_seconds,
        "fleet": config.fleet,
    }


@contextmanager
def _noting_changed_fleets(client: PlannerClient | ScalingClient | LendingClient, config: Config) -> Iterator[None]:
    """Stores the fleets in which the client changed something, to print them at the end of the command.

    If another fleet than the named one answers, the error gets a hint.
    """
    try:
        yield
    except RequestError as error:
        if not client.fleets.is_other:
            raise
        file = addresses_file()
        hint = "`spillway config` shows the sources of the address and of the wanted fleet"
        if read_addresses(file).get("fleet") == config.fleet:
            hint += f"; the wanted fleet is that of {file}"
        raise RequestError(error.code, f"{error.text}; {hint}") from None
    finally:
        _CHANGED.get({}).update(client.fleets.changed)


@contextmanager
def _naming_service_in_errors(who: str, name: str, config: Config) -> Iterator[None]:
    """Adds to an error which service was not reached or cannot answer now, and a hint.

    name: the setting that names the service's endpoints.
    """
    try:
        yield
    except RequestError as error:
        if error.code == "UNAVAILABLE" and error.reason:
            text = f"{who} answers, but cannot do this now: {error.text}; `spillway doctor` says what is wrong"
            raise error.with_text(text) from None
        if error.code == "UNAVAILABLE":
            text = f"{who} not reachable: {error.text}; {unreachable_hint(config, name)}"
            raise error.with_text(text) from None
        raise
