"""Refusals in gRPC's form: code, text, and google.rpc.ErrorInfo with the reason, within the size limit of trailers.

By gRPC's default a client takes 8 KiB of trailers. With more it reports RESOURCE_EXHAUSTED instead of the
server's answer. So long texts are cut here, and the number of missing characters is added.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from spillway.api_errors import RequestError
from spillway.reasons import LOG_UNAVAILABLE

DETAILS_TRAILER: Final = "grpc-status-details-bin"
"""The trailer in which gRPC sends a google.rpc.Status with its details."""
DOMAIN: Final = "spillway.io"
"""The domain of our reasons in google.rpc.ErrorInfo."""
TEXT_BYTES_MAX: Final = 1536
"""The most bytes of a text in the encoding of trailers, where each byte other than printable ASCII takes three."""
DETAILS_BYTES_MAX: Final = 1024
"""The most bytes of all names and values of a refusal's details."""
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters that gRPC writes into a trailer's text without encoding them."""

Trailer = tuple[tuple[str, str | bytes], ...]


def trailer_sized_text(text: str) -> str:
    """Returns a text that fits into trailers. A longer text is cut, and the number of characters left out is added."""
    text = text.encode(errors="replace").decode()  # A lone surrogate cannot be encoded.
    if _encoded_size(text) <= TEXT_BYTES_MAX:
        return text
    most = TEXT_BYTES_MAX - _encoded_size(_left_out_text(len(text)))
    kept, size = 0, 0
    for character in text:
        size += _encoded_size(character)
        if size > most:
            break
        kept += 1
    return text[:kept] + _left_out_text(len(text) - kept)


def trailer_of_refusal(error: RequestError, text: str) -> Trailer:
    """Returns the trailer with the reason and details of a refusal; empty where the code is enough."""
    if not error.reason:
        return ()
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=_details_that_fit(error.details))
    status = status_pb2.Status(code=StatusCode[error.code].value[0], message=text)
    status.details.add().Pack(info)
    return ((DETAILS_TRAILER, status.SerializeToString()),)


def log_unavailable_refusal(error: Exception) -> tuple[str, str, Trailer]:
    """Returns code, text and trailer of a refusal because the log cannot be written."""
    text = trailer_sized_text(f"the log cannot be written now: {error}")
    refused = RequestError("UNAVAILABLE", text, LOG_UNAVAILABLE)
    return refused.code, text, trailer_of_refusal(refused, text)


def received_refusal(code: str, text: str, trailer: Any) -> RequestError:
    """Returns the refusal that a client received. trailer: of the call that failed; None when there was none."""
    found = dict(trailer or ()).get(DETAILS_TRAILER)
    status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
    try:
        status.ParseFromString(found if isinstance(found, bytes) else b"")
        for detail in status.details:
            if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
                return RequestError(code, text, info.reason, dict(info.metadata))
    except DecodeError:
        pass  # It comes from a program between us and the server: only code and text can be used.
    return RequestError(code, text)


def _details_that_fit(details: Mapping[str, str]) -> dict[str, str]:
    """Returns the first details that fit into DETAILS_BYTES_MAX. The last of them may be cut."""
    kept, left = dict[str, str](), DETAILS_BYTES_MAX
    for name, value in details.items():
        room = left - len(name.encode())
        if room <= 0:
            break
        kept[name] = value.encode()[:room].decode(errors="ignore")
        left = room - len(kept[name].encode())
    return kept


def _encoded_size(text: str) -> int:
    return len(quote(text, safe=_SAFE))


def _left_out_text(characters: int) -> str:
    return f"... ({characters} characters more)"
