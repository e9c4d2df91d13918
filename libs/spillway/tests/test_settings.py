"""Settings: what is read, and the sentence that a wrong variable gives."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from spillway.settings import SettingsError, describe, from_environment, help_text, setting


@dataclass(frozen=True, slots=True)
class Sample:
    fleet: str = field(metadata={"doc": "id of the fleet"})
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(7070, "port")
    wait_seconds: float = setting(1.5, "seconds to wait")
    brokers: tuple[str, ...] = setting((), "host:port, separated by commas")
    ports: tuple[int, ...] = setting((1, 2), "several ports")
    verbose: bool = setting(False, "says more")
    mode: Literal["fast", "safe"] = setting("safe", "how")
    folder: Path = setting(Path("/var"), "where files are")
    limit: int | None = setting(None, "bound; empty is none")
    password: str = setting("", "of the broker", secret=True)


def read(**variables: str) -> Sample:
    return from_environment(Sample, environ(**variables), "X_")


def environ(**variables: str) -> dict[str, str]:
    return {"X_FLEET": "f", "OTHER": "1", **{"X_" + name: value for name, value in variables.items()}}


def test_defaults() -> None:
    assert read() == Sample("f")


def test_every_type_is_read_from_text() -> None:
    settings = read(
        PORT=" 80 ",
        WAIT_SECONDS="0.25",
        BROKERS="a:1, b:2,",
        PORTS="3,4",
        VERBOSE="true",
        MODE="fast",
        FOLDER="/tmp/x",
        LIMIT="7",
        PASSWORD=" kept as it is ",
    )
    assert settings == Sample("f", 80, 0.25, ("a:1", "b:2"), (3, 4), True, "fast", Path("/tmp/x"), 7, " kept as it is ")


def test_empty_means_none_for_an_optional_and_nothing_for_a_tuple() -> None:
    settings = read(LIMIT="", BROKERS="")
    assert settings.limit is None
    assert settings.brokers == ()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({"PORT": "eighty"}, ["X_PORT", "'eighty'", "a whole number", "port"], id="not a number"),
        pytest.param({"PORT": "70000"}, ["X_PORT", "'70000'", "65535"], id="out of bounds"),
        pytest.param({"PORT": ""}, ["X_PORT", "''", "a whole number"], id="empty number"),
        pytest.param({"MODE": "slow"}, ["X_MODE", "'slow'", "one of fast, safe"], id="no such choice"),
        pytest.param({"VERBOSE": "ja"}, ["X_VERBOSE", "'ja'", "true or false"], id="not a boolean"),
        pytest.param({"PORTS": "1,x"}, ["X_PORTS", "'1,x'", "a list of a whole number"], id="bad element"),
        pytest.param({"PROT": "1"}, ["X_PROT", "'1'", "did you mean X_PORT?"], id="slip"),
        pytest.param({"ELEPHANT": "1"}, ["X_ELEPHANT", "no such setting", "X_PORT"], id="unknown"),
    ],
)
def test_the_error_names_variable_value_and_what_was_expected(variables: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**variables)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_required_variable_is_named() -> None:
    with pytest.raises(SettingsError, match=r"X_FLEET: not set: expected text \(id of the fleet\)"):
        from_environment(Sample, {}, "X_")


def test_a_shared_prefix_refuses_slips_only() -> None:
    assert from_environment(Sample, environ(KAFKA_BOOTSTRAP="b:1"), "X_", shared=True).port == 7070
    with pytest.raises(SettingsError, match="did you mean X_WAIT_SECONDS"):
        from_environment(Sample, environ(WAIT_SECOND="1"), "X_", shared=True)


def test_long_values_are_cut_and_secrets_are_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        read(PORT="9" * 5000 + "x")
    assert len(str(caught.value)) < 300

    @dataclass(frozen=True)
    class Hidden:
        pin: int = setting(0, "a secret number", secret=True)

    with pytest.raises(SettingsError) as hidden:
        from_environment(Hidden, {"X_PIN": "12ab"}, "X_")
    assert "12ab" not in str(hidden.value)


def test_describe_has_a_line_per_variable() -> None:
    text = describe(Sample, "X_")
    assert len(text.splitlines()) == 10
    assert "X_FLEET" in text
    assert "(required)" in text
    assert "seconds to wait" in text
    assert help_text("Does things.", (Sample, "X_")).startswith("Does things.\n\nSettings")
