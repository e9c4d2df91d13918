"""A request's manifests are read once, whoever asks what they say, and are refused each time by the same words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from planner.api.prepared import prepare_request
from planner.core.manifests.request import _read_declaration, read_manifests
from planner.core.manifests.templates import KEPT_CHARACTERS_MAX
from spillway.api import (
    ApplyRequest,
    BatchItem,
    CapacityRequest,
    ExplainRequest,
    GetRequest,
    PlanBatchRequest,
    RequestError,
    ScaleRequest,
)

from .builders import deployment, manifest_texts

LONG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x" * KEPT_CHARACTERS_MAX}}
ITEMS_MAX = 3


@pytest.fixture
def readings(calls_of: Any) -> Iterator[list[Any]]:
    with calls_of(_read_declaration) as calls:
        yield calls


def text_counts_of(readings: list[Any]) -> list[int]:
    """How many texts were read each time."""
    return [len(call["objects"]) for call in readings]


@pytest.mark.parametrize("make", [ApplyRequest, CapacityRequest, lambda given: ExplainRequest("", "", manifests=given)])
def test_what_is_long_is_read_once(make: Any, readings: list[Any]) -> None:
    asked = make(manifest_texts(deployment(2), LONG))
    made = prepare_request(asked, ITEMS_MAX)
    assert (made, made.manifests) == (asked, asked.manifests)
    said = read_manifests(made.manifests)
    assert read_manifests(prepare_request(made, ITEMS_MAX).manifests) is said
    assert text_counts_of(readings) == [2]
    assert read_manifests(asked.manifests) == said


def test_what_is_wrong_is_refused_each_time_and_read_once(readings: list[Any]) -> None:
    made = prepare_request(ApplyRequest(manifest_texts(deployment(2), deployment(3), LONG)), ITEMS_MAX)
    raised = []
    for _ in range(2):
        with pytest.raises(RequestError, match="exactly one of") as refused:
            read_manifests(made.manifests)
        raised.append(refused.value)
    assert [error.code for error in raised] == ["INVALID_ARGUMENT"] * 2
    assert raised[0] is not raised[1], "an error that is raised again keeps the frames of before"
    assert text_counts_of(readings) == [3]


def test_each_item_of_a_batch_is_read_once(readings: list[Any]) -> None:
    applied = BatchItem(ApplyRequest(manifest_texts(deployment(2), LONG)))
    batch = PlanBatchRequest((applied, BatchItem(scale=ScaleRequest("default", "web", 1)), applied))
    made = prepare_request(batch, ITEMS_MAX)
    assert made == batch
    for item in made.items:
        if item.apply is not None:
            read_manifests(item.apply.manifests)
    assert text_counts_of(readings) == [2, 2]


def test_a_batch_of_too_many_is_not_read(readings: list[Any]) -> None:
    batch = PlanBatchRequest((BatchItem(ApplyRequest(manifest_texts(deployment(2), LONG))),) * (ITEMS_MAX + 1))
    assert prepare_request(batch, ITEMS_MAX) is batch
    assert readings == []


@pytest.mark.parametrize(
    "request_",
    [GetRequest("default", "web"), ExplainRequest("default", "web", manifests=(json.dumps(LONG),))],
    ids=["no manifests", "beside those that are declared"],
)
def test_what_cannot_be_read_by_itself_is_left(request_: Any, readings: list[Any]) -> None:
    assert prepare_request(request_, ITEMS_MAX) is request_
    assert readings == []
