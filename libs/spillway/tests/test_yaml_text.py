"""YAML that is small and costs much to read is refused, and nothing that people write is."""

import re
from typing import Any

import pytest
import yaml

from spillway.api import RequestError
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX, _json_of, read_manifest_once, read_object
from spillway.yaml_text import (
    DEPTH_MAX,
    MERGED_MAX,
    NUMBER_CHARACTERS_MAX,
    REPEATED_BYTES_MAX,
    BoundedLoader,
    ValueBudget,
    read_yaml,
    read_yaml_within_budget,
)

MERGES = ("a0: &a0 {x: 1, y: 2}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in range(1, 40)))


def text_with_merges(entries: int, mappings: int) -> str:
    """One mapping of so many entries, that each of many others merges."""
    named = ", ".join(f"k{n}: {n}" for n in range(entries))
    return f"kind: A\nx: &a {{{named}}}\ny: [{', '.join(['{<<: *a}'] * mappings)}]\n"


MERGED_OFTEN = {
    "one mapping by many": text_with_merges(500, 300),
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
    "a number to the base 60": ("a: 1" + ":59" * 100_000, "a number has"),
    "a fraction to the base 60": ("a: 1" + ":59" * 1_000 + ".5", "a number has"),
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
        read_yaml_within_budget(text, ValueBudget(100_000))
    left = ValueBudget(200_000)
    read_yaml_within_budget(text, left)
    with pytest.raises(yaml.YAMLError, match="more than 200000 values"):
        read_yaml_within_budget(text, left)


def test_merges_of_all_documents_of_a_file_are_bounded_together() -> None:
    """As the command reads a file: 300,000 entries in each of two."""
    one = text_with_merges(1_000, 300)
    assert len(list(yaml.load_all(one, Loader=BoundedLoader))) == 1
    with pytest.raises(yaml.YAMLError, match="more than 500000 values"):
        list(yaml.load_all(f"{one}---\n{one}", Loader=BoundedLoader))


@pytest.mark.parametrize("text", MERGED_OFTEN.values(), ids=MERGED_OFTEN)
def test_a_manifest_merges_no_more_entries_than_it_has_bytes(text: str) -> None:
    """So that what is read on the loop costs what its length says. Its budget would let in many more."""
    said = rf"\d+ entries are merged in all: expected at most {len(text)}"
    assert re.search(said, read_manifest_once(text, ValueBudget(1_000_000)).trouble)
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


def text_with_aliases(named: str, times: int) -> str:
    return f"kind: A\nx: &a {named}\ny: [{', '.join(['*a'] * times)}]\n"


LONG = "x" * 4_000
REPEATED = {
    "a text": text_with_aliases(f"'{LONG}'", 300),
    "a text of two bytes a character": text_with_aliases(f"'{'é' * 2_000}'", 300),
    "a key": text_with_aliases(f"{{? {LONG} : 1}}", 300),
    "numbers": text_with_aliases("9" * 100, 14_000),
    "a text in pairs": f"kind: A\nx: &a '{LONG}'\ny: !!pairs [{', '.join(['k: *a'] * 300)}]\n",
    "a text in an ordered mapping": f"kind: A\nx: &a '{LONG}'\ny: !!omap [{', '.join(['k: *a'] * 300)}]\n",
    "a key of a set": text_with_aliases(f"!!set {{{LONG}}}", 300),
    "bytes": text_with_aliases(f"!!binary {'AAAA' * 1_400}", 300),
    "a text that mappings merge": f"kind: A\nx: &a {{t: {LONG}}}\ny: [{', '.join(['{<<: *a}'] * 300)}]\n",
}


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED)
def test_what_aliases_repeat_is_no_more_than_a_manifest_may_have(text: str, calls_of: Any) -> None:
    """Some 7 kB, or 56 of numbers, that would say 1.2 MB or more: refused before any of it is written as JSON."""
    said = f"more than {MANIFEST_BYTES_MAX} bytes with what its aliases repeat"
    with calls_of(_json_of) as written:
        assert read_manifest_once("kind: A", ValueBudget(100_000)).json
        assert read_manifest_once(text, ValueBudget(100_000)).trouble == said
    assert len(written) == 1, "only what is small"
    with pytest.raises(RequestError) as refused:
        read_object(text, "manifests[0]")
    assert refused.value.text == f"manifests[0]: {said}"


TYPES = {"pairs": "k: *a{n}, k: *a{n}", "omap": "k: *a{n}, l: *a{n}"}


@pytest.mark.parametrize("tag", TYPES)
def test_pairs_of_pairs_are_refused(tag: str) -> None:
    """1 kB that would say 2 ** 40 texts: it kept a thread for ever, and the interpreter with it."""
    lines = (f"a{n}: &a{n} !!{tag} [{TYPES[tag].format(n=n - 1)}]" for n in range(1, 40))
    with pytest.raises(RequestError, match=r"manifests\[0\]: (nested deeper|aliases that repeat more than)"):
        read_object("\n".join(("kind: A", "a0: &a0 x", *lines)), "manifests[0]")


def test_what_aliases_repeat_in_all_manifests_of_a_request_is_bounded_together() -> None:
    """Each of them says 600 kB."""
    budget, text = ValueBudget(100_000), text_with_aliases(f"'{LONG}'", 150)
    assert read_manifest_once(text, budget).json
    repeated = len("kindAxy") + 151 * len(LONG) - len(text)
    said = (
        f"{repeated} bytes that its aliases repeat: expected at most {REPEATED_BYTES_MAX} in all that is read together"
    )
    assert read_manifest_once(text, budget).trouble == said
    assert read_manifest_once(text_with_aliases("'x'", 100), budget).json, "what is left is for others"


def test_up_to_a_manifests_bytes_what_is_written_and_repeated_is_read() -> None:
    plain = f"kind: A\nx: {'x' * (MANIFEST_BYTES_MAX - 11)}"
    assert read_object(read_manifest_once(plain, ValueBudget(10)), "m")["kind"] == "A"
    texts = MANIFEST_BYTES_MAX // len(LONG) - 1
    assert len(read_object(read_manifest_once(text_with_aliases(LONG, texts), ValueBudget(10)), "m")["y"]) == texts


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
