"""What words of a request may be: text for people, labels as Kubernetes has them, the URL of an API server."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from spillway.api import invalid
from spillway.manifest_text import NAME

URL_LENGTH_MAX: Final = 2048
LABEL_LENGTH_MAX: Final = 63
"""Of a label's value, and of its key behind the prefix."""
PREFIX_LENGTH_MAX: Final = 253
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def check_text(text: str, where: str, length_max: int) -> str:
    """Text that a terminal shows as it is, in one line, or RequestError. Empty is text."""
    if len(text) > length_max or not text.isprintable():
        raise invalid(where, text, f"printable characters in one line, at most {length_max}")
    return text


def check_labels(labels: Sequence[tuple[str, str]], where: str) -> tuple[tuple[str, str], ...]:
    """Labels by key, each key once, or RequestError."""
    keys = set[str]()
    for key, value in labels:
        if key in keys:
            raise invalid(where, key, "each key once")
        keys.add(key)
        prefix, slash, name = key.rpartition("/")
        if not _is_word(name) or (slash and (len(prefix) > PREFIX_LENGTH_MAX or not NAME.fullmatch(prefix))):
            text = f"a label's key: letters, digits, '-', '_' and '.', at most {LABEL_LENGTH_MAX}, or such behind a "
            raise invalid(where, key, text + "domain and '/'")
        if value and not _is_word(value):
            text = f"a label's value: letters, digits, '-', '_' and '.', at most {LABEL_LENGTH_MAX}, or none"
            raise invalid(f"{where}.{key}", value, text)
    return tuple(sorted(labels))


def _is_word(text: str) -> bool:
    return len(text) <= LABEL_LENGTH_MAX and _WORD.fullmatch(text) is not None


def check_url(url: str, where: str) -> str:
    """The URL of a server, without a user in it, or none; else RequestError."""
    if url and not _is_server(url):
        raise invalid(where, url, "https://host:port, or none: that of the kubeconfig")
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
