"""Limits commands without a given fleet or address: they may only read, and they show which fleet answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spillway.rpc.calls import LENDING, PLANNER, SCALING, RpcService
from spillway.verb_names import READING_VERBS, VERBS
from spillway_cli.config import ADDRESSES_FILE, PREFIX, Config, ResolvedConfig
from spillway_cli.exits import bad_input_error, print_message

PROBE_SECONDS: Final = 2.0
"""The seconds in which a service at a default address must answer with its fleet."""
SERVICE_BY_SETTING: Final = {"endpoints": PLANNER, "scaling_endpoints": SCALING, "lending_endpoints": LENDING}
FLAG_BY_SETTING: Final = {
    "endpoints": "--endpoint",
    "scaling_endpoints": "--scaling-endpoint",
    "lending_endpoints": "--lending-endpoint",
}


def hint_by_unnamed_setting(resolved: ResolvedConfig) -> dict[str, str]:
    """Returns the settings whose address is a default, each with a text on how to set it. Empty if a fleet is given."""
    if resolved.sources["fleet"] != "default":
        return {}
    defaults = [name for name in FLAG_BY_SETTING if resolved.sources[name] == "default"]
    return {name: _naming_hint(name, resolved.file) for name in defaults}


def _naming_hint(setting: str, file: Path) -> str:
    flag, variable = FLAG_BY_SETTING[setting], f"{PREFIX}{setting.upper()}"
    places = f"--fleet ID or {flag} HOST:PORT, {PREFIX}FLEET or {variable}, or a line `fleet` or `{setting}` in {file}"
    return f"name the fleet with {places}; in a folder where `make up` was run, {ADDRESSES_FILE} names it"


def check_kafka_named(resolved: ResolvedConfig) -> None:
    """Refuses to create topics on a Kafka that nobody named.

    A fleet's id does not name a Kafka: which fleet a log belongs to is only known once its topics exist.
    """
    if resolved.sources["kafka"] == "default":
        places = f"--kafka HOST:PORT, {PREFIX}KAFKA, or a line `kafka` in {resolved.file}"
        where = f"{resolved.config.kafka} is only the default"
        raise bad_input_error(f"nothing was done: no Kafka is named, and {where}; name the Kafka with {places}")


def change_refused_error(who: str, how_to_name: str) -> Exception:
    """Returns the error that refuses a change. who: a text on the fleet at the default address."""
    return bad_input_error(f"nothing was done: no fleet is named, and {who}; {how_to_name}")


async def describe_default_service(setting: str, config: Config) -> tuple[str, bool]:
    """Returns (text on the fleet that answers at a service's default address, True if something answers)."""
    from spillway.rpc.probe import Identity, probe_instance

    service: RpcService = SERVICE_BY_SETTING[setting]
    identity = Identity(config.token, config.ca, config.certificate, config.key)
    found = await probe_instance(service, getattr(config, setting)[0], identity, PROBE_SECONDS)
    if found.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return f"no {service.who} answers at {found.endpoint}, the default", False
    whose = f"the {service.who} of fleet {found.fleet}" if found.fleet else f"some {service.who}"
    return f"at {found.endpoint}, the default, answers {whose}", True


@dataclass(frozen=True, slots=True)
class OnlyReading:
    """A client for an address that the user did not give. Calls that could change something raise CommandFailed.

    said: `who`, once it was printed. It is filled from the start if nothing answers: the client's error tells that.
    """

    client: Any
    who: str
    how_to_name: str
    said: list[str]

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.client, name)
        return self._guarded_call(name, attribute) if name in VERBS else attribute

    def _guarded_call(self, verb: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def call_if_reading(request: Any, *rest: Any) -> Any:
            if verb not in READING_VERBS and not getattr(request, "plan_only", False):
                raise change_refused_error(self.who, self.how_to_name)
            if not self.said:
                self.said.append(self.who)
                print_message(f"no fleet is named: {self.who}")
            return ask(request, *rest)

        return call_if_reading
