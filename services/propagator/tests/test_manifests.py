"""What goes into a cluster, made of the user's own manifests."""

import json
from dataclasses import replace
from typing import Any

import pytest

from propagator.core.live import DependencyReference, parse_version_annotation
from propagator.core.manifests import (
    BadManifest,
    dependency_manifest,
    manifest_digest,
    template_references,
    template_with_digest,
    workload_label,
    workload_manifest,
)
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.model import NO_GENERATION, Generation, Part, Policy

DECLARED = WorkloadDeclared("shop", "web", "Deployment", 3, 1, b"", 4, Policy((), (), "Wait"), (), (), (), False)
PART = Part("own-1", Generation(5, 2), 4, 0, 4, False)


def workload_declared(manifest: Any) -> WorkloadDeclared:
    return replace(DECLARED, manifest=json.dumps(manifest).encode())


def test_the_users_metadata_stays_and_the_servers_goes() -> None:
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "elsewhere",
            "labels": {"team": "a", "spillway.io/fleet": "forged"},
            "annotations": {"note": "n"},
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": [],
            "ownerReferences": [{}],
            "finalizers": ["f"],
        },
        "spec": {"paused": True},
        "status": {"replicas": 9},
    }
    made = workload_manifest(workload_declared(manifest), PART, "f1")
    assert made == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"team": "a", "spillway.io/fleet": "f1", "spillway.io/workload": "web"},
            "annotations": {
                "note": "n",
                "spillway.io/placement": "5.2",
                "spillway.io/manifest": manifest_digest(workload_declared(manifest), PART),
            },
            "finalizers": ["f"],
        },
        "spec": {"paused": True, "replicas": 4},
    }


def test_one_cluster_changes_nothing_in_another() -> None:
    workload = workload_declared({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {}})
    first = workload_manifest(workload, PART, "f1")
    first["spec"]["replicas"] = 99
    assert workload_manifest(workload, PART, "f1")["spec"] == {"replicas": 4}


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"kind": "Job"}', id="another kind"),
        pytest.param(b'{"kind": "Deployment"}', id="no spec"),
        pytest.param(b'{"kind": "Deployment", "spec": []}', id="spec is a list"),
    ],
)
def test_what_cannot_be_carried_out_is_named(manifest: bytes) -> None:
    with pytest.raises(BadManifest, match="Deployment web"):
        workload_manifest(replace(DECLARED, manifest=manifest), PART, "f1")


def test_a_service_keeps_no_address_of_another_cluster() -> None:
    def written_service_spec(**spec: Any) -> dict[str, Any]:
        manifest = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [], **spec}}
        one = DependencyDeclared("Service", "shop", "web", "shop/web", 3, json.dumps(manifest).encode())
        spec_made: dict[str, Any] = dependency_manifest(one, "f1")["spec"]
        return spec_made

    assert written_service_spec(clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"]) == {"ports": []}
    assert written_service_spec(clusterIP="None", clusterIPs=["None"]) == {
        "ports": [],
        "clusterIP": "None",
        "clusterIPs": ["None"],
    }


def test_a_dependency_bears_its_workloads_label_and_its_declaration() -> None:
    one = DependencyDeclared("ConfigMap", "shop", "c", "shop/web", 3, b'{"kind": "ConfigMap", "data": {"a": "b"}}')
    made = dependency_manifest(one, "f1")
    assert made["metadata"]["labels"] == {"spillway.io/fleet": "f1", "spillway.io/workload": "web"}
    assert made["metadata"]["annotations"]["spillway.io/declaration"].startswith("3.")
    assert made["data"] == {"a": "b"}


def test_long_names_make_labels_that_differ() -> None:
    assert workload_label("web") == "web"
    assert workload_label("x" * 63) == "x" * 63
    long, other = workload_label("x" * 64), workload_label("x" * 65)
    assert len(long) == len(other) == 63
    assert long != other


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5.2", Generation(5, 2)),
        ("0.0", Generation(0, 0)),
        ("", NO_GENERATION),
        ("5", NO_GENERATION),
        ("5.", NO_GENERATION),
        ("-1.2", NO_GENERATION),
        ("5.2.1", NO_GENERATION),
        ("٥.٢", NO_GENERATION),
        ("99999999999999999999.1", Generation(10**18 - 1, 1)),
        (f"1.{'9' * 5000}", Generation(1, 10**18 - 1)),
        (f"{'0' * 5000}7.1", Generation(7, 1)),
    ],
)
def test_versions_that_can_be_read(text: str, version: Generation) -> None:
    assert parse_version_annotation(text) == version


CONFIG, SECRET = DependencyReference("ConfigMap", "n"), DependencyReference("Secret", "n")
TEMPLATES = {
    "envFrom": (
        {"containers": [{"envFrom": [{"configMapRef": {"name": "n"}}, {"secretRef": {"name": "n"}}]}]},
        {CONFIG, SECRET},
    ),
    "env": (
        {
            "containers": [
                {
                    "env": [
                        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k"}}},
                        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "D", "value": "d"},
                    ]
                }
            ]
        },
        {CONFIG, SECRET},
    ),
    "init containers": ({"initContainers": [{"envFrom": [{"secretRef": {"name": "n"}}]}]}, {SECRET}),
    "volumes": (
        {"volumes": [{"configMap": {"name": "n"}}, {"secret": {"secretName": "n"}}, {"emptyDir": {}}]},
        {CONFIG, SECRET},
    ),
    "projected": (
        {"volumes": [{"projected": {"sources": [{"configMap": {"name": "n"}}, {"secret": {"name": "n"}}]}}]},
        {CONFIG, SECRET},
    ),
    "imagePullSecrets, without which images may be there": (
        {"imagePullSecrets": [{"name": "n"}]},
        set(),
    ),
    "claims": (
        {"volumes": [{"persistentVolumeClaim": {"claimName": "n"}}, {"ephemeral": {"volumeClaimTemplate": {}}}]},
        {DependencyReference("PersistentVolumeClaim", "n")},
    ),
    "account and classes": (
        {"serviceAccountName": "n", "priorityClassName": "n", "runtimeClassName": "n"},
        {DependencyReference(kind, "n") for kind in ("ServiceAccount", "PriorityClass", "RuntimeClass")},
    ),
    "the account that every namespace gets": ({"serviceAccountName": "default"}, set()),
    "optional": (
        {
            "containers": [
                {
                    "envFrom": [{"configMapRef": {"name": "n", "optional": True}}],
                    "env": [{"valueFrom": {"secretKeyRef": {"name": "n", "key": "k", "optional": True}}}],
                }
            ],
            "volumes": [
                {"configMap": {"name": "n", "optional": True}},
                {"secret": {"secretName": "n", "optional": True}},
                {"projected": {"sources": [{"secret": {"name": "n", "optional": True}}]}},
            ],
        },
        set(),
    ),
    "not optional": ({"volumes": [{"configMap": {"name": "n", "optional": False}}]}, {CONFIG}),
    "nothing": ({}, set()),
    "of wrong types": ({"containers": {"a": 1}, "volumes": [None, {"configMap": "n"}], "imagePullSecrets": "n"}, set()),
}


@pytest.mark.parametrize(("pod", "expected"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_what_a_template_refers_to(pod: dict[str, Any], expected: set[DependencyReference]) -> None:
    assert template_references({"spec": {"template": {"spec": pod}}}) == expected


def test_of_no_digest_there_is_no_template_whatever_cannot_be_read() -> None:
    """What cannot be read has no digest either."""
    assert template_with_digest("", workload_declared({"kind": "StatefulSet"})) is None
