"""Scale policies against an hpa on loopback: what is asked of whom, what is printed, how a command ends."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spillway import api_scaling as scaling
from spillway_cli.policy_names import PolicyName, parse_policy_name
from spillway_cli.scale_policies import parse_scale_target

from .test_commands import DEPLOYMENT

Write = Callable[[str, str], str]
HPA = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  behavior: {}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
"""
BAD = HPA.replace("minReplicas: 1", "minReplicas: 11")
DECLARED = "HorizontalPodAutoscaler default/web declared: default/web, 1 to 10 replicas; it has 3 replicas"


@pytest.fixture
def hpa(write: Write) -> str:
    return write("hpa.yaml", HPA)


def test_an_unknown_value_is_said_to_be_explained_elsewhere(spillway: Any, hpa: str) -> None:
    spillway("apply", "-f", hpa)
    assert spillway("get", "hpa").stderr == ""
    (key,) = spillway.scaling.policies
    spillway.scaling.policies[key] = replace(spillway.scaling.policies[key], targets="cpu: <unknown>/80%")
    assert spillway("get", "hpa").stderr == "`spillway explain hpa/NAME` tells why a value is unknown\n"


def test_a_policy_without_metrics_has_none_and_not_one_that_is_unknown(spillway: Any, hpa: str) -> None:
    spillway("apply", "-f", hpa)
    (key,) = spillway.scaling.policies
    spillway.scaling.policies[key] = replace(spillway.scaling.policies[key], targets="")
    result = spillway("get", "hpa")
    assert (result.stdout.splitlines()[1].split()[2], result.stderr) == ("<none>", "")


# ── Apply ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_policy_alone_goes_to_hpa_unchanged_and_its_warnings_are_said(spillway: Any, hpa: str) -> None:
    result = spillway("apply", "-f", hpa)
    assert (result.exit_code, result.stderr, spillway.planner.asked) == (0, "", [])
    assert result.stdout.splitlines() == [DECLARED, "warning: spec.behavior has no effect: why"]
    (request,) = spillway.scaling.asked
    sent = json.loads(request.manifest)
    assert sent["metadata"] == {"name": "web", "namespace": "default"}
    assert sent["spec"]["scaleTargetRef"]["name"] == "web"
    assert "is as it was" in spillway("apply", "-f", hpa).stdout


def test_policies_and_workloads_of_one_file_go_where_they_belong(spillway: Any, write: Write) -> None:
    """Checked first, declared last."""
    file = write("all.yaml", f"{HPA}---\n{DEPLOYMENT}")
    result = spillway("apply", "-f", file, "-n", "shop")
    assert result.exit_code == 0
    assert [json.loads(text)["kind"] for text in spillway.planner.asked[0].manifests] == ["Deployment"]
    assert [request.plan_only for request in spillway.scaling.asked] == [True, False]
    assert list(spillway.scaling.policies) == [("shop", "web")]
    assert "60 replicas: 60 placed" in result.stdout.splitlines()[0]
    assert DECLARED.replace("default", "shop") in result.stdout


def test_a_policy_that_is_refused_changes_nothing_and_is_named_with_its_document(spillway: Any, write: Write) -> None:
    file = write("all.yaml", f"{DEPLOYMENT}---\n{BAD}")
    result = spillway("apply", "-f", file)
    assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
    assert f"{file} (document 2): spec.minReplicas: 11" in result.stderr


def test_machines_get_a_document_for_each(spillway: Any, write: Write) -> None:
    stdout = spillway("apply", "-f", write("all.yaml", f"{HPA}---\n{DEPLOYMENT}"), "-o", "json").stdout
    first, end = json.JSONDecoder().raw_decode(stdout)
    assert (first["name"], json.loads(stdout[end:])["kind"]) == ("web", "HorizontalPodAutoscaler")


def test_a_workload_that_waits_for_room_is_scaled_all_the_same(spillway: Any, write: Write) -> None:
    file = write("all.yaml", f"{HPA}---\n{DEPLOYMENT.replace('replicas: 60', 'replicas: 400')}")
    assert spillway("apply", "-f", file).exit_code == 3
    assert spillway.scaling.policies


def test_plan_says_what_of_a_policy_has_no_effect_and_keeps_nothing(spillway: Any, write: Write) -> None:
    result = spillway("plan", "-f", write("all.yaml", f"{HPA}---\n{DEPLOYMENT}"))
    assert (result.exit_code, spillway.scaling.policies, spillway.planner.replicas) == (0, {}, {})
    assert "has no effect" in result.stdout
    assert spillway("capacity", "-f", write("both.yaml", f"{HPA}---\n{DEPLOYMENT}")).exit_code == 0


@pytest.mark.parametrize(
    ("kind", "version", "goes"),
    [
        ("ScaledObject", "keda.sh/v1alpha1", True),
        ("ScalePolicy", "spillway.io/v1", True),
        ("HorizontalPodAutoscaler", "autoscaling/v2", True),
        ("ScaledObject", "example.com/v1", False),
        ("HorizontalPodAutoscaler", "v1", False),
    ],
)
def test_kinds_are_told_by_kind_and_group(spillway: Any, write: Write, kind: str, version: str, goes: bool) -> None:
    text = HPA.replace("HorizontalPodAutoscaler", kind).replace("autoscaling/v2", version)
    result = spillway("apply", "-f", write("one.yaml", text))
    assert (f"{kind} of {version}: web in" in result.stderr) is not goes
    assert (bool(spillway.scaling.asked), bool(spillway.planner.asked)) == (goes, False)


# ── Autoscale ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_autoscale_writes_the_hpa(spillway: Any) -> None:
    result = spillway("autoscale", "statefulset/db", "--min", "2", "--max", "9", "--cpu-percent", "60", "-n", "shop")
    assert (result.exit_code, result.stderr) == (0, "")
    first, request = spillway.scaling.asked
    assert (first.plan_only, request.plan_only) == (True, False)
    manifest = json.loads(request.manifest)
    assert manifest["metadata"] == {"name": "db", "namespace": "shop"}
    assert manifest["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}
    assert (manifest["spec"]["minReplicas"], manifest["spec"]["maxReplicas"]) == (2, 9)
    assert manifest["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("web",), "--max", id="no most"),
        pytest.param(("web", "--min", "5", "--max", "3"), "--min 5: expected at most --max, 3", id="bounds"),
        pytest.param(("job/web", "--max", "3"), "expected NAME, deployment/NAME", id="another kind"),
        pytest.param(("deployment/", "--max", "3"), "expected NAME", id="no name"),
        pytest.param(("web", "--max", "0"), "equal to 1", id="none at the most"),
    ],
)
def test_wrong_usage_of_autoscale_is_2_and_never_asked(spillway: Any, arguments: tuple[str, ...], words: str) -> None:
    result = spillway("autoscale", *arguments)
    assert (result.exit_code, result.stdout, spillway.scaling.asked) == (2, "", [])
    assert words in result.stderr


def test_autoscale_of_what_is_not_declared_declares_nothing(spillway: Any) -> None:
    result = spillway("autoscale", "nosuch", "--max", "9")
    assert (result.exit_code, result.stdout, spillway.scaling.policies) == (2, "", {})
    assert result.stderr.startswith("spillway: default/nosuch: no workload of that name is declared; ")


# ── Get, delete ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_get_hpa_has_the_columns_of_kubectl(spillway: Any, write: Write, hpa: str) -> None:
    assert spillway("get", "hpa").stderr == "no scale policy in default\n"
    spillway("apply", "-f", hpa)
    spillway("apply", "-f", write("api.yaml", HPA.replace("name: web", "name: api")))
    lines = spillway("get", "hpa").stdout.splitlines()
    assert lines[0].split() == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert [line.split()[:7] for line in lines[1:]] == [
        [name, f"workload/{name}", "cpu:", "40%/80%", "1", "10", "3"] for name in ("api", "web")
    ]
    assert spillway("get", "hpa", "web").stdout == spillway("get", "hpa/web").stdout
    assert len(spillway("get", "hpa/web").stdout.splitlines()) == 2
    wide = spillway("get", "hpa", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[-3:] == ["NAMESPACE", "KIND", "DESIRED"]
    assert wide[1].split()[-3:] == ["default", "HorizontalPodAutoscaler", "4"]
    assert [entry["policy"] for entry in json.loads(spillway("get", "hpa", "-o", "json").stdout)] == ["api", "web"]
    assert json.loads(spillway("get", "hpa/web", "-o", "json").stdout)["targets"] == "cpu: 40%/80%"
    assert spillway("get", "scaledobject", "-o", "json").stdout == "[]\n"


def test_a_policy_that_hpa_refuses_is_shown_with_the_reason(spillway: Any, hpa: str) -> None:
    spillway("apply", "-f", hpa)
    known = spillway.scaling.policies["default", "web"]
    why = "refused: spec.maxReplicas: 0; nothing is decided from it"
    refused = replace(known, warnings=(why,), replicas_min=-1, replicas_max=-1, targets="refused")
    spillway.scaling.policies["default", "web"] = refused
    result = spillway("get", "hpa")
    assert result.stdout.splitlines()[1].split()[:5] == ["web", "workload/web", "refused", "<unknown>", "<unknown>"]
    assert result.stderr == f"warning: HorizontalPodAutoscaler default/web: {why}\n"


def test_get_of_a_workload_is_as_before(spillway: Any, write: Write) -> None:
    spillway("apply", "-f", write("web.yaml", DEPLOYMENT))
    assert spillway("get", "web", "-o", "wide").stdout == spillway("get", "web").stdout
    assert json.loads(spillway("get", "web", "-o", "json").stdout)["kind"] == "Deployment"


@pytest.fixture
def scaled(spillway: Any, hpa: str) -> Any:
    """A workload, web, that an HPA of its name scales."""
    spillway("apply", "-f", hpa)
    spillway("apply", "web", "--image", "i", "--replicas", "5")
    spillway.planner.scaled_by = "HorizontalPodAutoscaler/web"
    return spillway


def test_apply_says_which_policy_decides_the_number_and_within_which_bounds(scaled: Any) -> None:
    result = scaled("apply", "web", "--image", "i", "--replicas", "5", "-o", "json")
    decides = "default/web: HorizontalPodAutoscaler/web decides the number of replicas: 5 now, of 1 to 10 replicas"
    assert (result.exit_code, result.stderr) == (0, f"{decides}; `spillway delete hpa/web -n default` ends that\n")


def test_apply_is_done_though_nobody_says_the_bounds(scaled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled, "scaling_address", "127.0.0.1:9")
    result = scaled("apply", "web", "--image", "i", "--replicas", "5")
    assert result.exit_code == 0
    assert "5 now; its bounds are not known: hpa not reachable" in result.stderr


def test_a_batch_says_who_is_scaled(scaled: Any, write: Write) -> None:
    other = DEPLOYMENT.replace("web", "other")
    result = scaled("apply", "-f", write("two.yaml", f"{DEPLOYMENT}---\n{other}"))
    assert result.stdout.count("scaled by HorizontalPodAutoscaler/web") == 2


def test_delete_leaves_the_policy_and_says_so(scaled: Any) -> None:
    result = scaled("delete", "deployment/web")
    stays = (
        "HorizontalPodAutoscaler/web stays, and decides the number of replicas of default/web if that is applied again"
    )
    deletion = "`spillway delete hpa/web -n default`, or --with-policy here, deletes it"
    assert (result.exit_code, result.stderr) == (0, f"{stays}; {deletion}\n")
    assert scaled("get", "hpa/web").exit_code == 0


def test_delete_with_policy_deletes_both(scaled: Any) -> None:
    result = scaled("delete", "web", "--with-policy")
    assert (result.exit_code, result.stderr) == (0, "HorizontalPodAutoscaler default/web is gone\n")
    assert scaled.planner.deleting == {("default", "web")}
    assert scaled("get", "hpa/web").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("hpa/web", "--with-policy"), 2, "expected the name of a workload before --with-policy"),
        (("configmap/web",), 2, "KIND/NAME with one of deploy, deployment, job, statefulset, sts"),
        (("deployment/",), 2, "expected NAME, or KIND/NAME"),
        (("job/web",), 2, "job/web: workload default/web is a Deployment"),
    ],
)
def test_delete_of_what_is_not_named_rightly_deletes_nothing(
    scaled: Any, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = scaled("delete", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert not scaled.planner.deleting


def test_delete_hpa_says_what_stays(spillway: Any, hpa: str) -> None:
    spillway("apply", "-f", hpa)
    result = spillway("delete", "hpa/web")
    assert (result.exit_code, spillway.scaling.policies) == (0, {})
    assert result.stdout.startswith(DECLARED.replace("declared", "is gone"))
    missing = spillway("delete", "hpa/web")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "policy default/web: not declared" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("delete", "hpa"), "expected hpa/NAME"),
        (("explain", "hpa"), "expected hpa/NAME"),
        (("get", "hpa/"), "expected hpa, hpa/NAME or hpa NAME"),
        (("get", "hpa/web", "api"), "expected hpa, hpa/NAME or hpa NAME"),
        (("get", "web", "api"), "expected hpa before the name"),
        (("explain", "hpa/web", "--replicas", "4"), "expected no options other than -n and -o"),
    ],
    ids=" ".join,
)
def test_wrong_names_are_2_and_never_asked(spillway: Any, arguments: tuple[str, ...], words: str) -> None:
    result = spillway(*arguments)
    assert (result.exit_code, result.stdout, spillway.scaling.asked, spillway.planner.asked) == (2, "", [], [])
    assert words in result.stderr


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("hpa", PolicyName("", "")),
        ("HPA/web", PolicyName("", "web")),
        ("horizontalpodautoscaler/web", PolicyName("HorizontalPodAutoscaler", "web")),
        ("so/orders", PolicyName("ScaledObject", "orders")),
        ("scalepolicy/orders", PolicyName("ScalePolicy", "orders")),
        ("web", None),
        ("shop/web", None),
    ],
)
def test_names_of_policies(given: str, name: PolicyName | None) -> None:
    assert parse_policy_name(given) == name


@pytest.mark.parametrize(
    ("given", "found"),
    [("web", ("Deployment", "web")), ("deploy/web", ("Deployment", "web")), ("sts/db", ("StatefulSet", "db"))],
)
def test_targets(given: str, found: tuple[str, str]) -> None:
    assert parse_scale_target(given) == found


def test_no_hpa_is_4_and_named(spillway: Any) -> None:
    spillway.scaling_address = "127.0.0.1:1"
    result = spillway("get", "hpa")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "hpa not reachable" in result.stderr
    assert "`spillway config`" in result.stderr


# ── Explain ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def explained(spillway: Any, hpa: str) -> Any:
    spillway("apply", "-f", hpa)
    policy = replace(spillway.scaling.policies["default", "web"], warnings=(), replicas=6, replicas_desired=6)
    spillway.scaling.explained = scaling.ExplainPolicyReply(
        policy=policy,
        decided_ms=1_700_000_000_000,
        asked=9,
        asked_by="cpu",
        metrics=(
            scaling.ExplainedMetric(
                "cpu", "resource", "80%", "120%", 120_000, 80_000, 1500, 9, False, "", "3 of 4 pods"
            ),
            scaling.ExplainedMetric("orders", "kafka", "10", "", 0, 10_000, -1, -1, False, "broker gone", ""),
        ),
        rules=(
            scaling.ExplainedRule("rate", 9, 6, "at most twice as many within 15 s"),
            scaling.ExplainedRule("window", 6, 6, "ScaleDownStabilized"),
        ),
        conditions=(
            scaling.ScaleCondition("ScalingActive", "True", "ValidMetricFound", "all is well"),
            scaling.ScaleCondition("ScalingLimited", "True", "TooManyReplicas", ""),
        ),
        pods=(scaling.PodsInCluster("own-1", 4, 4, 3, True, 90_000, "no answer"),),
        due_ms=1_700_000_015_000,
        due_why="the period of 15 s ends",
        changed_ms=1_699_999_999_000,
        reason="cpu at 120% of 80% asks for 9; the rate lets it have 6",
    )
    return spillway


def test_an_explanation_goes_from_the_number_to_its_reasons(explained: Any) -> None:
    result = explained("explain", "hpa/web")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "HorizontalPodAutoscaler default/web  scales default/web, 1 to 10 replicas"
    assert lines[1].startswith("6 replicas, unchanged since 2023-11-1")
    assert lines[2] == "cpu at 120% of 80% asks for 9; the rate lets it have 6"
    assert lines[4].split() == ["METRIC", "SOURCE", "VALUE", "TARGET", "ASKS", "FOR", "AGE"]
    assert lines[5].split() == ["cpu", "resource", "120%", "80%", "9", "1.5s", "3", "of", "4", "pods"]
    assert lines[6].split() == ["orders", "kafka", "<unknown>", "10", "nothing", "broker", "gone"]
    assert lines[8:11] == [
        "How it was decided: cpu asks for 9",
        "  9 → 6  rate: at most twice as many within 15 s",
        "  6 → 6  window: within the stabilization window metrics asked for more replicas; the largest number counts",
    ]
    assert lines[12].startswith("Without new values the number may change on 2023-11-1")
    assert lines[12].endswith(": the period of 15 s ends")
    assert lines[15].split()[:5] == ["own-1", "4", "4", "3", "90s"]
    assert lines[15].endswith("lost: counted as it was last seen; no answer")
    assert lines[18].split()[:3] == ["ScalingActive", "True", "ValidMetricFound"]
    assert lines[19].endswith("TooManyReplicas   the policy's maximum allows no more replicas")
    assert json.loads(explained("explain", "hpa/web", "-o", "json").stdout)["asked"] == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"replicas": -1}, "there is no workload default/web yet", id="no workload"),
        pytest.param({"replicas": 5}, "6 were decided and are not declared yet", id="on its way"),
        pytest.param({"stale": True}, "the answer may be old", id="from a standby"),
    ],
)
def test_an_explanation_says_what_is_not_so_yet(explained: Any, change: dict[str, Any], words: str) -> None:
    reply = explained.scaling.explained
    explained.scaling.explained = replace(reply, policy=replace(reply.policy, **change))
    assert words in explained("explain", "hpa/web").stdout
