"""Reads values from Prometheus with instant queries. A result that is not exactly one finite number is unknown."""

import asyncio
import math
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from hpa.external_metrics.connections import IN_THE_LOG, NO_CREDENTIALS, MetricUnknown, PrometheusConnection
from spillway.http_client import content_encoding, error_text, open_session

MILLI_MAX: Final = 2**63 - 1
WORDS_MAX: Final = 200


class ValueUnknown(MetricUnknown):
    """Raised when a query has no value that hpa can use."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    answer_seconds: float = 5.0
    """The longest time for one whole answer."""
    answer_bytes_max: int = 1_000_000
    """The most bytes of an answer; the rest is not read. The answer to a query of one number is small."""
    connections_max: int = 8
    """The most connections to one server at one time."""


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: Any = None


class _PrometheusAnswer(msgspec.Struct, rename="camel"):
    """An answer of Prometheus' HTTP API, with the fields that its documentation names."""

    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    error_type: str = ""
    error: str = ""


_ANSWER: Final = msgspec.json.Decoder(_PrometheusAnswer)


class Prometheus:
    """Reads values over one named connection, which is opened when it is first needed."""

    def __init__(self, connection: PrometheusConnection, settings: PrometheusSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def value_milli(self, query: str) -> int | None:
        """Returns the query's value in thousandths, cut off as in KEDA; None if the answer is empty. Raises
        ValueUnknown."""
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                status, body = await self._send_query(query)
        except TimeoutError as error:
            raise ValueUnknown(f"no answer within {self._settings.answer_seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            name, told = type(error).__name__, ""
            if isinstance(error, aiohttp.ClientOSError):
                told = f"{name}: the server cannot be reached: {IN_THE_LOG}"
            elif not isinstance(error, aiohttp.ClientError):  # A file of the connection, or its content.
                told = NO_CREDENTIALS
            raise ValueUnknown(f"{name}: {error_text(error)}"[:WORDS_MAX], told) from error
        return parse_value_milli(status, body)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send_query(self, query: str) -> tuple[int, bytes]:
        connection = self._connection
        token = connection.bearer_token_file
        headers = {"Authorization": f"Bearer {(await asyncio.to_thread(_read_text_file, token))}"} if token else {}
        url = f"{connection.address.rstrip('/')}/api/v1/query"
        session = await self._open_session()
        # A redirect would lead to an address that no operator named.
        async with session.get(url, params={"query": query}, headers=headers, allow_redirects=False) as answer:
            if encoding := content_encoding(answer):
                raise ValueUnknown(f"an answer in the encoding {encoding!r}: expected identity, which was asked for")
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > self._settings.answer_bytes_max:
                    raise ValueUnknown(f"an answer of more than {self._settings.answer_bytes_max} bytes")
            return answer.status, bytes(body)

    async def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            ca_file = self._connection.ca_file
            context = await asyncio.to_thread(_tls_context_for_ca_file, ca_file) if ca_file else True
            if self._session is None:  # Another query may have opened it meanwhile.
                timeout = aiohttp.ClientTimeout(total=self._settings.answer_seconds)
                self._session = open_session(self._settings.connections_max, timeout, tls=context)
        return self._session


def parse_value_milli(status: int, body: bytes) -> int | None:
    """Returns the one value of an answer in thousandths; None if the answer is empty. Raises ValueUnknown."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueUnknown(f"HTTP status {status}, not an answer of Prometheus") from error
    if answer.status != "success":
        raise ValueUnknown(f"{answer.error_type or f'HTTP status {status}'}: {answer.error}"[:WORDS_MAX])
    if status != 200:
        raise ValueUnknown(f"HTTP status {status}")
    kind, result = answer.data.result_type, answer.data.result
    if kind == "vector" and isinstance(result, list):
        if len(result) > 1:
            raise ValueUnknown(f"{len(result)} series: expected a query of one")
        return _parse_sample_milli(result[0].get("value") if isinstance(result[0], dict) else None) if result else None
    if kind == "scalar":
        return _parse_sample_milli(result)
    raise ValueUnknown(f"result of type {kind[:WORDS_MAX]!r}: expected a scalar, or a vector of one")


def _parse_sample_milli(sample: Any) -> int:
    """Returns the number in a sample [time, "number"], in thousandths."""
    try:
        _, text = sample
        number = float(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueUnknown(f"a sample that is not a time and a number: {str(sample)[:WORDS_MAX]}") from error
    if not math.isfinite(number):
        raise ValueUnknown(f"the value is {text}")
    if abs(number) * 1000 > MILLI_MAX:
        raise ValueUnknown(f"the value is {text}: expected at most {MILLI_MAX // 1000}")
    return int(number * 1000)


def _tls_context_for_ca_file(ca_file: str) -> ssl.SSLContext:
    """Returns a context that trusts the certificates in a file. Raises OSError with the file's name."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise OSError(f"CA file {ca_file!r}: {error.strerror or error}") from error


def _read_text_file(path: str) -> str:
    return Path(path).read_text().strip()
