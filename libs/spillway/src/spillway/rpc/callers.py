"""The callers file: who may call which verbs in which namespaces. It is read again when it changes."""

import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

import msgspec
import structlog
import yaml
from msgspec import Meta

from spillway import metrics
from spillway.api import RequestError
from spillway.former_words import VERB_BY_FORMER_VERB
from spillway.kubernetes.pod_security import ANY, BASELINE, LEVELS
from spillway.settings import OperatorError
from spillway.verb_names import READING_VERBS, VERBS
from spillway.yaml_text import read_yaml

EVERYTHING: Final = "*"
READ: Final = "read"
"""A name that can replace a verb. It allows all verbs that change nothing."""
SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "NodePort", "LoadBalancer")
CALLERS_BYTES_MAX: Final = 4 * 2**20

log = structlog.get_logger(part="rpc")


class CallerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One caller of the callers file. Without token_sha256 it is known by its client certificate's common name.

    verbs: names, `read`, or "*". They must be given, so that a forgotten line gives no right.
    namespaces: names, or patterns in which * stands for any text and ? for a character. "*" also covers the fleet and
    clusters, which belong to no namespace.
    requests_per_second, request_bytes_max: 0 means the server's own limit.
    pod_security: the level of Pod Security that its pods must meet. priority_classes, service_accounts: names or
    patterns that its pods may have. priority_max: for its policies' priority. service_types: for its Services. Without
    a value, pod_security, priority_classes, priority_max and service_types do not limit callers of all namespaces. For
    other callers the defaults are: pod_security baseline; all classes but Kubernetes' own; priority_max 0;
    service_types ClusterIP and ExternalName, or all types with pod_security any.
    """

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    token_sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")] = ""
    verbs: tuple[str, ...] | None = None
    namespaces: tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...] = (EVERYTHING,)
    requests_per_second: Annotated[float, Meta(ge=0)] = 0.0
    request_bytes_max: Annotated[int, Meta(ge=0)] = 0
    pod_security: Annotated[str, Meta(pattern=f"^({'|'.join(LEVELS)})?$")] = ""
    priority_classes: tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...] | None = None
    service_accounts: tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...] = (EVERYTHING,)
    priority_max: int | None = None
    service_types: tuple[Annotated[str, Meta(pattern=rf"^(\*|{'|'.join(SERVICE_TYPES)})$")], ...] | None = None


class _CallersFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    callers: tuple[CallerEntry, ...]


@dataclass(frozen=True, slots=True)
class PodRights:
    """The limits on a caller's pods and Services, as in the callers file.

    priority_classes: None: all except Kubernetes' own. priority_max: None: no limit.
    service_types: None: only types that take no ports or addresses from others; all types if the level is any.
    """

    security: str = ANY
    priority_classes: frozenset[str] | None = frozenset({EVERYTHING})
    service_accounts: frozenset[str] = frozenset({EVERYTHING})
    priority_max: int | None = None
    service_types: frozenset[str] | None = frozenset({EVERYTHING})

    @property
    def is_bounded(self) -> bool:
        """Returns whether there is any limit besides the level."""
        of_all = self.service_accounts, self.priority_classes or (), self.service_types or ()
        return not all(EVERYTHING in names for names in of_all) or self.priority_max is not None


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and its rights. verbs, namespaces, pods: as in the file.

    token_sha256: of the token that it used. So a client with an earlier token of this caller is a different caller.
    """

    name: str
    verbs: frozenset[str] = frozenset({EVERYTHING})
    namespaces: frozenset[str] = frozenset({EVERYTHING})
    token_sha256: str = ""
    pods: PodRights = PodRights()

    @property
    def is_restricted(self) -> bool:
        return EVERYTHING not in self.namespaces

    def may_see_namespace(self, namespace: str) -> bool:
        """Returns whether this caller may read a namespace. An empty namespace means all namespaces."""
        matching = (fnmatchcase(namespace, pattern) for pattern in self.namespaces)
        return not self.is_restricted or (bool(namespace) and any(matching))

    def may_use(self, verb: str) -> bool:
        return bool({verb, EVERYTHING} & self.verbs) or (READ in self.verbs and verb in READING_VERBS)

    def text_of_refusal(self, error: RequestError) -> str:
        """Returns the text of a refusal for this caller: it names clusters of the fleet if the caller may list them."""
        return error.text if self.may_use("list_clusters") else error.text_without_clusters

    def require_verb(self, verb: str) -> None:
        """Raises PERMISSION_DENIED if the caller may not use the verb. The text names the verbs it may use."""
        if self.may_use(verb):
            return
        raise RequestError(
            "PERMISSION_DENIED", f"caller {self.name!r} may not {verb}: this caller may {all_names_text(self.verbs)}"
        )

    def require_verb_in_namespace(self, verb: str, namespace: str) -> None:
        """Raises PERMISSION_DENIED if the caller may not use the verb in the namespace. Empty: in all namespaces."""
        self.require_verb(verb)
        if self.may_see_namespace(namespace):
            return
        where = f"in namespace {namespace!r}" if namespace else "in all namespaces"
        raise RequestError(
            "PERMISSION_DENIED",
            f"caller {self.name!r} may not {verb} {where}: "
            f"this caller has the namespaces {all_names_text(self.namespaces)}",
        )


@dataclass(frozen=True, slots=True)
class Callers:
    """All known callers, by the digest of a token and by the name in a certificate, and the limits of each one."""

    by_token: Mapping[str, Caller]
    by_certificate: Mapping[str, Caller]
    limits: Mapping[str, CallerEntry]

    def has_caller(self, caller: Caller) -> bool:
        """Returns whether this caller still has exactly the same rights."""
        return caller in self.by_token.values() or caller in self.by_certificate.values()


NOBODY: Final = Callers({}, {}, {})


def parse_callers(file_bytes: bytes, name: str) -> Callers:
    """Returns the callers of a file `callers: [{name, token_sha256, verbs, namespaces, …}]` in YAML, JSON or TOML.

    name: of the file; its end decides the format. Raises OperatorError, which names the file and the mistake in it.
    """
    try:
        if len(file_bytes) > CALLERS_BYTES_MAX:
            raise ValueError(f"{len(file_bytes)} bytes: expected at most {CALLERS_BYTES_MAX}")
        entries = msgspec.convert(_parse_by_extension(file_bytes, name), _CallersFile).callers
        _check_entries(entries)
    except (ValueError, msgspec.ValidationError, yaml.YAMLError, RecursionError) as error:
        raise OperatorError(f"gRPC: callers file {name!r}: {error}") from error
    made = {entry.name: _caller_of(entry) for entry in entries}
    return Callers(
        by_token={entry.token_sha256: made[entry.name] for entry in entries if entry.token_sha256},
        by_certificate={entry.name: made[entry.name] for entry in entries if not entry.token_sha256},
        limits={entry.name: entry for entry in entries},
    )


def _caller_of(entry: CallerEntry) -> Caller:
    pods = _pod_rights_of(entry, confined=EVERYTHING not in entry.namespaces)
    return Caller(entry.name, frozenset(entry.verbs or ()), frozenset(entry.namespaces), entry.token_sha256, pods)


def _pod_rights_of(entry: CallerEntry, *, confined: bool) -> PodRights:
    return PodRights(
        security=entry.pod_security or (BASELINE if confined else ANY),
        priority_classes=_names_or_default(entry.priority_classes, confined=confined),
        service_accounts=frozenset(entry.service_accounts),
        priority_max=entry.priority_max if entry.priority_max is not None or not confined else 0,
        service_types=_names_or_default(entry.service_types, confined=confined),
    )


def _names_or_default(names: tuple[str, ...] | None, *, confined: bool) -> frozenset[str] | None:
    """Returns the names in a field of an entry. Without the field: all for a caller of all namespaces, else None."""
    if names is None:
        return None if confined else frozenset({EVERYTHING})
    return frozenset(names)


def _parse_by_extension(file_bytes: bytes, name: str) -> object:
    if name.endswith(".toml"):
        return tomllib.loads(file_bytes.decode())
    if name.endswith(".json"):
        return json.loads(file_bytes)
    return read_yaml(file_bytes)


def _check_entries(entries: Collection[CallerEntry]) -> None:
    for entry in entries:
        if entry.verbs is None:
            expected = f'names of verbs, "{READ}" for all that change nothing, or "{EVERYTHING}" for all'
            raise ValueError(f"{entry.name}: verbs: missing: expected {expected}")
        unknown = set(entry.verbs) - {EVERYTHING, READ, *VERBS}
        if unknown:
            expected = f"expected some of {EVERYTHING}, {READ}, {all_names_text(VERBS)}"
            raise ValueError(f"{entry.name}: verbs {all_names_text(unknown)}: {_renamed_verbs_text(unknown)}{expected}")
    for what in ("name", "token_sha256"):
        values = [getattr(entry, what) for entry in entries if getattr(entry, what)]
        if len(values) != len(set(values)):
            raise ValueError(f"two callers have the same {what}")


def _renamed_verbs_text(verbs: Collection[str]) -> str:
    """Returns a text for an error: the present names of former verbs in the file. A former name gives no right."""
    renamed = sorted((verb, VERB_BY_FORMER_VERB[verb]) for verb in verbs if verb in VERB_BY_FORMER_VERB)
    return "".join(f"{former} is called {verb} now; " for former, verb in renamed)


class CallersFile:
    """A callers file and its callers. read: returns its content, or raises OSError."""

    def __init__(self, name: str, read: Callable[[str], bytes] = lambda name: Path(name).read_bytes()) -> None:
        self.name = name
        self._read = read
        try:
            self._seen: bytes | None = read(name)
        except OSError as error:
            raise OperatorError(f"gRPC: callers file {name!r}: {error.strerror or error}") from error
        self.callers = parse_callers(self._seen, name)
        metrics.CALLERS_FILE_BAD.set(0)

    def reload_if_changed(self) -> bool:
        """Reads the file again. Returns whether its callers changed. A bad file is logged, and the old callers stay."""
        trouble, content = "", None
        try:
            content = self._read(self.name)
        except OSError as error:
            trouble = error.strerror or str(error)
        if content == self._seen:
            return False
        self._seen = content
        try:
            callers = parse_callers(content, self.name) if content is not None else NOBODY
        except OperatorError as error:
            trouble = str(error)
        metrics.CALLERS_FILE_BAD.set(bool(trouble))
        if trouble:
            log.error(
                "the callers file cannot be used: the callers read before stay in force", file=self.name, error=trouble
            )
            return False
        changed, self.callers = callers != self.callers, callers
        log.info("the callers file was read again", file=self.name, callers=len(callers.limits), changed=changed)
        return changed


def all_names_text(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
