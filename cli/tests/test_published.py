"""Files as people publish them: what is not carried is refused by its names before anything is sent."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spillway.api import RequestError
from spillway_cli.carried import PLACED, check_request_groups
from spillway_cli.exits import CommandFailed
from spillway_cli.grouping import group_by_workload
from spillway_cli.manifests import Document
from spillway_cli.scale_policies import GROUPS

Write = Callable[[str, str], str]
Spillway = Any

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "manifests"
FILES = sorted(PUBLISHED.glob("*.yaml"))

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: i}]}}
"""
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web-account}\n"


@cache
def documents_of(file: Path) -> list[Any]:
    """Read by the C library: the largest file has 1.9 MB."""
    return [value for value in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader) if value]


@pytest.mark.skipif(not FILES, reason="published files lie in ../shared/data/manifests, which is not here")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("command", ["apply", "plan", "capacity"])
def test_a_published_file_is_taken_or_refused_by_the_names_of_what_is_not_carried(
    spillway: Spillway, file: Path, command: str
) -> None:
    values = documents_of(file)
    others = [value for value in values if value["kind"] not in (*PLACED, *GROUPS)]
    result = spillway(command, "-f", str(file))
    assert "unexpected" not in result.stderr
    if others:
        assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
        for kind in {value["kind"] for value in others}:
            first = next(value["metadata"]["name"] for value in others if value["kind"] == kind)
            assert f"  {kind}: {first} in {file}" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(WEB + "---\n" + ACCOUNT, "ServiceAccount: web-account in {file} (document 2)", id="another kind"),
        pytest.param(
            WEB + "---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web}\n",
            "Service of serving.knative.dev/v1: web in {file} (document 2)",
            id="a kind of that name of others",
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n",
            "Pod: a in {file}, item 1",
            id="in a List",
        ),
        pytest.param(
            WEB + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "Secret: s in {file}", id="a Secret"
        ),
        pytest.param(WEB.replace("name: web", "name: 5"), "{file}: Deployment: metadata.name: 5", id="a number"),
        pytest.param(
            WEB.replace("metadata: {name: web}", "metadata: [web]"),
            "metadata: ['web']: expected an object",
            id="a list",
        ),
    ],
)
def test_what_is_not_carried_is_named_with_file_document_kind_and_name(
    spillway: Spillway, write: Write, text: str, words: str
) -> None:
    file = write("all.yaml", text)
    result = spillway("apply", "-f", file)
    assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
    assert words.format(file=file) in result.stderr
    assert "expected" in result.stderr


def test_of_several_workloads_none_is_applied_where_one_is_not_as_it_should_be(
    spillway: Spillway, write: Write
) -> None:
    """The planner answers for each of a batch: who is wrong in form would leave the others applied."""
    bad = WEB.replace("name: web", "name: api").replace("spec: {containers", "spec: {container")
    file = write("all.yaml", f"{WEB}---\n{bad}")
    result = spillway("apply", "-f", file)
    assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
    assert (
        f"{file} (document 2): Deployment default/api: Deployment.spec.template.spec.container: unknown"
        in result.stderr
    )


@pytest.mark.parametrize("command", ["apply", "plan", "capacity"])
def test_a_namespace_that_contradicts_the_flag_is_refused(spillway: Spillway, write: Write, command: str) -> None:
    file = write("web.yaml", WEB.replace("name: web}", "name: web, namespace: other}", 1))
    result = spillway(command, "-f", file, "-n", "shop")
    assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
    assert (
        f"{file}: Deployment web: metadata.namespace: 'other': expected the namespace of --namespace, 'shop'"
        in result.stderr
    )
    assert spillway(command, "-f", file, "-n", "other").exit_code == 0
    assert spillway(command, "-f", file).exit_code == 0
    assert {json.loads(request.manifests[0])["metadata"]["namespace"] for request in spillway.planner.asked} == {
        "other"
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("web"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"app": "web"}}}
PROPAGATION = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "p"},
    "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]},
}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in paths_in(part, (*path, key)))]


def copy_with_change(value: Any, path: tuple[Any, ...], put: Any) -> Any:
    if not path:
        return put
    copy = value.copy()
    copy[path[0]] = copy_with_change(copy[path[0]], path[1:], put)
    return copy


@given(st.data())
def test_objects_of_any_form_are_refused_in_words(data: st.DataObject) -> None:
    """Whatever stands below spec, which is read after the names and kinds were."""
    objects = [yaml.safe_load(WEB), yaml.safe_load(WEB.replace("web", "api")), SERVICE, PROPAGATION]
    index = data.draw(st.integers(0, 3))
    path = data.draw(st.sampled_from([place for place in paths_in(objects[index]) if place[:1] == ("spec",)]))
    objects[index] = copy_with_change(objects[index], path, data.draw(JSON))
    for value in objects:
        value["metadata"]["namespace"] = "default"
    documents = [Document(json.dumps(value), f"document {number}") for number, value in enumerate(objects)]
    try:
        check_request_groups(group_by_workload(documents))
    except (CommandFailed, RequestError) as error:
        said = str(error)
    else:
        said = "taken"
    assert said
