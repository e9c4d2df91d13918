"""A real pod has what its pool pod asked for and nothing of its owner's; what cannot be had is refused by name."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from spillway.lending_marks import COPY_BYTES, COPY_VERSION, POOL, POOL_UID
from vk_bridge.core.pod.conversion import (
    ConfigReference,
    ConversionRefused,
    ConvertedPod,
    PoolSide,
    convert_pod,
    copy_name,
    copy_place,
    copy_places_in_annotations,
    make_copy,
)
from vk_bridge.core.pod.update import mutable_fields_text
from vk_bridge.settings import VkBridgeSettings

SIDE = PoolSide("pool-id", "own-1.n1", "10.0.0.9")
API_ACCESS: dict[str, Any] = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
            {
                "downwardAPI": {
                    "items": [
                        {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}
                    ]
                }
            },
        ],
        "defaultMode": 420,
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "namespace": "shop",
        "name": "encode-1",
        "uid": "uid-1",
        "labels": {"app": "encode", "spillway.io/x": "theirs"},
        "annotations": {
            "note": "kept",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "pool.spillway.io/uid": "somebody else's",
        },
        "ownerReferences": [{"kind": "ReplicaSet", "name": "encode", "uid": "rs"}],
        "finalizers": ["theirs"],
        "resourceVersion": "9",
    },
    "spec": {
        "nodeName": "own-1.n1",
        "nodeSelector": {"type": "virtual-kubelet"},
        "affinity": {"nodeAffinity": {}},
        "schedulerName": "default-scheduler",
        "priority": 1000,
        "priorityClassName": "high",
        "preemptionPolicy": "Never",
        "serviceAccount": "encoder",
        "serviceAccountName": "encoder",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 7,
        "securityContext": {"runAsNonRoot": True},
        "tolerations": [
            {"key": "spillway.io/lent", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 9,
            },
        ],
        "containers": [
            {
                "name": "main",
                "image": "encode:1",
                "resources": {"requests": {"cpu": "1"}},
                "volumeMounts": [
                    {"name": "config", "mountPath": "/c"},
                    {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ],
            }
        ],
        "volumes": [{"name": "config", "emptyDir": {}}, API_ACCESS],
    },
}


def pool_pod_with_spec(**spec: Any) -> dict[str, Any]:
    made = deepcopy(POD)
    made["spec"].update(spec)
    return made


def pool_pod_with_container(**fields: Any) -> dict[str, Any]:
    made = deepcopy(POD)
    made["spec"]["containers"][0].update(fields)
    return made


def pool_pod_with_volume(**volume: Any) -> dict[str, Any]:
    return pool_pod_with_spec(volumes=[{"name": "v", **volume}])


def convert_lendable_pod(manifest: dict[str, Any], side: PoolSide = SIDE) -> ConvertedPod:
    found = convert_pod(manifest, "n1", side)
    assert isinstance(found, ConvertedPod), found
    return found


def pool_pod_with_variable(**source: Any) -> dict[str, Any]:
    return pool_pod_with_container(env=[{"name": "V", "valueFrom": source}])


OBEYED = (
    "iam.amazonaws.com/role",
    "vault.hashicorp.com/agent-inject",
    "k8s.v1.cni.cncf.io/networks",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "sidecar.istio.io/inject",
    "kubectl.kubernetes.io/default-container",
    "spillway.io/pool",
    "kubernetes.io/",
)


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_what_an_owners_machinery_may_obey_does_not_reach_it(kind: str) -> None:
    manifest, users = deepcopy(POD), {"note": "x", "app.kubernetes.io/name": "encode"}
    manifest["metadata"][kind] = {**users, **dict.fromkeys(OBEYED, "from-the-pool")}
    made = convert_lendable_pod(manifest).pod["metadata"][kind]
    assert users.items() <= made.items()
    assert "from-the-pool" not in made.values()
    named = replace(SIDE, carried=("karpenter.sh/",))
    made = convert_lendable_pod(manifest, named).pod["metadata"][kind]
    assert (made["karpenter.sh/do-not-disrupt"], made["note"]) == ("from-the-pool", "x")
    assert "app.kubernetes.io/name" not in made


def test_a_container_is_told_of_a_label_and_an_annotation_that_stay_in_the_pool() -> None:
    paths = ("metadata.labels['a.b/c']", "metadata.annotations['a.b/c']", "metadata.annotations['a.b/none']")
    manifest = pool_pod_with_container(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}} for path in paths]
    )
    manifest["metadata"]["labels"]["a.b/c"] = "label"
    manifest["metadata"]["annotations"]["a.b/c"] = "annotation"
    made = convert_lendable_pod(manifest).pod
    found = [one["valueFrom"]["fieldRef"]["fieldPath"] for one in made["spec"]["containers"][0]["env"]]
    keys = [path.removeprefix("metadata.annotations['").removesuffix("']") for path in found]
    assert [made["metadata"]["annotations"][key] for key in keys] == ["label", "annotation", ""]
    assert all(key.startswith("pool.spillway.io/field-") for key in keys)


@pytest.mark.parametrize(("size", "fits"), [(130_000, True), (140_000, False)])
def test_annotations_that_would_be_too_large_with_what_is_told_of_them_are_refused(size: int, fits: bool) -> None:
    """An API server takes 256 KiB of each object's."""
    reference = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    manifest = pool_pod_with_spec(volumes=[{"name": "v", "downwardAPI": {"items": [{"path": "a", **reference}]}}])
    manifest["metadata"]["annotations"]["note"] = "é" * (size // 2)
    found = convert_pod(manifest, "n1", SIDE)
    assert isinstance(found, ConvertedPod) is fits
    if isinstance(found, ConversionRefused):
        (reason,) = found.reasons
        assert reason.startswith("annotations: 280")
        assert reason.endswith("with what the downward API is to tell of the pool's pod; at most 262144 are possible")


def test_what_a_real_pod_is() -> None:
    made = convert_lendable_pod(POD).pod
    metadata = made["metadata"]
    assert metadata["namespace"] == "spillway-lent-shop"
    assert metadata["name"].startswith("encode-1-")
    assert metadata["labels"] == {"app": "encode", POOL: "pool-id", POOL_UID: "uid-1"}
    assert metadata["annotations"] == {
        "note": "kept",
        "spillway.io/pool-pod": "shop/encode-1",
        "spillway.io/given": mutable_fields_text(POD, SIDE.carried),
    }
    assert metadata.keys() == {"namespace", "name", "labels", "annotations"}
    assert made["spec"] == {
        "hostname": "encode-1",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 7,
        "securityContext": {"runAsNonRoot": True},
        "containers": [
            {
                "name": "main",
                "image": "encode:1",
                "resources": {"requests": {"cpu": "1"}},
                "volumeMounts": [{"name": "config", "mountPath": "/c"}],
            }
        ],
        "volumes": [{"name": "config", "emptyDir": {}}],
        "nodeName": "n1",
        "nodeSelector": {"spillway.io/lending": "lent"},
        "tolerations": [
            {"key": "spillway.io/lending", "operator": "Exists", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 9,
            },
        ],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("web-0", {}, "web-0"),
        ("web-0", {"hostname": "mine"}, "mine"),
        ("a" * 62 + "-b", {}, "a" * 62),
        ("a.b", {}, None),
        ("a" * 63 + ".b", {}, "a" * 63),
    ],
)
def test_a_host_is_called_as_a_kubelet_of_the_pool_would_call_it(
    name: str, asked: dict[str, Any], expected: str | None
) -> None:
    """Not as the real pod, whose name bears a hash; but a name with a dot is none that a pod may ask for."""
    manifest = pool_pod_with_spec(**asked)
    manifest["metadata"]["name"] = name
    assert convert_lendable_pod(manifest).pod["spec"].get("hostname") == expected


def test_a_toleration_of_every_effect_is_one_of_no_execute_too() -> None:
    """The owner's kubelet lets in no pod that does not tolerate its node's taint, as the pool's scheduler does."""
    tolerations = [{"key": "gpu", "operator": "Exists"}, {"operator": "Exists"}, {"key": "a", "effect": "NoSchedule"}]
    made = convert_lendable_pod(pool_pod_with_spec(tolerations=tolerations)).pod["spec"]["tolerations"]
    assert made[1:] == [
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]


def test_a_pull_secret_without_a_name_is_passed_over() -> None:
    """An API server lets it in, and a kubelet does not look."""
    made = convert_lendable_pod(pool_pod_with_spec(imagePullSecrets=[{}, {"name": "a"}, {"name": ""}]))
    assert [one.name for one in made.references] == ["a"]
    assert len(made.pod["spec"]["imagePullSecrets"]) == 1


AMOUNTS_THAT_NOBODY_COUNTS = {
    "more than 64 bits in thousandths": pool_pod_with_container(resources={"requests": {"cpu": "10P"}}),
    "more than 64 bits": pool_pod_with_container(resources={"requests": {"example.com/a": "1e30"}}),
    "more than 64 bits together": pool_pod_with_spec(
        initContainers=[
            {"name": name, "restartPolicy": "Always", "resources": {"requests": {"memory": "5Ei"}}} for name in "ab"
        ]
    ),
    "no amount": pool_pod_with_container(resources={"requests": {"cpu": "much"}}),
}


@pytest.mark.parametrize("found", AMOUNTS_THAT_NOBODY_COUNTS.values(), ids=AMOUNTS_THAT_NOBODY_COUNTS)
def test_what_asks_for_more_than_can_be_counted_is_refused(found: dict[str, Any]) -> None:
    made = convert_pod(found, "n1", SIDE)
    assert isinstance(made, ConversionRefused)
    (reason,) = made.reasons
    assert reason.startswith("resources: quantity")


def test_what_refers_to_very_much_is_refused() -> None:
    """Its node may be wanted back while each is asked for."""
    sources = [{"configMapRef": {"name": f"c{number}", "optional": True}} for number in range(101)]
    assert isinstance(convert_pod(pool_pod_with_container(envFrom=sources[:100]), "n1", SIDE), ConvertedPod)
    made = convert_pod(pool_pod_with_container(envFrom=sources), "n1", SIDE)
    assert made == ConversionRefused(("101 ConfigMaps and Secrets: at most 100 are copied",))


def test_it_is_the_same_each_time_and_another_in_another_pool() -> None:
    """A second create meets the first; two pools with equal namespaces and names do not meet."""
    assert convert_lendable_pod(POD) == convert_lendable_pod(deepcopy(POD))
    other = convert_lendable_pod(POD, PoolSide("other-pool", "own-1.n1", "10.0.0.9")).pod
    assert other["metadata"]["name"] != convert_lendable_pod(POD).pod["metadata"]["name"]
    again = deepcopy(POD)
    again["metadata"]["uid"] = "uid-2"
    assert convert_lendable_pod(again).pod["metadata"]["name"] != convert_lendable_pod(POD).pod["metadata"]["name"]


TOKEN_VOLUME = {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "a"}}]}}

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "hostNetwork": (pool_pod_with_spec(hostNetwork=True), "hostNetwork: shares its host's"),
    "hostPID": (pool_pod_with_spec(hostPID=True), "hostPID: shares its host's"),
    "hostIPC": (pool_pod_with_spec(hostIPC=True), "hostIPC: shares its host's"),
    "token asked for": (pool_pod_with_spec(automountServiceAccountToken=True), "asks for a token of the pool's API"),
    "token in a volume": (
        pool_pod_with_volume(**TOKEN_VOLUME),
        "volume v: a token for the pool's API",
    ),
    "token of one's own in the usual place": (
        pool_pod_with_spec(volumes=[{"name": "mine", **TOKEN_VOLUME}]),
        "volume mine: a token for the pool's API",
    ),
    "runtime class": (pool_pod_with_spec(runtimeClassName="gvisor"), "runtimeClassName: is not carried over"),
    "readiness gates": (
        pool_pod_with_spec(readinessGates=[{"conditionType": "x"}]),
        "readinessGates: is not carried over",
    ),
    "resource claims": (pool_pod_with_spec(resourceClaims=[{"name": "gpu"}]), "resourceClaims: is not carried over"),
    "what nobody has heard of": (pool_pod_with_spec(somethingNew={"a": 1}), "somethingNew: is not carried over"),
    "hostProcess of all": (
        pool_pod_with_spec(securityContext={"windowsOptions": {"hostProcess": True}}),
        "securityContext: hostProcess",
    ),
    "hostPort": (
        pool_pod_with_container(ports=[{"containerPort": 80, "hostPort": 80}]),
        "containers main: hostPort 80",
    ),
    "privileged": (pool_pod_with_container(securityContext={"privileged": True}), "containers main: privileged"),
    "capabilities": (
        pool_pod_with_container(securityContext={"capabilities": {"add": ["NET_ADMIN", "SYS_TIME"]}}),
        "containers main: adds capabilities NET_ADMIN, SYS_TIME",
    ),
    "procMount": (pool_pod_with_container(securityContext={"procMount": "Unmasked"}), "procMount Unmasked"),
    "no seccomp": (
        pool_pod_with_container(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "spec.containers[0].securityContext.seccompProfile.type: 'Unconfined': expected RuntimeDefault or Localhost",
    ),
    "no AppArmor": (
        pool_pod_with_container(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
        "appArmorProfile.type: 'Unconfined'",
    ),
    "another type of SELinux": (
        pool_pod_with_spec(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
        "spec.securityContext.seLinuxOptions.type: 'spc_t'",
    ),
    "a sysctl of its host": (
        pool_pod_with_spec(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}),
        "spec.securityContext.sysctls[0]: 'kernel.msgmax'",
    ),
    "hostProcess": (pool_pod_with_container(securityContext={"windowsOptions": {"hostProcess": True}}), "hostProcess"),
    "an identity that the owner keeps by name": (
        pool_pod_with_spec(securityContext={"windowsOptions": {"gmsaCredentialSpecName": "billing"}}),
        "securityContext.windowsOptions.gmsaCredentialSpecName: is not carried over",
    ),
    "devices": (pool_pod_with_container(volumeDevices=[{"name": "d"}]), "volumeDevices is not carried over"),
    "a container's new field": (
        pool_pod_with_container(somethingNew=1),
        "containers main: somethingNew is not carried over",
    ),
    "claims": (pool_pod_with_container(resources={"claims": [{"name": "gpu"}]}), "resource claims"),
    "env from a file": (
        pool_pod_with_container(env=[{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k"}}}]),
        "containers main: env[0].valueFrom.fileKeyRef is not carried over",
    ),
    "a probe of any host": (
        pool_pod_with_container(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "containers main: livenessProbe.httpGet.host: the owner's kubelet would ask that host",
    ),
    "a socket of any host": (
        pool_pod_with_container(readinessProbe={"tcpSocket": {"host": "127.0.0.1", "port": 10250}}),
        "readinessProbe.tcpSocket.host: the owner's kubelet would ask that host",
    ),
    "a hook to any host": (
        pool_pod_with_container(lifecycle={"postStart": {"httpGet": {"host": "127.0.0.1", "port": 10255}}}),
        "lifecycle.postStart.httpGet.host: the owner's kubelet would ask that host",
    ),
    "a source's new field": (
        pool_pod_with_container(envFrom=[{"prefix": "P_"}, {"newRef": {"name": "x"}}]),
        "containers main: envFrom[1].newRef is not carried over",
    ),
    "a hook's new field": (pool_pod_with_container(lifecycle={"preStop": {"new": {}}}), "lifecycle.preStop.new is not"),
    "a probe's new field": (pool_pod_with_container(startupProbe={"new": 1}), "startupProbe.new is not carried over"),
    "a container's new security": (
        pool_pod_with_container(securityContext={"new": True}),
        "securityContext.new is not",
    ),
    "a pod's new security": (
        pool_pod_with_spec(securityContext={"new": True}),
        "securityContext.new: is not carried over",
    ),
    "a volume's new field": (pool_pod_with_volume(emptyDir={"new": 1}), "volume v: emptyDir.new is not carried over"),
    "token called as what is left out": (
        pool_pod_with_spec(volumes=[{"name": "kube-api-access-mine", **TOKEN_VOLUME}]),
        "volume kube-api-access-mine: a token for the pool's API",
    ),
    "hostPath": (pool_pod_with_volume(hostPath={"path": "/"}), "volume v: hostPath is not carried over"),
    "volume claim": (
        pool_pod_with_volume(persistentVolumeClaim={"claimName": "c"}),
        "persistentVolumeClaim is not carried over",
    ),
    **{
        f"{name} as the name of {what}": (made, f"{kind} {name!r}: no object can have this name")
        for name in ("..", ".", "a/b", "A")
        for what, kind, made in (
            ("a secret volume", "Secret", pool_pod_with_volume(secret={"secretName": name})),
            ("a config volume", "ConfigMap", pool_pod_with_volume(configMap={"name": name})),
            ("a pull secret", "Secret", pool_pod_with_spec(imagePullSecrets=[{"name": name}])),
            (
                "a projected source",
                "ConfigMap",
                pool_pod_with_volume(projected={"sources": [{"configMap": {"name": name}}]}),
            ),
            (
                "an environment",
                "Secret",
                pool_pod_with_container(envFrom=[{"secretRef": {"name": name, "optional": True}}]),
            ),
            ("a variable", "ConfigMap", pool_pod_with_variable(configMapKeyRef={"name": name, "key": "k"})),
        )
    },
    "a source without a name": (
        pool_pod_with_volume(configMap={"optional": True}),
        "ConfigMap '': no object can have this name",
    ),
    "a number as a name": (
        pool_pod_with_spec(imagePullSecrets=[{"name": 5}]),
        "Secret '5': no object can have this name",
    ),
    "a number as DNS": (pool_pod_with_spec(dnsConfig=5), "dnsConfig: is no object"),
    "a number as environment": (pool_pod_with_container(env=5), "containers[0].env: is no object"),
    "a number as a variable": (pool_pod_with_container(env=[5]), "containers[0].env[0]: is no object"),
    "a number as volumes": (pool_pod_with_spec(volumes=5), "volumes: is no object"),
    "a text as a volume": (pool_pod_with_spec(volumes=["v"]), "volumes[0]: is no object"),
    "a number as a toleration": (pool_pod_with_spec(tolerations=[5]), "tolerations[0]: is no object"),
    "a number as security": (pool_pod_with_spec(securityContext=5), "securityContext: is no object"),
    "a number as a container": (pool_pod_with_spec(initContainers=[5]), "initContainers[0]: is no object"),
    "a number as a source": (
        pool_pod_with_volume(projected={"sources": [5]}),
        "volumes[0].projected.sources[0]: is no object",
    ),
    "ephemeral": (pool_pod_with_volume(ephemeral={}), "volume v: ephemeral is not carried over"),
    "csi": (pool_pod_with_volume(csi={"driver": "d"}), "volume v: csi is not carried over"),
    "trust bundle": (pool_pod_with_volume(projected={"sources": [{"clusterTrustBundle": {}}]}), "clusterTrustBundle"),
    "init container": (
        pool_pod_with_spec(initContainers=[{"name": "i", "image": "i", "securityContext": {"privileged": True}}]),
        "initContainers i: privileged",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_refused_says_why(what: str) -> None:
    manifest, says = REFUSALS[what]
    found = convert_pod(manifest, "n1", SIDE)
    assert isinstance(found, ConversionRefused)
    (reason,) = found.reasons
    assert says in reason


@pytest.mark.parametrize(
    ("wanted", "has", "reasons"),
    [
        pytest.param("windows", "linux", ("os: windows: expected linux, which its node has",), id="another"),
        pytest.param("linux", "linux", (), id="the node's"),
        pytest.param("", "linux", (), id="any"),
        pytest.param("windows", "", (), id="nobody knows the node's"),
    ],
)
def test_a_pod_for_another_operating_system_is_refused(wanted: str, has: str, reasons: tuple[str, ...]) -> None:
    """A kubelet would reject it (PodOSNotSupported), and its controller would make the next one at once."""
    manifest = pool_pod_with_spec(**({"os": {"name": wanted}} if wanted else {}))
    found = convert_pod(manifest, "n1", replace(SIDE, operating_system=has))
    assert (found.reasons if isinstance(found, ConversionRefused) else ()) == reasons


def test_all_reasons_are_said_at_once() -> None:
    both = pool_pod_with_spec(hostNetwork=True, volumes=[{"name": "v", "hostPath": {"path": "/"}}])
    found = convert_pod(both, "n1", SIDE)
    assert isinstance(found, ConversionRefused)
    assert len(found.reasons) == 2


REFERRING = pool_pod_with_spec(
    imagePullSecrets=[{"name": "registry"}],
    initContainers=[{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": "all", "optional": True}}]}],
    containers=[
        {
            "name": "main",
            "image": "encode:1",
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
                {"name": "TWO", "valueFrom": {"secretKeyRef": {"name": "all", "key": "k"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
        }
    ],
    volumes=[
        {"name": "c", "configMap": {"name": "settings", "defaultMode": 420}},
        {"name": "s", "secret": {"secretName": "volume", "optional": True}},
        {
            "name": "p",
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"configMap": {"name": "settings", "items": [{"key": "k", "path": "k"}]}},
                    {"secret": {"name": "projected"}},
                ],
            },
        },
    ],
)


def config_names_in_manifest(value: Any) -> set[str]:
    """Every name by which a manifest could reach for a ConfigMap or Secret."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("configMapKeyRef", "secretKeyRef", "configMapRef", "secretRef", "configMap", "secret"):
                found.add(inner.get("name") or inner.get("secretName"))
            found |= (
                {entry["name"] for entry in inner} if key == "imagePullSecrets" else config_names_in_manifest(inner)
            )
    elif isinstance(value, list):
        for inner in value:
            found |= config_names_in_manifest(inner)
    return found


def test_a_pool_pod_names_copies_alone() -> None:
    """So that it cannot name an owner's Secret, whatever it is called."""
    made = convert_lendable_pod(REFERRING)
    wanted = {
        ConfigReference("ConfigMap", "shop", "settings", False),
        ConfigReference("Secret", "shop", "all", False),
        ConfigReference("Secret", "shop", "projected", False),
        ConfigReference("Secret", "shop", "registry", True),
        ConfigReference("Secret", "shop", "volume", True),
    }
    assert set(made.references) == wanted
    assert config_names_in_manifest(REFERRING["spec"]) == {reference.name for reference in wanted}
    assert config_names_in_manifest(made.pod["spec"]) == {copy_name(reference, SIDE.pool_id) for reference in wanted}
    used = copy_places_in_annotations("pool-id", made.pod["metadata"]["annotations"])
    assert used == {copy_place(reference, "pool-id") for reference in wanted}
    first = made.pod["spec"]["containers"][0]
    assert first["env"][0] == {"name": "PLAIN", "value": "x"}
    assert first["env"][3] == REFERRING["spec"]["containers"][0]["env"][3]
    assert first["envFrom"][0]["prefix"] == "P_"
    assert made.pod["spec"]["volumes"][0]["configMap"]["defaultMode"] == 420


def test_a_copy_has_the_name_that_its_pods_use_and_only_the_content() -> None:
    metadata = {"namespace": "shop", "name": "all", "uid": "u", "resourceVersion": "7"}
    secret = {
        "metadata": {**metadata, "labels": {"x": "y"}, "annotations": {"a": "b"}},
        "type": "Opaque",
        "data": {"k": "eA=="},
        "immutable": True,
    }
    assert make_copy(secret, "Secret", SIDE) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "spillway-lent-shop",
            "name": copy_name(ConfigReference("Secret", "shop", "all", False), SIDE.pool_id),
            "labels": {POOL: "pool-id"},
            "annotations": {COPY_VERSION: "u/7", COPY_BYTES: str(len('{"data":{"k":"eA=="}}'))},
        },
        "data": {"k": "eA=="},
        "type": "Opaque",
        "immutable": True,
    }
    token = {**secret, "type": "kubernetes.io/service-account-token"}
    assert make_copy(token, "Secret", SIDE) == ConversionRefused(
        ("Secret all: it has a token for the pool's API, which is not copied",)
    )


def test_what_a_container_is_told_of_itself_is_what_the_pool_says() -> None:
    told = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "metadata.labels['app']",
        "status.podIP",
    ]
    downward = {
        "items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
        ]
    }
    made = convert_lendable_pod(
        pool_pod_with_spec(
            containers=[
                {
                    "name": "main",
                    "image": "i",
                    "env": [
                        {"name": f"V{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in enumerate(told)
                    ],
                }
            ],
            volumes=[
                {"name": "d", "downwardAPI": downward},
                {"name": "p", "projected": {"sources": [{"downwardAPI": downward}]}},
            ],
        )
    ).pod
    paths = [entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in made["spec"]["containers"][0]["env"]]
    annotations = made["metadata"]["annotations"]
    values = [annotations.get(path.removeprefix("metadata.annotations['").removesuffix("']"), path) for path in paths]
    assert values == ["encode-1", "shop", "uid-1", "own-1.n1", "encoder", "metadata.labels['app']", "status.podIP"]
    direct, projected = made["spec"]["volumes"]
    assert direct["downwardAPI"] == projected["projected"]["sources"][0]["downwardAPI"]
    assert (
        direct["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.annotations['pool.spillway.io/labels']"
    )
    assert direct["downwardAPI"]["items"][1] == downward["items"][1]
    assert annotations["pool.spillway.io/labels"] == 'app="encode"\nspillway.io/x="theirs"'


@pytest.mark.parametrize(
    ("value", "told"), [('say "x"', '"say \\"x\\""'), ("a\nb\t\\", '"a\\nb\\t\\\\"'), ("é\x01", '"é\\x01"')]
)
def test_annotations_are_told_as_a_kubelet_writes_them(value: str, told: str) -> None:
    manifest = pool_pod_with_spec(
        containers=[
            {
                "name": "m",
                "image": "i",
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations"}}}],
            }
        ]
    )
    manifest["metadata"]["annotations"] = {"note": value}
    made = convert_lendable_pod(manifest).pod
    assert made["metadata"]["annotations"]["pool.spillway.io/annotations"] == f"note={told}"


def test_nothing_of_the_pool_pod_is_changed() -> None:
    before = deepcopy(REFERRING)
    convert_lendable_pod(REFERRING)
    assert before == REFERRING


@pytest.mark.parametrize("prefix", ["prometheus.io", "a/b/", "spillway.io/", "pool.spillway.io/", "/x"])
def test_what_is_no_prefix_to_carry_over_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=rf"carried_prefixes: '{prefix}': expected the prefix of a key"):
        VkBridgeSettings(carried_prefixes=("prometheus.io/", prefix))
