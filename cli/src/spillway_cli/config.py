"""Finds where the services are: in flags, SPILLWAY_* variables, the config file, `spillway up`, or the defaults.

The first of these sources that has a value wins.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs

from spillway.settings import setting
from spillway_cli.exits import bad_input_error

PREFIX = "SPILLWAY_"
FILE_VARIABLE = "SPILLWAY_CONFIG"

ADDRESSES_FILE = Path("run/addresses.json")
"""The file that `spillway up` writes, relative to the folder where it ran. Subfolders of a checkout find it, too."""
PORT_MAX = 65_535
_LOCAL = ("endpoints", "scaling_endpoints", "lending_endpoints", "kafka", "fleet", "redis", "health", "credentials")
_OF_A_FLEET = ("endpoints", "scaling_endpoints", "lending_endpoints", "kafka")

_ALSO = {"SPILLWAY_KAFKA": ("SPILLWAY_KAFKA_BOOTSTRAP",), "SPILLWAY_REDIS": ("SPILLWAY_REDIS_URL",)}
"""The variables that the services use for the same settings."""


@dataclass(frozen=True, slots=True)
class Config:
    endpoints: tuple[str, ...] = setting(("127.0.0.1:7400",), "host:port of the gRPC servers of the planners")
    scaling_endpoints: tuple[str, ...] = setting(
        ("127.0.0.1:7410",), "host:port of the gRPC servers of hpa's instances"
    )
    lending_endpoints: tuple[str, ...] = setting(
        ("127.0.0.1:7420",), "host:port of the gRPC servers of the deschedulers"
    )
    token: str = setting("", "token that identifies this user to the services", secret=True)
    ca: str = setting("", "PEM file of the CA of the services' certificates; a value turns TLS on")
    certificate: str = setting("", "PEM file of the user's own certificate")
    key: str = setting("", "PEM file of the user's own private key")
    namespace: str = setting("default", "namespace that is used when neither a flag nor the manifest names one")
    kafka: str = setting("127.0.0.1:9092", "bootstrap servers of Kafka, for `events` and `topics`")
    fleet: str = setting("", "id of the fleet that planner, hpa, descheduler and log must belong to; empty: any fleet")
    redis: str = setting("", "URL of Redis, for `doctor`", secret=True)
    health: tuple[str, ...] = setting((), "host:port, or name=host:port, of the services' health ports, for `doctor`")
    credentials: tuple[str, ...] = setting(
        (),
        "folder of snapshot's kubeconfigs, and service=folder for other services, for `doctor`; this user must be "
        "able to read them",
    )
    timeout_seconds: float = setting(30.0, "seconds that one call may take")
    retry_seconds: float = setting(5.0, "seconds in which the command tries an unreachable planner again")


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A config, and the source of each field's value."""

    config: Config
    sources: Mapping[str, str]
    file: Path


def default_config_file() -> Path:
    return platformdirs.user_config_path("spillway") / "config.toml"


def resolve_config(
    flags: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> ResolvedConfig:
    """Returns the config of this invocation. flags: by field name; None is a flag that was not given."""
    variables = os.environ if environ is None else environ
    named = file or (Path(variables[FILE_VARIABLE]) if variables.get(FILE_VARIABLE) else None)
    path = named or default_config_file()
    in_file = _read_config_file(path, required=named is not None)
    addresses = addresses_file()
    running, here = read_addresses(addresses), f"file {addresses}"
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for field in dataclasses.fields(Config):
        variable = PREFIX + field.name.upper()
        if flags.get(field.name) is not None:
            value, source = flags[field.name], "flag"
        elif found := next((name for name in (variable, *_ALSO.get(variable, ())) if variables.get(name)), ""):
            value, source = variables[found], f"variable {found}"
        elif field.name in in_file:
            value, source = in_file[field.name], f"file {path}"
        elif field.name in running:
            value, source = running[field.name], here
        else:
            value, source = field.default, "default"
        values[field.name] = _converted_value(field, value, source)
        sources[field.name] = source
    if not (values["fleet"].isascii() and values["fleet"].isprintable()):
        raise bad_input_error(
            f"fleet: {values['fleet']!r} from {sources['fleet']}: expected a fleet's id, as local-1a2b3c4d"
        )
    if sources["fleet"] == here and any(sources[name] != here for name in _OF_A_FLEET):
        values["fleet"], sources["fleet"] = "", "default"  # A user who names another address may mean another fleet.
    for name in ("endpoints", "scaling_endpoints", "lending_endpoints"):
        if not values[name]:
            raise bad_input_error(f"{name}: none in {sources[name]}: expected host:port")
    for name in _OF_A_FLEET:
        given = values[name].rstrip(", ").split(",") if name == "kafka" else values[name]
        for address in given:
            if not is_address(address.strip()):
                raise bad_input_error(f"{name}: {address!r} from {sources[name]}: expected host:port")
    return ResolvedConfig(Config(**values), sources, path)


def is_address(text: str) -> bool:
    """Returns whether the text is a host, a colon and a port; an IPv6 address is in brackets."""
    host, _, port = text.rpartition(":")
    is_host = ":" not in host or host.startswith("[") or "//" in host  # gRPC's own form: dns:///host:port
    return bool(host) and is_host and port.isascii() and port.isdecimal() and 0 < int(port) <= PORT_MAX


def unreachable_hint(config: Config, name: str) -> str:
    """Returns a hint for a setting whose address does not answer: how to start the service, or where to look."""
    return f"is it running? {start_hint(config, name) or '`spillway config` shows the address that is used'}"


def start_hint(config: Config, name: str) -> str:
    """Returns a hint on what starts the service of a setting; empty if `spillway up` did not write its value."""
    file = addresses_file()
    running, given = read_addresses(file).get(name), getattr(config, name)
    if running is None or given != (tuple(running) if isinstance(running, list) else running):
        return ""
    where = "here" if file == ADDRESSES_FILE else f"in {file.parent.parent}"
    return f"`make up` starts it {where} (its address is that of {file})"


def health_ports_hint() -> str:
    """Returns the hint for a config without health ports. `spillway up` before 2026-11-22 did not write them."""
    if read_addresses(file := addresses_file()):
        return f"{file} comes from an older version, which named no health ports: `make up` writes it again"
    return (
        "SPILLWAY_HEALTH=host:port,…: health ports tell which services are ready, and how far they are behind the log"
    )


def _read_config_file(path: Path, required: bool) -> Mapping[str, Any]:
    try:
        text = path.read_text()
        import tomllib  # It is imported here, because most users have no config file.

        content = tomllib.loads(text)
    except FileNotFoundError:
        if required:
            raise bad_input_error(f"config file {path}: no such file") from None
        return {}
    except OSError as error:
        raise bad_input_error(f"config file {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise bad_input_error(f"config file {path}: {error}") from None
    known = [field.name for field in dataclasses.fields(Config)]
    for name in content:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
            raise bad_input_error(f"config file {path}: {name}: no such setting: {hint}")
    return content


def addresses_file() -> Path:
    """Returns ADDRESSES_FILE of this folder, or the nearest one above in the same checkout, with its full path.

    The root of a checkout has .git. A file above counts only if it is the user's own and names its fleet, because then
    an answer of another fleet is refused.
    """
    try:
        folders = (Path.cwd(), *Path.cwd().parents)
        root = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), 0)
        above = (folder / ADDRESSES_FILE for folder in folders[1 : root + 1])
        nearest = None if ADDRESSES_FILE.exists() else next((file for file in above if file.exists()), None)
        is_ours = nearest is not None and nearest.stat().st_uid == os.getuid()
    except OSError:  # The folder is gone, or this user may not read it.
        return ADDRESSES_FILE
    return nearest if nearest is not None and is_ours and "fleet" in read_addresses(nearest) else ADDRESSES_FILE


def read_addresses(file: Path) -> Mapping[str, Any]:
    """Returns the addresses of the parts that `spillway up` started, by setting; empty if it started none."""
    try:
        content = json.loads(file.read_text())
        return {name: content[name] for name in _LOCAL if content.get(name)}
    except (OSError, ValueError, AttributeError):
        return {}


def _converted_value(field: "dataclasses.Field[Any]", value: Any, source: str) -> Any:
    kind = type(field.default)
    try:
        if kind is tuple:
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(str(part).strip() for part in parts if str(part).strip())
        if kind is float:
            number = float(value)
            if not 0 < number < 1e9:
                raise ValueError
            return number
    except (TypeError, ValueError):
        entries = "folders" if field.name == "credentials" else "host:port"
        shown = f"a list of {entries}" if kind is tuple else "a number of seconds above 0"
        raise bad_input_error(f"{field.name}: {value!r} from {source}: expected {shown}") from None
    if not isinstance(value, str):
        raise bad_input_error(f"{field.name}: {value!r} from {source}: expected text")
    return value
