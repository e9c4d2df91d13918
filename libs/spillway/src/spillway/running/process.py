"""A service as a process: settings, logs, signals, health, and exit codes that show if the operator must act."""

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Never

import structlog
from aiohttp import web
from msgspec import Meta

from spillway import metrics, tracing
from spillway.bus import Bus, NoLog, OtherFleet, TooManyDeadLetters
from spillway.running.http_port import PortBounds, open_http_port
from spillway.running.steady_clock import SteadyLoop, steady_seconds
from spillway.settings import OperatorError, SettingsError, help_text, setting, settings_from_environment
from spillway.tracing import TraceSettings
from spillway.version import VERSION

__all__ = [
    "OperatorError",
    "Process",
    "ProcessSettings",
    "SettingsError",
    "end_when_fleet_changes",
    "print_help_if_asked",
    "read_process_settings",
    "run",
]

EXIT_DONE, EXIT_FAILED, EXIT_OPERATOR = 0, 1, 2

PREFIX = "SPILLWAY_"

_OPERATOR_ERRORS: tuple[type[Exception], ...] = (OperatorError, NoLog, OtherFleet, TooManyDeadLetters)
_HEALTH_BOUNDS = PortBounds(connections_max=100, strangers_max=100, stranger_seconds=10.0, idle_seconds=10.0)
"""The health port authenticates nobody. So each connection gets one request and some seconds for it. A probe and a
scrape every second from each of a dozen places need some twenty connections at a time."""
_PAGE_SECONDS = 1.0
"""The seconds for which one page of metrics is reused. For a large fleet, a page takes 0.1 s of the event loop."""
_CANCEL_SECONDS = 5.0
_LEFT_SECONDS = 1.0
"""The seconds that a cancelled main (_CANCEL_SECONDS), and then all other tasks (_LEFT_SECONDS), may take before the
process exits without them."""


@dataclass(frozen=True, slots=True)
class ProcessSettings(TraceSettings):
    instance: str = setting(
        "", "name of this instance in turns, logs and metrics; empty: a name made of host, process and a random part"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "severity of the least severe log messages that are written"
    )
    health_host: str = setting("127.0.0.1", "address that /healthz, /readyz and /metrics listen on")
    health_port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        0, "port of /healthz, /readyz and /metrics; 0: no such port"
    )
    stop_seconds: Annotated[float, Meta(ge=0)] = setting(
        15.0, "seconds that running work may take after a stop, before it is cancelled"
    )


class Process:
    """The process as a service's main sees it: when to stop, where to log, and which parts are ready.

    Call set_ready(part, False) before the first await of main, so that /readyz is never too early. Call note_opened()
    once there is work to finish: before that a stop cancels main at once.
    """

    def __init__(self, service: str, settings: ProcessSettings) -> None:
        self.service = service
        self.settings = settings
        self.instance = settings.instance or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        self.stopping = asyncio.Event()
        self.log: structlog.typing.FilteringBoundLogger = structlog.get_logger(service=service, instance=self.instance)
        self.is_open = False
        self._unready: dict[str, str | None] = {}

    def note_opened(self) -> None:
        """Notes that main has work to finish. From then on a stop gives main stop_seconds to end by itself."""
        self.is_open = True

    def set_ready(self, part: str, ready: bool, reason: str = "") -> None:
        """Sets whether a part is ready. /readyz answers 200 only while all parts are ready. reason: text for users."""
        before = self._unready.get(part, "")
        self._unready[part] = None if ready else reason or "not ready"
        if (before is None) != ready or before == "":
            metrics.READY.labels(part).set(ready)
            self.log.info("part ready" if ready else "part not ready", part=part, reason=reason)

    def unready_reasons_by_part(self) -> dict[str, str]:
        """Returns the reasons why /readyz answers 503, by part; empty when all parts are ready."""
        reasons = {part: reason for part, reason in self._unready.items() if reason is not None}
        if self.stopping.is_set():
            reasons["process"] = "stopping"
        return reasons


def read_process_settings(environ: dict[str, str] | os._Environ[str] | None = None) -> ProcessSettings:
    """Reads the settings of the process, for example SPILLWAY_LOG_LEVEL.

    Other settings share the prefix, so an unknown variable is refused only if it looks like a typing error.
    """
    return settings_from_environment(ProcessSettings, os.environ if environ is None else environ, PREFIX, shared=True)


def print_help_if_asked(summary: str, *sections: tuple[type, str], argv: list[str] | None = None) -> bool:
    """Prints the help if --help or -h was given, and returns whether it was. sections: (dataclass, prefix)."""
    if not {"--help", "-h"} & set(sys.argv[1:] if argv is None else argv):
        return False
    print(help_text(summary, *sections, (ProcessSettings, PREFIX)))
    return True


async def end_when_fleet_changes(bus: Bus) -> Never:
    """Raises OtherFleet when the log belongs to another fleet, or to none: the process must stop."""
    raise OtherFleet(await bus.wait_for_fleet_change())


def run(
    service: str,
    main: Callable[[Process], Awaitable[None]],
    settings: ProcessSettings | None = None,
    operator_errors: tuple[type[Exception], ...] = (),
) -> int:
    """Runs main to its end and returns the exit code: 0 clean, 2 the operator must change something, otherwise 1.

    settings None: read from the environment. main may read its own settings: a SettingsError ends in one clear line.
    operator_errors: further exceptions that end in one clear line and exit code 2.
    """
    known = (*_OPERATOR_ERRORS, *operator_errors)
    try:
        chosen = settings or read_process_settings()
    except SettingsError as error:
        _configure_logs("info")
        structlog.get_logger(service=service).critical("cannot start", error=str(error))
        return EXIT_OPERATOR
    _configure_logs(chosen.log_level)
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(_run_service(service, main, chosen, known))


async def _run_service(
    service: str,
    main: Callable[[Process], Awaitable[None]],
    settings: ProcessSettings,
    operator_errors: tuple[type[Exception], ...],
) -> int:
    process = Process(service, settings)
    code = await _run_to_exit_code(process, main, operator_errors)
    await _cancel_leftover_tasks(process, code)
    return code


async def _cancel_leftover_tasks(process: Process, code: int) -> None:
    """Cancels the tasks that are left at the end. If a task does not end, exits the process with `code` at once.

    For example, aiokafka's close of a client that is being opened may neither end nor be cancelled.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_LEFT_SECONDS)
    if left:
        process.log.warning("what does not end is left behind", waiting=list(_waiting_places()))
        sys.stdout.flush()
        os._exit(code)


async def _run_to_exit_code(
    process: Process, main: Callable[[Process], Awaitable[None]], operator_errors: tuple[type[Exception], ...]
) -> int:
    service, settings = process.service, process.settings
    tracing.configure(service, settings, process.instance)
    metrics.BUILD.labels(VERSION).set(1)
    try:
        async with _handling_signals(process), _serving_health(process):
            process.log.info("started", pid=os.getpid())
            clean = await _run_until_stopped(process, main)
        process.log.info("stopped", clean=clean)
        return EXIT_DONE if clean else EXIT_FAILED
    except Exception as error:
        causes = list(_leaf_exceptions(error))
        if all(isinstance(cause, operator_errors) for cause in causes):
            for cause in causes:
                process.log.critical("cannot run", error=str(cause), kind=type(cause).__name__)
            return EXIT_OPERATOR
        process.log.critical("failed", error=str(causes[0]), kind=type(causes[0]).__name__, exc_info=error)
        return EXIT_FAILED
    finally:
        await asyncio.to_thread(tracing.shutdown)


async def _run_until_stopped(process: Process, main: Callable[[Process], Awaitable[None]]) -> bool:
    """Runs main until it returns, or until a stop. Returns whether it ended cleanly.

    It does so if it returns in time, or if it is cancelled before it has work to finish.
    """
    work = asyncio.ensure_future(main(process))
    stop = asyncio.create_task(process.stopping.wait())
    try:
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and process.is_open:
            await asyncio.wait({work}, timeout=process.settings.stop_seconds)
    finally:
        stop.cancel()
    if work.done():
        work.result()
        return True
    if process.is_open:
        busy = process.settings.stop_seconds
        process.log.warning("still busy: cancelled", stop_seconds=busy, waiting=list(_waiting_places()))
    await _cancel_work(process, work)
    return not process.is_open


async def _cancel_work(process: Process, work: "asyncio.Future[None]") -> None:
    work.cancel()
    await asyncio.wait({work}, timeout=_CANCEL_SECONDS)
    if not work.done():
        process.log.critical(
            "does not end after being cancelled: killed", seconds=_CANCEL_SECONDS, waiting=list(_waiting_places())
        )
        sys.stdout.flush()
        os._exit(EXIT_FAILED)
    if not work.cancelled():
        work.result()


def _waiting_places() -> Iterator[str]:
    """Yields where each task waits: function:line of its coroutine and of the ones it awaits, outermost first."""
    for task in asyncio.all_tasks():
        awaited: Any = task.get_coro()
        places = []
        while inspect.iscoroutine(awaited) and awaited.cr_frame is not None:
            places.append(f"{awaited.__qualname__}:{awaited.cr_frame.f_lineno}")
            awaited = awaited.cr_await
        yield " > ".join(places)


@contextlib.asynccontextmanager
async def _handling_signals(process: Process) -> Any:
    """Sets `stopping` at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()

    def note_stop_signal(name: str) -> None:
        process.log.info("asked to stop", signal=name)
        process.stopping.set()

    names = (signal.SIGTERM, signal.SIGINT)
    for number in names:
        loop.add_signal_handler(number, note_stop_signal, number.name)
    try:
        yield
    finally:
        for number in names:
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _serving_health(process: Process) -> Any:
    """Serves /healthz, /readyz and /metrics while it is open."""
    if not process.settings.health_port:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = process.unready_reasons_by_part()
        body = {"ready": not reasons, "reasons": reasons}
        return web.json_response(body, status=503 if reasons else 200)

    page = _MetricsPage()

    async def metrics_page(_: web.Request) -> web.Response:
        return web.Response(body=page.body(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics_page)])
    app.on_response_prepare.append(_close_after_response)
    place = process.settings.health_host, process.settings.health_port
    async with AsyncExitStack() as entered:
        try:
            await entered.enter_async_context(
                open_http_port("health", app, place, _HEALTH_BOUNDS, shutdown_timeout=1.0)
            )
        except (OSError, UnicodeError) as error:
            where = f"{place[0]}:{place[1]}"
            raise SettingsError(f"SPILLWAY_HEALTH_HOST/PORT: cannot listen on {where}: {error}") from error
        yield


async def _close_after_response(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Connection"] = "close"  # aiohttp has written its own header already.
    response.force_close()


class _MetricsPage:
    """The page of metrics, made at most once in _PAGE_SECONDS."""

    def __init__(self) -> None:
        self._body = b""
        self._until = 0.0

    def body(self) -> bytes:
        now = steady_seconds()
        if now >= self._until:
            self._body = metrics.exposition_text()
            self._until = steady_seconds() + _PAGE_SECONDS
        return self._body


def _leaf_exceptions(error: BaseException) -> Iterator[BaseException]:
    """Yields the exceptions in an exception group, also in nested ones; for another exception, yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaf_exceptions(inner)
    else:
        yield error


def _configure_logs(level: str) -> None:
    """Logs JSON lines to stdout, or a readable form on a terminal. Logs of libraries get the same form."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    human = sys.stdout.isatty()
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
