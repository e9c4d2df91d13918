"""Judges the services: each endpoint, the active instance, versions, and the health pages of the processes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spillway.reasons import READING_THE_LOG
from spillway.rpc.probe import ProbeResult
from spillway_cli.doctor.checks import Check, failed_check, ok_check, shown_names_text, skipped_check, warning_check
from spillway_cli.output import duration_text

ENDS_SECONDS_LOW = 14 * 86_400
LAG_RECORDS_MAX = 5000
"""The largest harmless lag; the same as in the alert SpillwayBehindTheLog."""
_UPGRADE = "docs/operations.md, Upgrade, says in which order; restart what is left of the old version"


@dataclass(frozen=True, slots=True)
class HealthPages:
    """The health pages of one process.

    not_ready: the reason by part.
    values: the metrics without labels.
    trouble: why the pages could not be read; then the rest is empty.
    """

    name: str
    trouble: str = ""
    version: str = ""
    not_ready: Mapping[str, str] = field(default_factory=dict)
    lag_by_topic: Mapping[str, float] = field(default_factory=dict)
    dead_letters_by_topic: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)


def check_endpoint(who: str, found: ProbeResult) -> Check:
    """Judges whether one endpoint answers and serves."""
    name = f"{who} {found.endpoint}"
    if found.code == "OK" and found.serving:
        return ok_check(name, f"{'stands by' if found.stale else 'active'}, version {found.version or 'not told'}")
    if found.code == "OK":
        hint = "it has not read the log, or lost it: its /readyz and its log say why"
        return failed_check(name, "answers, and its health says that it does not serve", hint)
    if found.code == "UNAUTHENTICATED":
        hint = "set SPILLWAY_TOKEN (or certificate and key in the config file) to one of its callers file"
        return failed_check(name, f"does not accept our token or certificate: {found.text}", hint)
    if found.code == "PERMISSION_DENIED":
        hint = "give this caller the verb `read` in namespace `*` in the callers file; it is read again by itself"
        return warning_check(name, f"knows this caller, but does not let it ask: {found.text}", hint)
    if found.code == "DEADLINE_EXCEEDED":
        hint = "is it stopped (SIGSTOP), or its machine out of memory or CPU? Restart it: another takes its turn"
        return failed_check(name, "accepts connections but does not answer: it hangs", hint)
    if found.code in ("UNIMPLEMENTED", "NOT_FOUND"):
        hint = "`spillway config` shows which setting names this address"
        return failed_check(name, f"another program answers there, not the {who}", hint)
    if found.reason == READING_THE_LOG:
        hint = "after a start it takes seconds; for longer: see the checks of Kafka, and its log"
        return failed_check(name, found.text, hint)
    hint = "is it up? `make status`, `docker compose ps`, `kubectl get pods`; `spillway config` shows the addresses"
    if found.tls_differs:
        hint = "SPILLWAY_CA: the file of the CA of its certificate; without TLS there: no CA. docs/security.md, gRPC"
    return failed_check(name, f"{found.code}: {found.text}", hint)


def is_everything_silent(probed: Iterable[ProbeResult], pages: Iterable[HealthPages]) -> bool:
    """Returns whether nothing listens at any service's endpoint and health port. A service that hangs does listen.

    A service that refuses TLS does listen, too.
    """
    is_silent = (one.code == "UNAVAILABLE" and not one.reason and not one.tls_differs for one in probed)
    return all(is_silent) and all(page.trouble for page in pages)


def nothing_runs_check(endpoints: Sequence[str], started_by: str) -> Check:
    """Returns the only check if no service, log or store answers. endpoints: the addresses of the planners."""
    where = shown_names_text(endpoints)
    if started_by:
        return failed_check("platform", f"nothing runs at {where}: {started_by}", "")
    hint = (
        "is it up? `docker compose ps`, `kubectl get pods`; `spillway config` shows the addresses, `make up` starts one"
    )
    return failed_check("platform", f"nothing runs at {where}: no service, health port, Kafka or Redis answers", hint)


def check_certificate(who: str, found: ProbeResult, now: float) -> Iterable[Check]:
    """Judges the certificate of one endpoint, and warns if it ends soon. now: Unix seconds.

    A certificate that has ended is not seen here, because no client accepts it.
    """
    if found.certificate_ends is not None and found.certificate_ends - now < ENDS_SECONDS_LOW:
        left = duration_text(int(1000 * (found.certificate_ends - now)))
        hint = "give it a new one and restart it, one instance after the other: docs/security.md, gRPC"
        yield warning_check(f"{who} {found.endpoint}", f"its certificate ends in {left}", hint)


def check_active_instance(who: str, found: Sequence[ProbeResult]) -> Check:
    """Judges whether exactly one instance is active, and whether we know its endpoint."""
    name = f"{who} turn"
    answered = [one for one in found if one.code == "OK"]
    if not answered:
        return skipped_check(name, "no instance answers", f"fix the failed checks of {who} above")
    holders = [one.endpoint for one in answered if not one.stale]
    leaders = sorted({one.leader for one in answered if one.leader})
    if len(holders) > 1:
        hint = "the log fences all but one: restart the one whose log has no `turn taken` as its last turn"
        return failed_check(
            name, f"{len(holders)} instances report that they are active: {shown_names_text(holders)}", hint
        )
    if holders:
        return ok_check(name, f"{holders[0]} is active, {len(answered) - 1} stand by")
    if silent := sorted({one.endpoint for one in found if one.code != "OK"} & set(leaders)):
        hint = "a standby takes its turn within seconds (docs/operations.md, Size): look again; restart the silent one"
        return failed_check(name, f"{shown_names_text(silent)} had the turn last, and does not answer", hint)
    if leaders:
        return warning_check(
            name, f"{shown_names_text(leaders)} is active, and not among our endpoints", "add it to the endpoints"
        )
    hint = "nothing is decided until one takes its turn: see the logs of all instances, and the checks of Kafka"
    return failed_check(name, "none is active", hint)


def check_versions(ours: str, version_by_process: Mapping[str, str]) -> Check:
    """Judges whether all processes that reported a version have ours."""
    name = "versions"
    others: dict[str, list[str]] = defaultdict(list)
    for process, version in version_by_process.items():
        if version != ours:
            others[version].append(process)
    if not version_by_process:
        return skipped_check(name, "no process has reported its version", "fix the failed checks above")
    if not others:
        return ok_check(name, f"{ours}: the command and {len(version_by_process)} processes")
    listed = "; ".join(
        f"{version}: {shown_names_text(sorted(processes))}" for version, processes in sorted(others.items())
    )
    return warning_check(name, f"the command is {ours}; {listed}", _UPGRADE)


def check_health_pages(found: HealthPages) -> Iterable[Check]:
    """Judges the health pages of one process."""
    name = f"process {found.name}"
    if found.trouble:
        hint = "is it up? the setting `health` (SPILLWAY_HEALTH) names its health port"
        yield failed_check(name, f"its health port does not answer: {found.trouble}", hint)
        return
    if found.not_ready:
        reasons = "; ".join(f"{part}: {reason}" for part, reason in sorted(found.not_ready.items()))
        yield failed_check(
            name, f"not ready: {reasons}", "its log says more; what it waits for is checked here as well"
        )
    elif found.values.get("spillway_bus_connected", 1) == 0:
        yield failed_check(
            name, "Kafka does not answer this process", "see the checks of Kafka, and the network between the two"
        )
    else:
        yield ok_check(name, "ready")
    behind = {topic: count for topic, count in found.lag_by_topic.items() if count > LAG_RECORDS_MAX}
    if behind:
        listed = shown_names_text(f"{count:.0f} of {topic}" for topic, count in sorted(behind.items()))
        hint = "a start reads topics whole: look again in a minute; else its CPU or its network is too little"
        yield warning_check(name, f"is behind the log, records to read: {listed}", hint)
    if letters := {topic: count for topic, count in found.dead_letters_by_topic.items() if count}:
        listed = shown_names_text(f"{count:.0f} of {topic}" for topic, count in sorted(letters.items()))
        hint = "`spillway events dead-letters --from-start --no-follow` says which and why: another writer or version"
        yield warning_check(name, f"has found unreadable records since its start: {listed}", hint)
    if found.values.get("spillway_callers_file_bad"):
        hint = "its log names the fault; until it is fixed, the earlier callers stay valid"
        yield failed_check(name, "its callers file cannot be used", hint)
