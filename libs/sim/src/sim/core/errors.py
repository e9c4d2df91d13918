"""The refusals of the API, in the words of the Kubernetes API server."""

from collections.abc import Sequence
from typing import Any

from sim.core.kinds import Kind


class ApiError(Exception):
    """A request is refused. Its answer is a `Status` object."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        return status | {"code": self.code}


def _error_details(kind: Kind, name: str) -> dict[str, Any]:
    return (
        {"name": name, "group": kind.group, "kind": kind.plural} if kind.group else {"name": name, "kind": kind.plural}
    )


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.qualified_name} "{name}" not found', _error_details(kind, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.qualified_name} "{name}" already exists', _error_details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.qualified_name} "{name}": {why}'
    return ApiError(409, "Conflict", message, _error_details(kind, name))


def stale_version(kind: Kind, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{kind.qualified_name} "{name}" is forbidden: {why}', _error_details(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[tuple[str, str, str]]) -> ApiError:
    """Returns error 422. causes: (field, reason, message)."""
    texts = [f"{field}: {message}" for field, _, message in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    details = {"name": name, "group": kind.group, "kind": kind.name} | {
        "causes": [{"reason": reason, "message": message, "field": field} for field, reason, message in causes]
    }
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def version_too_old(asked: int, oldest: int) -> ApiError:
    return expired(f"too old resource version: {asked} ({oldest})")


def version_too_large(asked: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")
