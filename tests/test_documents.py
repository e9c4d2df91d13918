"""What is generated from code is current, and is what others' tools take it for."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_asyncapi
import make_docs
import make_metrics_page
import pytest
import yaml
from prometheus_client import REGISTRY
from pydantic import ValidationError

from spillway.addresses import EVENT_TYPES, TOPICS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It has fields that are named as methods of their base.
    from asyncapi3.models.asyncapi import AsyncAPI3

Json = dict[str, Any]


def test_what_is_generated_is_current() -> None:
    assert make_docs.old_pages() == []


# ── Examples ────────────────────────────────────────────────────────────────────────────────────────────────────────

HERE = Path(__file__).resolve().parents[1]


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


# ── Metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_has_every_metric_of_ours_that_is_registered() -> None:
    registered = {one.name for one in REGISTRY.collect() if one.name.startswith(make_metrics_page.PREFIX)}
    assert {one.name.removesuffix("_total") for one in make_metrics_page.described()} == registered


def test_the_metrics_that_answer_questions_are_there() -> None:
    known = {one.name for one in make_metrics_page.described()}
    asked = {make_metrics_page.PREFIX + name for _, names in make_metrics_page.QUESTIONS for name in names}
    assert asked <= known


def test_every_metric_says_what_it_means_and_who_tells_it() -> None:
    unsaid = [one.name for one in make_metrics_page.described() if not one.meaning or not one.told_by]
    assert unsaid == []


# ── AsyncAPI ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def document() -> Json:
    found: Json = yaml.safe_load(make_asyncapi.page())
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
    for reference in references(document):
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


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        yield from (one for each in value.values() for one in references(each))
    elif isinstance(value, list):
        yield from (one for each in value for one in references(each))
