"""YAML that is small and costs much to read is refused, and nothing that people write is."""

import re

import pytest
import yaml

from spillway.api import RequestError
from spillway.kubernetes.manifest_text import read_object, read_once
from spillway.yaml_text import (
    DEPTH_MAX,
    MERGED_MAX,
    NUMBER_CHARACTERS_MAX,
    BoundedLoader,
    ValueBudget,
    read_counted,
    read_yaml,
)

MERGES = ("a0: &a0 {x: 1, y: 2}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in range(1, 40)))


def merging(entries: int, mappings: int) -> str:
    """One mapping of so many entries, that each of many others merges."""
    named = ", ".join(f"k{n}: {n}" for n in range(entries))
    return f"kind: A\nx: &a {{{named}}}\ny: [{', '.join(['{<<: *a}'] * mappings)}]\n"


MERGED_OFTEN = {
    "one mapping by many": merging(500, 300),
    "a list of it by many": f"x: &a {{}}\ns: &s [{', '.join(['*a'] * 500)}]\ny: [{', '.join(['{<<: *s}'] * 300)}]",
    "one after the other, each of which had merged it": "a0: &a0 {"
    + ", ".join(f"k{n}: 1" for n in range(500))
    + "}\n"
    + "\n".join(f"a{n}: &a{n} {{<<: *a{n - 1}, l{n}: 1}}" for n in range(1, 300)),
}
COSTLY = {
    "lists in each other": ("[" * 50_000, "nested deeper"),
    "lists without brackets": ("- " * 50_000 + "1", "nested deeper"),
    "mappings in each other": ("{a: " * 50_000, "nested deeper"),
    "keys in each other": ("? " * 50_000, "nested deeper"),
    "merges of merges": ("\n".join(MERGES), "entries are merged"),
    "a number to the base 60": ("a: 1" + ":59" * 100_000, "a number of"),
    "a fraction to the base 60": ("a: 1" + ":59" * 1_000 + ".5", "a number of"),
}


@pytest.mark.parametrize(("text", "why"), COSTLY.values(), ids=COSTLY)
def test_what_costs_too_much_is_refused(text: str, why: str) -> None:
    with pytest.raises(yaml.YAMLError, match=why):
        read_yaml(text)


def test_a_manifest_that_would_end_the_process_is_refused_in_words() -> None:
    with pytest.raises(RequestError, match=r"manifests\[0\]: neither JSON nor YAML: nested deeper"):
        read_object("[" * 50_000, "manifests[0]")


@pytest.mark.parametrize("text", MERGED_OFTEN.values(), ids=MERGED_OFTEN)
def test_entries_that_are_merged_are_values_of_the_budget(text: str) -> None:
    """Some 150,000 of them, in texts that have at most 4,000 values written out."""
    with pytest.raises(yaml.YAMLError, match="more than 100000 values"):
        read_counted(text, ValueBudget(100_000))
    left = ValueBudget(200_000)
    read_counted(text, left)
    with pytest.raises(yaml.YAMLError, match="more than 200000 values"):
        read_counted(text, left)


def test_merges_of_all_documents_of_a_file_are_bounded_together() -> None:
    """As the command reads a file: 300,000 entries in each of two."""
    one = merging(1_000, 300)
    assert len(list(yaml.load_all(one, Loader=BoundedLoader))) == 1
    with pytest.raises(yaml.YAMLError, match="more than 500000 values"):
        list(yaml.load_all(f"{one}---\n{one}", Loader=BoundedLoader))


@pytest.mark.parametrize("text", MERGED_OFTEN.values(), ids=MERGED_OFTEN)
def test_a_manifest_merges_no_more_entries_than_it_has_bytes(text: str) -> None:
    """So that what is read on the loop costs what its length says. Its budget would let in many more."""
    said = rf"\d+ entries are merged in all: expected at most {len(text)}"
    assert re.search(said, read_once(text, ValueBudget(1_000_000)).trouble)
    with pytest.raises(RequestError, match=rf"manifests\[0\]: neither JSON nor YAML: {said}"):
        read_object(text, "manifests[0]")


def test_merges_as_people_write_them_are_read() -> None:
    """Ten containers that share what is long, as published manifests have it."""
    shared = "{image: registry.example.com/shop/worker, imagePullPolicy: Always, stdin: false, tty: false}"
    containers = "\n".join(f"- {{<<: *shared, name: worker-{n}, tty: true}}" for n in range(10))
    read = read_object(f"kind: A\nx: &shared {shared}\ny:\n{containers}\n", "manifests[0]")
    assert [(one["name"], one["stdin"], one["tty"]) for one in read["y"]] == [
        (f"worker-{n}", False, True) for n in range(10)
    ]


def test_a_date_is_text_as_kubernetes_reads_it() -> None:
    assert read_yaml("{day: 2026-11-27, none: 2026-13-45, at: 2026-11-27T08:00:00Z}") == {
        "day": "2026-11-27",
        "none": "2026-13-45",
        "at": "2026-11-27T08:00:00Z",
    }


def test_up_to_the_bounds_all_is_read() -> None:
    assert read_yaml("[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1))
    assert read_yaml("9" * NUMBER_CHARACTERS_MAX) == int("9" * NUMBER_CHARACTERS_MAX)
    assert len(read_yaml("\n".join(f"k{n}: 1" for n in range(2 * MERGED_MAX)))) == 2 * MERGED_MAX
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, y: 1:30}")["b"] == {"x": 1, "y": 90}
