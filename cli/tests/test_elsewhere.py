"""Of a name that a namespace does not have: a command says which others have it, where the caller may know."""

from typing import Any

import pytest

from spillway import api
from spillway.api import RequestError
from spillway_cli import elsewhere

from .test_scaling_commands import HPA, Write

NAMED = "spillway: workload default/web: not known; api, shop have one of that name: -n NAMESPACE\n"


@pytest.fixture
def elsewhere_declared(spillway: Any) -> Any:
    """web is in two namespaces, and not in the one of the config; a page of the fake planner has one workload."""
    spillway.planner.replicas |= {("shop", "web"): 3, ("api", "web"): 2, ("default", "other"): 1}
    return spillway


@pytest.mark.parametrize(
    "command",
    [
        ("get", "web"),
        ("get", "web", "-o", "json"),
        ("scale", "web", "--replicas", "3"),
        ("delete", "web"),
        ("delete", "deployment/web"),
        ("migrate", "workload", "web", "--to", "own-1"),
        ("disown", "deployment/web"),
    ],
    ids=" ".join,
)
def test_a_name_that_other_namespaces_have(elsewhere_declared: Any, command: tuple[str, ...]) -> None:
    result = elsewhere_declared(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", NAMED)


def test_what_is_watched_says_so_before_how_to_wait(elsewhere_declared: Any) -> None:
    said = elsewhere_declared("watch", "web").stderr
    assert "not known; --wait waits until it is; api, shop have one of that name" in said


def test_a_name_that_none_has_and_one_that_is_here_say_nothing_of_others(elsewhere_declared: Any) -> None:
    """Not found may be the cluster that is named, too."""
    assert elsewhere_declared("get", "nosuch").stderr == "spillway: workload default/nosuch: not known\n"
    elsewhere_declared.planner.replicas["default", "web"] = 1
    refusal = RequestError("NOT_FOUND", "to_cluster: 'x': no cluster has this name; the fleet has own-1")
    elsewhere_declared.planner.refused[api.MigrateRequest] = refusal
    said = elsewhere_declared("migrate", "workload", "web", "--to", "x").stderr
    assert said == "spillway: to_cluster: 'x': no cluster has this name; the fleet has own-1\n"


def test_a_caller_of_some_namespaces_is_told_of_no_others(elsewhere_declared: Any) -> None:
    refusal = RequestError("PERMISSION_DENIED", "caller 'ci' may not list in all namespaces")
    elsewhere_declared.planner.refused[api.ListRequest] = refusal
    result = elsewhere_declared("get", "web")
    assert (result.exit_code, result.stderr) == (2, "spillway: workload default/web: not known\n")


def test_only_so_many_pages_are_looked_at(elsewhere_declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "PAGES_MAX", 1)
    assert elsewhere_declared("get", "web").stderr.endswith("not known; api has one of that name: -n NAMESPACE\n")
    assert len([one for one in elsewhere_declared.planner.asked if isinstance(one, api.ListRequest)]) == 1


def test_a_list_that_is_empty_says_where_there_are_some(elsewhere_declared: Any) -> None:
    assert (
        elsewhere_declared("list", "-n", "nope").stderr == "no workload in nope; there are some in api, default, shop\n"
    )
    elsewhere_declared.planner.replicas.clear()
    assert elsewhere_declared("list", "-n", "nope").stderr == "no workload in nope\n"


def test_scale_policies_too(spillway: Any, write: Write) -> None:
    spillway("apply", "-n", "shop", "-f", write("hpa.yaml", HPA))
    for command in (("get", "hpa/web"), ("delete", "hpa/web"), ("explain", "hpa/web")):
        assert spillway(*command).stderr.endswith("; shop has one of that name: -n NAMESPACE\n")
    assert spillway("get", "hpa").stderr == "no scale policy in default; there are some in shop\n"
