"""What is generated from code is current, and is what others' tools take it for; commands that are shown are there."""

import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import make_asyncapi
import make_docs
import make_metrics_page
import pytest
import typer.main
import yaml
from prometheus_client import REGISTRY
from pydantic import ValidationError

from spillway.addresses import EVENT_TYPES, TOPICS
from spillway_cli.main import app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It has fields that are named as methods of their base.
    from asyncapi3.models.asyncapi import AsyncAPI3

Json = dict[str, Any]


def test_what_is_generated_is_current() -> None:
    assert make_docs.differences_of_old_pages() == []


# ── Examples ────────────────────────────────────────────────────────────────────────────────────────────────────────

HERE = Path(__file__).resolve().parents[1]
NAME_DECISIONS = ("services", "libs", "cli", "local", "docs", "tests", "lab", "tools")


@pytest.mark.parametrize("name", ["front", "orders"])
def test_the_policy_that_is_shown_is_that_of_the_example(name: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (HERE / "docs" / "scaling.md").read_text(), re.DOTALL)
    shown = [block for text in blocks for block in [yaml.safe_load(text)] if block["metadata"]["name"] == name]
    policy = list(yaml.safe_load_all((HERE / "examples" / f"{name}.yaml").read_text()))[1]
    assert policy in shown


def test_the_examples_that_are_named_are_there() -> None:
    pages = [HERE / "README.md", *(HERE / "docs").glob("*.md")]
    named = {file for page in pages for file in re.findall(r"examples/[\w.-]*\w", page.read_text())}
    assert [file for file in sorted(named) if not (HERE / file).is_file()] == []


@pytest.mark.parametrize("service", ["planner", "descheduler"])
def test_a_service_page_names_only_modules_that_are_there(service: str) -> None:
    folder = HERE / "services" / service
    _, _, table = (folder / "README.md").read_text().partition("| core module | decides |\n")
    cells = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()]
    named = {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)}
    assert len(named) > 5
    modules = [*folder.glob("src/*/core/**/*.py"), *HERE.glob("libs/spillway/src/spillway/feasibility/*.py")]
    assert named - {path.stem for path in modules} == set()


# ── Tests ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TEST = re.compile(r"def (test_\w+)")
NAMED_TEST = re.compile(r"(?<!\w)test_\w+(?:\.py)?")
NAME_TESTS = ("docs/*.md", "docs/adr/*.md", "services/*/README.md")
ATTACKERS_SCRIPTS = re.compile(r"test_x\d+b?_\w+\.py")
"""Scripts that showed defects. They lie beside the repository, as docs/attacks.md says."""


def test_the_tests_that_are_named_are_there() -> None:
    folders = ("services", "libs", "cli", "local", "tests")
    files = [file for part in folders for file in (HERE / part).rglob("test_*.py")]
    known = {name for file in files for name in (file.name, file.stem, *TEST.findall(file.read_text()))}
    pages = [page for pattern in NAME_TESTS for page in HERE.glob(pattern)]
    named = {(page.name, name) for page in pages for name in NAMED_TEST.findall(page.read_text())}
    assert len(named) > 400
    assert sorted((page, name) for page, name in named if name not in known and not ATTACKERS_SCRIPTS.match(name)) == []


# ── Decisions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_decision_has_a_number_of_its_own_and_bears_it() -> None:
    pages = sorted((HERE / "docs" / "adr").glob("*.md"))
    numbers = Counter(page.name[:4] for page in pages)
    assert [number for number, count in numbers.items() if count > 1] == []
    assert [page.name for page in pages if not page.read_text().startswith(f"# {int(page.name[:4])}. ")] == []


def test_the_decisions_that_are_named_are_there() -> None:
    numbers = {page.name[:4] for page in (HERE / "docs" / "adr").glob("*.md")}
    files = (file for pattern in ("*.md", "*.py") for part in NAME_DECISIONS for file in (HERE / part).rglob(pattern))
    named = {number for file in files for number in re.findall(r"docs/adr/(\d{4})", file.read_text())}
    assert sorted(named - numbers) == []


# ── Commands ────────────────────────────────────────────────────────────────────────────────────────────────────────

PAGES = tuple(
    page
    for pattern in ("*.md", "docs/*.md", "services/*/README.md", "compose/*.md", "deploy/**/*.md")
    for page in sorted(HERE.glob(pattern))
    if page.name != "CHANGELOG.md"  # It says what was.
)
BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`(?:\.venv/bin/)?spillway ([^`]+)`")
# First in a line of shell, or behind another command, or what a container runs.
IN_BLOCK = re.compile(r"(?:^|[;&|] |run --rm )(?:\.venv/bin/)?spillway +([^#;&|>\n]+)", re.MULTILINE)
MAKE = re.compile(r"(?:`|^|&& )make ([a-z][\w-]*)", re.MULTILINE)
TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)

Command = Any  # Typer has no public name for what it makes of an app.
SPILLWAY: Command = typer.main.get_command(app)


def commands_in_sentences(text: str) -> Iterator[str]:
    yield from INLINE.findall(BLOCK.sub("", text))


def commands_in_blocks(text: str) -> Iterator[str]:
    for block in BLOCK.findall(text.replace("\\\n", " ")):
        yield from IN_BLOCK.findall(block)


def commands_on_pages(found: Callable[[str], Iterator[str]]) -> list[tuple[str, str]]:
    """Each command once for each page, without what is left out of it."""
    return [
        (str(page.relative_to(HERE)), words)
        for page in PAGES
        for words in dict.fromkeys(" ".join(text.split()) for text in found(page.read_text()))
    ]


def command_of(text: str) -> tuple[Command, list[str]]:
    """Returns the command that a text names, `spillway` itself if it names none, and the words after that name.

    Raises KeyError if there is no command of this name.
    """
    command = SPILLWAY
    words = [word for word in shlex.split(re.sub("<[^>]*>", "VALUE", text)) if "…" not in word]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    return command, words


@pytest.mark.parametrize(("page", "text"), commands_on_pages(commands_in_sentences))
def test_a_command_in_a_sentence_has_the_options_that_are_named(page: str, text: str) -> None:
    command, words = command_of(text)
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options | {"-h", "--help"}, page


@pytest.mark.parametrize(("page", "text"), commands_on_pages(commands_in_blocks))
def test_a_command_in_a_block_is_understood_as_it_stands(page: str, text: str) -> None:
    command, words = command_of(text)
    assert not hasattr(command, "commands"), page
    command.make_context(command.name, words)  # A UsageError says what of it is not understood.


def test_every_target_of_make_that_is_named_is_there() -> None:
    targets = set(TARGET.findall((HERE / "Makefile").read_text()))
    named = {(target, page.name) for page in PAGES for target in MAKE.findall(page.read_text())}
    assert {(target, page) for target, page in named if target not in targets} == set()


# ── Metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_has_every_metric_of_ours_that_is_registered() -> None:
    registered = {one.name for one in REGISTRY.collect() if one.name.startswith(make_metrics_page.PREFIX)}
    assert {one.name.removesuffix("_total") for one in make_metrics_page.described_metrics()} == registered


def test_the_metrics_that_answer_questions_are_there() -> None:
    known = {one.name for one in make_metrics_page.described_metrics()}
    asked = {make_metrics_page.PREFIX + name for _, names in make_metrics_page.QUESTIONS for name in names}
    assert asked <= known


def test_every_metric_says_what_it_means_and_who_tells_it() -> None:
    unsaid = [one.name for one in make_metrics_page.described_metrics() if not one.meaning or not one.told_by]
    assert unsaid == []


# ── AsyncAPI ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def document() -> Json:
    found: Json = yaml.safe_load(make_asyncapi.page_text())
    return found


def test_the_log_is_an_asyncapi_document_by_a_library_that_knows_them(document: Json) -> None:
    AsyncAPI3.model_validate(document)


@pytest.mark.parametrize("field", ["adress", "operation"])
def test_that_library_refuses_what_no_asyncapi_document_has(document: Json, field: str) -> None:
    load = document["channels"]["load"] | {field: "x"}
    with pytest.raises(ValidationError, match=field):
        AsyncAPI3.model_validate(document | {"channels": document["channels"] | {"load": load}})


def test_every_topic_and_event_is_in_it_and_every_reference_leads_somewhere(document: Json) -> None:
    assert [channel["address"] for channel in document["channels"].values()] == [topic.name for topic in TOPICS]
    assert set(document["components"]["messages"]) == {event.__name__ for event in EVENT_TYPES}
    for reference in references_in(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found


def test_who_sends_and_who_receives_a_topic_and_by_which_key(document: Json) -> None:
    operations = document["operations"]
    about = {name: one["action"] for name, one in operations.items() if one["channel"]["$ref"] == "#/channels/scale"}
    assert about == {"hpa-sends-scale": "send", "hpa-reads-scale": "receive", "planner-reads-scale": "receive"}
    keys = {
        name: message["bindings"]["kafka"]["key"]["description"]
        for name, message in document["components"]["messages"].items()
    }
    assert keys["WorkloadObserved"] == "`{namespace}/{name}/{cluster}`"
    assert keys["TurnTaken"] == "`{cluster}` or `planner` or `hpa` or `descheduler`"
    assert all(re.fullmatch(r"`[^`]+`( or `[^`]+`)*", key) for key in keys.values())


def references_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        yield from (one for each in value.values() for one in references_in(each))
    elif isinstance(value, list):
        yield from (one for each in value for one in references_in(each))
