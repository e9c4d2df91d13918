"""Settings: what is read, and the sentence that a wrong variable gives."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from spillway.settings import (
    SettingsError,
    constant,
    describe_variables,
    fields_by_variable,
    help_text,
    setting,
    settings_from_environment,
)


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


def read_sample(**variables: str) -> Sample:
    return settings_from_environment(Sample, sample_environment(**variables), "X_")


def sample_environment(**variables: str) -> dict[str, str]:
    return {"X_FLEET": "f", "OTHER": "1", **{"X_" + name: value for name, value in variables.items()}}


def test_defaults() -> None:
    assert read_sample() == Sample("f")


def test_every_type_is_read_from_text() -> None:
    settings = read_sample(
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
    settings = read_sample(LIMIT="", BROKERS="")
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
        read_sample(**variables)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_required_variable_is_named() -> None:
    with pytest.raises(SettingsError, match=r"X_FLEET: not set: expected text \(id of the fleet\)"):
        settings_from_environment(Sample, {}, "X_")


def test_a_shared_prefix_refuses_slips_only() -> None:
    assert settings_from_environment(Sample, sample_environment(KAFKA_BOOTSTRAP="b:1"), "X_", shared=True).port == 7070
    with pytest.raises(SettingsError, match="did you mean X_WAIT_SECONDS"):
        settings_from_environment(Sample, sample_environment(WAIT_SECOND="1"), "X_", shared=True)


def test_long_values_are_cut_and_secrets_are_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        read_sample(PORT="9" * 5000 + "x")
    assert len(str(caught.value)) < 300

    @dataclass(frozen=True)
    class Hidden:
        pin: int = setting(0, "a secret number", secret=True)

    with pytest.raises(SettingsError) as hidden:
        settings_from_environment(Hidden, {"X_PIN": "12ab"}, "X_")
    assert "12ab" not in str(hidden.value)


def test_describe_has_a_line_per_variable() -> None:
    text = describe_variables(Sample, "X_")
    assert len(text.splitlines()) == 10
    assert "X_FLEET" in text
    assert "(required)" in text
    assert "seconds to wait" in text
    assert help_text("Does things.", (Sample, "X_")).startswith("Does things.\n\nSettings")


@dataclass(frozen=True, slots=True)
class Turning:
    port: int = setting(7070, "port")
    tick_seconds: float = constant(0.1, "from look to look, seconds", "a look costs nothing")
    step_max: int = constant(50, "most of one step", "the rest is in the next one")


def read_turning(**environ: str) -> Turning:
    return settings_from_environment(Turning, environ, "X_")


def test_a_constant_is_no_variable_but_tests_may_construct_another_value() -> None:
    assert list(fields_by_variable(Turning, "X_")) == ["X_PORT"]
    assert "TICK" not in describe_variables(Turning, "X_")
    assert Turning(tick_seconds=3.0).tick_seconds == 3.0


def test_a_variable_that_is_a_constant_now_has_no_effect_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert read_turning(X_TICK_SECONDS="5", X_PORT="80") == Turning(port=80)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    for word in ("X_TICK_SECONDS", "a constant now", "0.1", "from look to look", "a look costs nothing"):
        assert word in record.getMessage()


def test_nothing_is_warned_of_without_such_a_variable(caplog: pytest.LogCaptureFixture) -> None:
    assert read_turning(X_PORT="80") == Turning(port=80)
    assert not caplog.records


def test_for_development_constants_are_turned_and_each_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    told = read_turning(SPILLWAY_CONSTANTS="X_TICK_SECONDS=0.5, X_STEP_MAX=2,Y_OTHERS=1")
    assert told == Turning(tick_seconds=0.5, step_max=2)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert "SPILLWAY_CONSTANTS, for development alone: X_TICK_SECONDS is 0.5, not 0.1" in texts


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        pytest.param("X_TICK_SECONDS", "SPILLWAY_CONSTANTS: 'X_TICK_SECONDS': expected NAME=value", id="no value"),
        pytest.param("X_TICK_SECOND=1", "SPILLWAY_CONSTANTS: X_TICK_SECOND: no such constant", id="slip"),
        pytest.param("X_PORT=1", "SPILLWAY_CONSTANTS: X_PORT: no such constant", id="a setting"),
        pytest.param("X_STEP_MAX=few", "X_STEP_MAX: 'few': expected a whole number", id="not a number"),
    ],
)
def test_what_is_wrong_with_them_is_said(told: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_turning(SPILLWAY_CONSTANTS=told)


def test_a_shared_prefix_knows_of_constants_of_others() -> None:
    environment = {"SPILLWAY_CONSTANTS": "SPILLWAY_PLANNER_TICK_SECONDS=0.5", "SPILLWAY_PORT": "80"}
    assert settings_from_environment(Turning, environment, "SPILLWAY_", shared=True) == Turning(port=80)
