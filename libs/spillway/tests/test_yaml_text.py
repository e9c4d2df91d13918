"""YAML that is small and costs much to read is refused, and nothing that people write is."""

import pytest
import yaml

from spillway.api import RequestError
from spillway.kubernetes.manifest_text import read_object
from spillway.yaml_text import DEPTH_MAX, MERGED_MAX, NUMBER_CHARACTERS_MAX, read_yaml

MERGES = ("a0: &a0 {x: 1, y: 2}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in range(1, 40)))
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
