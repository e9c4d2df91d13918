"""Pod Security: each check by what it lets in and what not, and Kubernetes' own samples where this machine has them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sim.pods_by_level import CASES, Case, restricted_pod
from spillway.kubernetes.pod_security import ANY, BASELINE, LEVELS, RESTRICTED, violations

SAMPLES = "k8s.io/pod-security-admission@v0.36.1/test/testdata"
"""Of a module that Go keeps once `make kube` or `make oracle` has built something that needs it."""
SAMPLES_VERSION = "v1.35"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_check_says_what_kubernetes_says(case: Case) -> None:
    found = {level: {one.check for one in violations(case.pod, level)} for level in LEVELS}
    assert found[ANY] == set()
    assert found[BASELINE] == ({case.check} if case.level == BASELINE else set())
    assert found[RESTRICTED] >= found[BASELINE]
    assert bool(found[RESTRICTED]) == bool(case.level)
    assert not case.check or case.check in found[RESTRICTED] | found[BASELINE]


def test_a_violation_names_the_field_the_value_and_what_was_expected() -> None:
    pod = restricted_pod()
    pod["spec"]["containers"][0]["securityContext"]["privileged"] = True
    (found,) = violations(pod, BASELINE)
    assert found.check == "privileged"
    assert (found.field, found.value) == ("spec.containers[0].securityContext.privileged", True)
    assert found.expected == "false"


def test_an_unknown_level_is_no_level() -> None:
    with pytest.raises(ValueError, match="level 'privileged': expected one of any, baseline, restricted"):
        list(violations({}, "privileged"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ("hostNetwork", "securityContext", "volumes", "containers", "initContainers", "os", "hostUsers", "annotations")
)


CONTEXT_FIELDS = st.sampled_from(
    ("securityContext", "ports", "livenessProbe", "lifecycle", "capabilities", "seLinuxOptions", "seccompProfile")
)


SPECS = st.dictionaries(FIELDS, JSON, max_size=4)
CONTEXTS = st.dictionaries(CONTEXT_FIELDS, JSON, max_size=4)


@given(SPECS, CONTEXTS, st.sampled_from(LEVELS))
def test_whatever_is_there_is_looked_at_without_an_error(
    spec: dict[str, Any], context: dict[str, Any], level: str
) -> None:
    containers = [{"securityContext": context, **context}]
    for one in (spec, {**spec, "containers": containers}, {**spec, "securityContext": context}):
        assert all(found.expected for found in violations({"metadata": spec, "spec": one}, level))


def sample_files() -> Iterator[tuple[str, bool, Path]]:
    """Level, whether it is within it, file."""
    folder = Path(os.environ.get("GOMODCACHE", Path.home() / "go/pkg/mod")) / SAMPLES
    for level in (BASELINE, RESTRICTED):
        for verdict in ("pass", "fail"):
            for path in sorted((folder / level / SAMPLES_VERSION / verdict).glob("*.yaml")):
                yield level, verdict == "pass", path


def test_the_conformance_samples_of_kubernetes() -> None:
    found = list(sample_files())
    if not found:
        pytest.skip(f"{SAMPLES} is not in Go's cache of modules: `go mod download {SAMPLES.partition('/test')[0]}`")
    wrong = []
    for level, is_within, path in found:
        said = [one.check for one in violations(yaml.safe_load(path.read_text()), level)]
        if bool(said) == is_within:
            wrong.append((level, path.name, said))
    assert wrong == []
    assert len(found) > 100
