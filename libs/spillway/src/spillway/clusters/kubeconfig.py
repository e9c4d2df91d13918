"""The parts of a kubeconfig file. Each part knows its place, so that every error names the file and the field."""

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from spillway.clusters.endpoint import BadCredentials
from spillway.yaml_text import read_yaml

MAX_FILE_BYTES: Final = 4 * 2**20
"""The most bytes of a kubeconfig, and of each file that it names. A bundle of all public authorities has 250 KB."""


def read_kubeconfig(path: Path) -> "ConfigField":
    """Reads a whole kubeconfig, in YAML or JSON. Raises BadCredentials."""
    try:
        parsed = read_yaml(_read_bounded_file(path))
    except FileNotFoundError as error:
        raise BadCredentials(f"{path}: there is no such file") from error
    except OSError as error:
        raise BadCredentials(f"{path}: expected a readable file ({error.strerror})") from error
    except _TooLong:
        raise BadCredentials(f"{path}: expected at most {MAX_FILE_BYTES} bytes") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        # Raise it without a cause: a parser's message quotes the line, and the line may hold a secret.
        raise BadCredentials(f"{path}: expected a kubeconfig in YAML or JSON, and it is neither") from None
    return ConfigField(path, "", parsed)


class _TooLong(Exception):
    """Raised for a file of more than MAX_FILE_BYTES."""


def _read_bounded_file(path: Path) -> bytes:
    """Returns the content of a file. Raises OSError and _TooLong."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _TooLong
    return content


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A mapping or a list in a kubeconfig. Its methods raise BadCredentials for a wrong value.

    path: of the file. place: where it is in the file, for example `users[u].user.exec`.
    """

    path: Path
    place: str
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict | list):
            place = self.place or "the file"
            raise BadCredentials(f"{self.path}: {place}: expected a mapping or list, not {type_name_of(self.value)}")

    def has_value(self, key: str) -> bool:
        """Returns whether the key has a value. An empty value counts as none, as in Kubernetes' own reader."""
        return isinstance(self.value, dict) and self.value.get(key) not in (None, "", [], {})

    def raise_wrong_value(self, key: str, expected: str, cause: Exception | None = None) -> NoReturn:
        found = type_name_of(self.value.get(key)) if isinstance(self.value, dict) else type_name_of(self.value)
        self.raise_bad_credentials(key, f"expected {expected}, found {found}", cause)

    def raise_bad_credentials(self, key: str, text: str, cause: Exception | None = None) -> NoReturn:
        raise BadCredentials(f"{self.path}: {self.place_of(key)}: {text}") from cause

    def place_of(self, key: str) -> str:
        return f"{self.place}.{key}".lstrip(".")

    def child_field(self, key: str) -> "ConfigField":
        if not isinstance(self.value, dict) or not isinstance(self.value.get(key), dict | list):
            self.raise_wrong_value(key, "a list" if not self.place else "a mapping")
        return ConfigField(self.path, self.place_of(key), self.value[key])

    def read_list(self, key: str) -> list[Any]:
        """Returns the list at this key; an empty list if the key is absent."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, list):
            self.raise_wrong_value(key, "a list")
        return value or []

    def find_named_entry(self, listed_in: str, namer: "ConfigField", key: str, inner: str) -> "ConfigField":
        """Returns the mapping `inner` of the entry that another field names, for example the user of a context.

        The name is at `key` of `namer`. The list `listed_in` must have exactly one entry with that name.
        """
        value = self.child_field(listed_in).value
        name, entries = namer.read_text(key), value if isinstance(value, list) else []
        found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
        if len(found) != 1:
            said_by = namer.place_of(key)
            count = f"there are {len(found)} entries" if found else "there is no entry"
            text = f"{self.path}: {listed_in}: {count} named {name!r}, which {said_by} names"
            raise BadCredentials(f"{text} (entries in all: {len(entries)})")
        entry = ConfigField(self.path, f"{listed_in}[{name}]", found[0])
        if not isinstance(found[0].get(inner), dict):
            entry.raise_wrong_value(inner, "a mapping")
        return entry.child_field(inner)

    def read_text(self, key: str) -> str:
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if not isinstance(value, str) or not value:
            self.raise_wrong_value(key, "a text")
        return value

    def read_token(self, key: str) -> str:
        """Returns a text that is allowed in an HTTP header."""
        return self.check_token(key, self.read_text(key))

    def check_token(self, key: str, token: str) -> str:
        if not (token.isascii() and token.isprintable() and token):
            self.raise_wrong_value(key, "a token of one line")
        return token

    def read_flag(self, key: str) -> bool:
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            self.raise_wrong_value(key, "true or false")
        return value

    def file_path(self, key: str) -> Path:
        """Returns the path that a field names. A relative path starts at the kubeconfig."""
        return self.path.parent / self.read_text(key)

    def read_named_file(self, key: str) -> bytes:
        """Returns the content of the file that a field names."""
        try:
            return _read_bounded_file(self.file_path(key))
        except OSError as error:
            self.raise_wrong_value(key, f"the path of a readable file ({error.strerror})", cause=error)
        except ValueError:
            self.raise_wrong_value(key, "the path of a readable file")
        except _TooLong:
            self.raise_wrong_value(key, f"the path of a file of at most {MAX_FILE_BYTES} bytes")

    def read_pem(self, key: str) -> bytes | None:
        """Returns the PEM of `<key>-data` (base64) or of the file in `<key>`. The first one takes precedence, as in
        kubectl."""
        in_place = f"{key}-data"
        if not self.value.get(in_place):
            return self.check_pem(key, self.read_named_file(key)) if self.value.get(key) else None
        try:
            return self.check_pem(in_place, base64.b64decode(self.read_text(in_place), validate=True))
        except (binascii.Error, ValueError):
            self.raise_wrong_value(in_place, "base64")

    def check_pem(self, key: str, content: bytes) -> bytes:
        if b"-----BEGIN " not in content:
            self.raise_wrong_value(key, "PEM")
        return content


def type_name_of(value: object) -> str:
    """Returns the type of a value for error texts, for example "a list". It never returns the value itself."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        str: "a text",
        dict: "a mapping",
        list: "a list",
        int: "a number",
        float: "a number",
    }
    size = f" of {len(value)}" if isinstance(value, str | dict | list) else ""
    return names.get(type(value), type(value).__name__) + size
