"""Reads the health pages of one process: whether it is ready, and its metrics."""

import json
import urllib.error
import urllib.request
from collections import defaultdict
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from spillway_cli.doctor.services import HealthPages

PAGE_BYTES_MAX = 32 * 2**20
_NO_PAGE = (OSError, HTTPException, ValueError, KeyError, TypeError)
"""Errors of a page that does not come, or that another program sends."""


def read_health_pages(address: str, seconds: float) -> HealthPages:
    """Reads the pages of one process, and blocks meanwhile. address: host:port, or name=host:port."""
    name, _, place = address.rpartition("=")
    name = name or place
    try:
        not_ready = _read_reason_by_unready_part(place, seconds)
        metrics = _read_url(f"http://{place}/metrics", seconds).decode()
    except _NO_PAGE as error:
        return HealthPages(name, trouble=_error_text(error))
    return _parse_health_pages(name, not_ready, metrics)


def read_readiness_text(place: str, seconds: float) -> str:
    """Returns "ready", the reason why the process at host:port is not ready, or a text if it is silent. Blocks."""
    try:
        not_ready = _read_reason_by_unready_part(place, seconds)
    except _NO_PAGE as error:
        return f"silent: {_error_text(error)}"
    return "; ".join(f"{part}: {reason}" for part, reason in sorted(not_ready.items())) or "ready"


def _read_reason_by_unready_part(place: str, seconds: float) -> dict[str, str]:
    """Returns the reason why each part is not ready, by part."""
    answer = json.loads(_read_url(f"http://{place}/readyz", seconds))
    return {str(part): str(reason) for part, reason in dict(answer["reasons"]).items()}


def _error_text(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def _parse_health_pages(name: str, not_ready: dict[str, str], metrics: str) -> HealthPages:
    by_topic: dict[str, dict[str, float]] = defaultdict(dict)
    values, version = {}, ""
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "spillway_build_info":
                version = sample.labels["version"]
            elif set(sample.labels) == {"topic"}:
                by_topic[sample.name][sample.labels["topic"]] = sample.value
            elif not sample.labels:
                values[sample.name] = sample.value
    lag, letters = by_topic["spillway_topic_lag_records"], by_topic["spillway_dead_letters_total"]
    return HealthPages(name, "", version, not_ready, lag, letters, values)


def _read_url(url: str, seconds: float) -> bytes:
    """Returns the body, also of a 503, which /readyz answers while the process is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return bytes(answer.read(PAGE_BYTES_MAX))
    except urllib.error.HTTPError as refused:
        if refused.code != 503:
            raise
        return refused.read(PAGE_BYTES_MAX)
