"""Limits the sizes of lists in a pod template, and in ConfigMaps and Services that go along with it.

In a template: containers, commands, variables, volumes, references, names of resources. Beside it: keys of a ConfigMap,
ports of a Service. The limits hold for requests only; records in a log are read without them. A template is read in one
step, and again at each decision. Clusters are asked for each object that it refers to, and each resource is a column
for all shapes. Lists are counted before single entries are looked at.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from planner.core.manifests.terms import check_length, label_texts
from spillway.api import invalid_argument_error
from spillway.kubernetes.label_text import KEY_LENGTH_MAX
from spillway.kubernetes.objects import is_object_name
from spillway.kubernetes.term_bounds import LABELS_MAX, RESOURCES_MAX

OF_POD: Final = {
    "containers": 200,
    "initContainers": 200,
    "ephemeralContainers": 200,
    "volumes": 500,
    "resourceClaims": 200,
    "schedulingGates": 200,
    "readinessGates": 200,
    "imagePullSecrets": 200,
    "hostAliases": 1_000,
}
"""The most entries of each list of a pod."""
OF_CONTAINER: Final = {"volumeMounts": 500, "volumeDevices": 500, "resizePolicy": 100}
"""The most entries of each list of each container."""
OF_ALL_CONTAINERS: Final = {("env", "envFrom"): 1_000, ("ports",): 1_000}
"""The most entries of these lists of all containers together."""
WORDS_MAX: Final = 10_000
"""The most words of all commands and arguments together, with those of probes and hooks. Generated commands (a flag for
each shard) have hundreds of words.
"""
HEADERS_MAX: Final = 1_000
"""The most headers of all HTTP requests of probes and hooks together."""
OF_DNS: Final = {"nameservers": 100, "options": 100, "searches": 100}
"""The most entries of each list of a pod's DNS. Kubernetes allows 3 name servers and 32 searches."""
OF_SECURITY: Final = {"supplementalGroups": 1_000, "sysctls": 1_000}
"""The most entries of each list of a pod's security context."""
CONFIG_MAP_KEYS_MAX: Final = 10_000
"""The most text keys of one ConfigMap, and the most binary keys. Each becomes a file in each pod that mounts it."""
SERVICE_PORTS_MAX: Final = 1_000
ANNOTATIONS_MAX: Final = 1_000
"""The most annotations of a template, and of an object that goes along."""
SOURCES_MAX: Final = 1_000
"""The most sources of all projected volumes together."""
CLAIM_TEMPLATES_MAX: Final = 500
REFERENCES_MAX: Final = 200
"""The most objects that a template refers to, optional ones included."""
NAME_LENGTH_MAX: Final = 253
NAMES: Final = ("nodeName", "priorityClassName", "runtimeClassName", "schedulerName", "serviceAccountName")

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def check_sizes(spec: Mapping[str, Any], kind: str) -> None:
    """Raises RequestError (INVALID_ARGUMENT) for the first limit that a workload exceeds. It names field and limit.

    spec: the workload's spec, whose template must have a spec. Values of a wrong type are refused by other checks.
    """
    where, template = f"{kind}.spec.template", spec["template"]
    pod = template["spec"]
    _check_count(spec, "volumeClaimTemplates", CLAIM_TEMPLATES_MAX, f"{kind}.spec")
    _check_labels(spec, kind)
    for field, most in OF_POD.items():
        _check_count(pod, field, most, f"{where}.spec")
    _check_containers(pod, f"{where}.spec")
    sources = sum(
        len(_list_or_empty(_object_or_empty(volume.get("projected")), "sources"))
        for volume in _object_entries(pod, "volumes")
    )
    if sources > SOURCES_MAX:
        raise invalid_argument_error(
            f"{where}.spec.volumes.projected.sources", f"{sources} entries", f"at most {SOURCES_MAX}"
        )
    for field in NAMES:
        if isinstance(pod.get(field), str):
            check_length(pod[field], f"{where}.spec.{field}", NAME_LENGTH_MAX)
    for holder, bounds in (("dnsConfig", OF_DNS), ("securityContext", OF_SECURITY)):
        for field, most in bounds.items():
            _check_count(_object_or_empty(pod.get(holder)), field, most, f"{where}.spec.{holder}")
    _check_keys(_object_or_empty(template.get("metadata")), "annotations", ANNOTATIONS_MAX, f"{where}.metadata")
    _check_resources(pod, f"{where}.spec")
    _check_references(pod, f"{where}.spec")


def check_dependency_sizes(manifest: Mapping[str, Any]) -> None:
    """Raises RequestError (INVALID_ARGUMENT) if a ConfigMap or Service that goes along is larger than allowed."""
    kind = manifest["kind"]
    _check_keys(_object_or_empty(manifest.get("metadata")), "annotations", ANNOTATIONS_MAX, f"{kind}.metadata")
    for field in ("data", "binaryData"):
        _check_keys(manifest, field, CONFIG_MAP_KEYS_MAX, kind)
    _check_count(_object_or_empty(manifest.get("spec")), "ports", SERVICE_PORTS_MAX, f"{kind}.spec")


def _check_labels(spec: Mapping[str, Any], kind: str) -> None:
    selector, metadata = _object_or_empty(spec.get("selector")), _object_or_empty(spec["template"].get("metadata"))
    _check_count(selector, "matchExpressions", LABELS_MAX, f"{kind}.spec.selector")
    for labels, field in (
        (_object_or_empty(metadata.get("labels")), f"{kind}.spec.template.metadata.labels"),
        (_object_or_empty(selector.get("matchLabels")), f"{kind}.spec.selector.matchLabels"),
    ):
        if len(labels) > LABELS_MAX:
            raise invalid_argument_error(field, f"{len(labels)} entries", f"at most {LABELS_MAX}")
        for at, text, most in label_texts(labels, field):
            if isinstance(text, str):
                check_length(text, at, most)


def _check_containers(pod: Mapping[str, Any], where: str) -> None:
    """Raises RequestError for the first limit that is exceeded: entries of one container, entries of all containers
    together, words and headers of all, then texts of ports. Counts come first, as single entries cost time."""
    for kind in CONTAINERS:
        for index, container in enumerate(_list_or_empty(pod, kind)):
            for field, most in OF_CONTAINER.items():
                _check_count(_object_or_empty(container), field, most, f"{where}.{kind}[{index}]")
    for fields, most in OF_ALL_CONTAINERS.items():
        count = sum(len(_list_or_empty(container, field)) for container in _containers_of_pod(pod) for field in fields)
        if count > most:
            named = f"{where}.containers.{' and '.join(fields)}"
            raise invalid_argument_error(named, f"{count} entries in all containers", f"at most {most}")
    for what, of_one, most in (
        ("command and args", _command_word_count, WORDS_MAX),
        ("httpHeaders", _header_count, HEADERS_MAX),
    ):
        count = sum(map(of_one, _containers_of_pod(pod)))
        if count > most:
            raise invalid_argument_error(
                f"{where}.containers.{what}", f"{count} entries in all containers", f"at most {most}"
            )
    for container in _containers_of_pod(pod):
        for port in _object_entries(container, "ports"):
            for field in ("hostIP", "protocol"):
                if isinstance(port.get(field), str):
                    check_length(port[field], f"{where}.containers.ports.{field}", NAME_LENGTH_MAX)


def _command_word_count(container: Mapping[str, Any]) -> int:
    execs = (_object_or_empty(handler.get("exec")) for handler in _probe_and_hook_handlers(container))
    return sum(len(_list_or_empty(holder, field)) for holder in (container, *execs) for field in ("command", "args"))


def _header_count(container: Mapping[str, Any]) -> int:
    return sum(
        len(_list_or_empty(_object_or_empty(handler.get("httpGet")), "httpHeaders"))
        for handler in _probe_and_hook_handlers(container)
    )


def _probe_and_hook_handlers(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the handlers of a container's probes and hooks."""
    hooks = _object_or_empty(container.get("lifecycle"))
    yield from (_object_or_empty(container.get(probe)) for probe in ("livenessProbe", "readinessProbe", "startupProbe"))
    yield from (_object_or_empty(hooks.get(hook)) for hook in ("postStart", "preStop"))


def _check_resources(pod: Mapping[str, Any], where: str) -> None:
    owners = [pod, *_containers_of_pod(pod)]
    named = [
        _object_or_empty(_object_or_empty(owner.get("resources")).get(field))
        for owner in owners
        for field in ("requests", "limits")
    ]
    names = {name for name in chain(*named, _object_or_empty(pod.get("overhead"))) if isinstance(name, str)}
    if len(names) > RESOURCES_MAX:
        raise invalid_argument_error(
            f"{where}.containers.resources", f"{len(names)} names of resources", f"at most {RESOURCES_MAX}"
        )
    for name in sorted(names):
        check_length(name, f"{where}.containers.resources", KEY_LENGTH_MAX)


def _check_references(pod: Mapping[str, Any], where: str) -> None:
    found = set(_referenced_objects(pod))
    if len(found) > REFERENCES_MAX:
        what = f"{len(found)} ConfigMaps, Secrets, claims, accounts and classes"
        raise invalid_argument_error(where, what, f"at most {REFERENCES_MAX}")
    for kind, name in sorted(found):
        field = f"{where}: the name of a {kind}"
        check_length(name, field, NAME_LENGTH_MAX)
        if not is_object_name(name):
            raise invalid_argument_error(field, name, "a valid object name: lower-case letters, digits, '-' and '.'")


def _referenced_objects(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (kind, name) of objects that the propagator asks clusters for (its core/manifests), and optional ones."""
    for container in _containers_of_pod(pod):
        for source in _object_entries(container, "envFrom"):
            yield from _named_reference("ConfigMap", source.get("configMapRef"))
            yield from _named_reference("Secret", source.get("secretRef"))
        for variable in _object_entries(container, "env"):
            source = _object_or_empty(variable.get("valueFrom"))
            yield from _named_reference("ConfigMap", source.get("configMapKeyRef"))
            yield from _named_reference("Secret", source.get("secretKeyRef"))
    for volume in _object_entries(pod, "volumes"):
        yield from _named_reference("PersistentVolumeClaim", volume.get("persistentVolumeClaim"), "claimName")
        yield from _named_reference("Secret", volume.get("secret"), "secretName")
        for source in (volume, *_object_entries(_object_or_empty(volume.get("projected")), "sources")):
            yield from _named_reference("ConfigMap", source.get("configMap"))
            yield from _named_reference("Secret", source.get("secret"))
    yield from _named_reference("ServiceAccount", pod, "serviceAccountName")
    yield from _named_reference("PriorityClass", pod, "priorityClassName")
    yield from _named_reference("RuntimeClass", pod, "runtimeClassName")


def _named_reference(kind: str, selector: object, field: str = "name") -> Iterator[tuple[str, str]]:
    name = _object_or_empty(selector).get(field)
    if isinstance(name, str) and name:
        yield kind, name


def _check_count(holder: Mapping[str, Any], field: str, most: int, where: str) -> None:
    count = len(_list_or_empty(holder, field))
    if count > most:
        raise invalid_argument_error(f"{where}.{field}", f"{count} entries", f"at most {most}")


def _check_keys(holder: Mapping[str, Any], field: str, most: int, where: str) -> None:
    count = len(_object_or_empty(holder.get(field)))
    if count > most:
        raise invalid_argument_error(f"{where}.{field}", f"{count} entries", f"at most {most}")


def _containers_of_pod(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return chain.from_iterable(_object_entries(pod, kind) for kind in CONTAINERS)


def _object_entries(holder: Mapping[str, Any], field: str) -> Iterable[Mapping[str, Any]]:
    return (entry for entry in _list_or_empty(holder, field) if isinstance(entry, dict))


def _list_or_empty(holder: Mapping[str, Any], field: str) -> list[Any]:
    value = holder.get(field)
    return value if isinstance(value, list) else []


def _object_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
