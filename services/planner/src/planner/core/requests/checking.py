"""Checks texts of a request: text for users, Kubernetes labels, the URL of an API server."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from spillway.api import invalid_argument_error
from spillway.kubernetes.label_text import check_label_key, check_label_value

URL_LENGTH_MAX: Final = 2048


def check_text(text: str, where: str, length_max: int) -> str:
    """Returns the text if a terminal can show it in one line; it may be empty. Raises RequestError otherwise."""
    if len(text) > length_max or not text.isprintable():
        raise invalid_argument_error(where, text, f"printable characters in one line, at most {length_max}")
    return text


def check_labels(labels: Sequence[tuple[str, str]], where: str) -> tuple[tuple[str, str], ...]:
    """Returns the labels sorted by key. Raises RequestError for a wrong label or a repeated key."""
    keys = set[str]()
    for key, value in labels:
        if key in keys:
            raise invalid_argument_error(where, key, "each key once")
        keys.add(key)
        check_label_key(key, where)
        check_label_value(value, f"{where}.{key}")
    return tuple(sorted(labels))


def check_url(url: str, where: str) -> str:
    """Returns the URL of a server without a user in it, or an empty text. Raises RequestError otherwise."""
    if url and not _is_server(url):
        raise invalid_argument_error(where, url, "https://host:port, or empty for the URL of the kubeconfig")
    return url


def _is_server(url: str) -> bool:
    if len(url) > URL_LENGTH_MAX or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and plain
