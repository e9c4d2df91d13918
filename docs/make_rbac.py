"""Makes deploy/rbac: for each role in spillway.clusters.rights, manifests of its account, rights and bindings."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import yaml

from spillway.clusters.rights import ROLES, AccountRole, Rule

NAMESPACE: Final = "spillway"
"""The namespace of the service accounts in a cluster."""
GROUP: Final = "rbac.authorization.k8s.io"
LABELS: Final = {"app.kubernetes.io/name": "spillway", "app.kubernetes.io/part-of": "spillway"}


def page_maker_by_path() -> dict[str, Callable[[], str]]:
    return {
        "deploy/rbac/namespace.yaml": _namespace_page,
        **{f"deploy/rbac/{role.name}.yaml": partial(_role_page, role) for role in ROLES},
    }


def role_manifests(role: AccountRole) -> Iterator[dict[str, Any]]:
    """Yields the service account, a ClusterRole for its rights everywhere, and a Role for its rights in one namespace.

    Each of the two roles comes with its binding.
    """
    yield _bare_manifest("v1", "ServiceAccount", service_account_of(role), NAMESPACE)
    for namespace in sorted({rule.namespace for rule in role.rules}):
        prefix = "" if namespace else "Cluster"
        rules = [_rule_object(rule) for rule in role.rules if rule.namespace == namespace]
        name = f"spillway-{role.name}"
        yield _bare_manifest(f"{GROUP}/v1", f"{prefix}Role", name, namespace) | {"rules": rules}
        reference = {"apiGroup": GROUP, "kind": f"{prefix}Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": service_account_of(role), "namespace": NAMESPACE}
        binding = _bare_manifest(f"{GROUP}/v1", f"{prefix}RoleBinding", name, namespace)
        yield binding | {"roleRef": reference, "subjects": [subject]}


def service_account_of(role: AccountRole) -> str:
    return f"spillway-{role.service}"


def _namespace_page() -> str:
    namespace = _manifest_yaml(_bare_manifest("v1", "Namespace", NAMESPACE))
    return f"# Where the accounts are. Made by make docs.\n{namespace}".rstrip()


def _role_page(role: AccountRole) -> str:
    head = [f"# What {role.service} needs in {role.clusters}. Made by make docs from spillway.clusters.rights."]
    for rule in role.rules:
        what = f"{', '.join(rule.verbs)}: {', '.join(rule.resources)}"
        head.append(f"# - {what}: {rule.why}" + (f". Without: {rule.without}" if rule.without else ""))
    return "\n".join([*head, "---\n".join(map(_manifest_yaml, role_manifests(role)))]).rstrip()


def _bare_manifest(api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **place, "labels": dict(LABELS)}}


def _rule_object(rule: Rule) -> dict[str, Any]:
    return {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}


def _manifest_yaml(manifest: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(manifest, sort_keys=False, default_flow_style=None, width=120)
    return text
