"""What others wrote steers no terminal: not in tables, lines, styled text, JSON, YAML, or errors."""

import io
import json
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from spillway_cli.exits import print_message
from spillway_cli.output import Format, SafeConsole, make_table, print_for_machines
from spillway_cli.terminal_text import harmless_text, has_terminal_controls

STEERING = "\x1b]0;mine\x07\x1b[2J\x1b[8m\x9b31m \u202eabc\u2066 \ufeff\r\x08"


def printed_text(*shown: object) -> str:
    out = io.StringIO()
    SafeConsole(file=out, width=200, highlight=False, markup=False, force_terminal=False).print(*shown)
    return out.getvalue()


@pytest.mark.parametrize(
    "shown",
    [
        STEERING,
        make_table(("TEXT",), [(STEERING,), ("calm",)]),
        Text("bold ", style="bold").append(STEERING, style="red").append(" end"),
        make_table((STEERING,), [("calm",)]),
    ],
    ids=["a line", "a cell", "styled text", "a head"],
)
def test_nothing_printed_steers(shown: object) -> None:
    text = printed_text(shown)
    assert not has_terminal_controls(text)
    assert "\\x1b]0;mine" in text
    assert "\\u202eabc" in text


def test_styles_stay_where_they_were() -> None:
    out = io.StringIO()
    console = SafeConsole(file=out, width=80, force_terminal=True, color_system="standard")
    console.print(Text("a\x1bb", style="bold").append("c\x1b", style="red"))
    assert out.getvalue() == "\x1b[1ma\\x1bb\x1b[0m\x1b[1;31mc\\x1b\x1b[0m\n"


@pytest.mark.parametrize("form", list(Format))
@given(text=st.text(st.one_of(st.characters(), st.sampled_from(STEERING))))
def test_machines_read_the_same_and_terminals_nothing(form: Format, text: str) -> None:
    if form is Format.table:
        return
    out, before = io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        print_for_machines({"text": text}, form)
    finally:
        sys.stdout = before
    assert not has_terminal_controls(out.getvalue())
    read = json.loads(out.getvalue()) if form is Format.json else yaml.safe_load(out.getvalue())
    assert read == {"text": text}


@given(st.text(st.sampled_from("aä\t\n→…✓" + STEERING)))
def test_what_steers_nothing_is_left_alone(text: str) -> None:
    assert not has_terminal_controls(harmless_text(text))
    assert has_terminal_controls(text) or harmless_text(text) == text


def test_an_error_on_stderr_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_message(f"own-1: {STEERING}")
    assert not has_terminal_controls(capsys.readouterr().err)
