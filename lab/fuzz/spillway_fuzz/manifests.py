"""Fuzzes users' manifests through the readers of Apply and DeclarePolicy, and operators' files."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from hpa.core.manifests.attached import read_attached
from hpa.external_metrics.connections import read_connections
from planner.core.manifests.request import read_manifests
from spillway.api import ApplyRequest, RequestError
from spillway.clusters.credentials import BadCredentials, load_endpoint
from spillway.kubernetes.manifest_text import read_object
from spillway.kubernetes.pod_shape import declared_shape
from spillway.rpc.callers import Caller, parse_callers
from spillway.rpc.namespaces import check_namespaces
from spillway.settings import OperatorError
from spillway_fuzz import samples
from spillway_fuzz.mutation import mutated_bytes, mutated_json
from spillway_fuzz.target import Input, Target, acceptance_check

RESTRICTED: Final = Caller("ci", namespaces=frozenset({"shop"}))


def targets() -> list[Target]:
    folder = TemporaryDirectory()
    return [
        Target(
            "apply's manifests",
            _random_apply_manifests,
            acceptance_check(_read_apply_manifests, RequestError),
            share=25,
        ),
        Target("scale policies", _random_scale_policy, acceptance_check(_read_scale_policy, RequestError), share=50),
        Target(
            "a caller's namespaces",
            _random_apply_manifests,
            acceptance_check(_check_caller_namespaces, RequestError),
            share=15,
        ),
        _file_target("callers file", "callers", folder, _read_callers, OperatorError),
        _file_target("hpa's connections", "connections", folder, _read_connections, OperatorError),
        _file_target("a kubeconfig", "kubeconfig", folder, _read_kubeconfig, BadCredentials),
    ]


# ── Manifests ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _random_apply_manifests(chance: Random) -> Input:
    parts: list[Any] = [chance.choice(samples.WORKLOADS)]
    if chance.random() < 0.6:
        parts.append(chance.choice(samples.POLICIES))
    if chance.random() < 0.2:
        parts.append(next(one for one in samples.OBJECTS if one["kind"] == "ConfigMap"))
    wrong = chance.randrange(len(parts))
    return tuple(_manifest_text(part, chance, index == wrong) for index, part in enumerate(parts))


def _random_scale_policy(chance: Random) -> Input:
    return _manifest_text(chance.choice(samples.SCALERS), chance, True)


def _manifest_text(tree: Any, chance: Random, wrong: bool) -> str:
    """Returns a manifest as JSON or YAML, mutated if `wrong`. Without surrogates, which a gRPC text cannot hold."""
    if not wrong:
        return json.dumps(tree)
    if chance.random() < 0.85:
        text = mutated_json(tree, chance)
    elif chance.random() < 0.8:
        text = mutated_bytes(yaml.safe_dump(tree).encode(), chance).decode(errors="replace")
    else:
        text = costly_yaml(chance)
    return text.encode(errors="replace").decode()


def costly_yaml(chance: Random) -> str:
    """Returns short YAML that costs much to read: lists of aliases of lists, merges of merges, or base-60 numbers."""
    levels = range(1, chance.choice((3, 12, 40)))
    how, head = chance.random(), "kind: Deployment\nmetadata: {name: web}\n"
    if how < 0.3:
        lines = ["a0: &a0 [x, x, x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in levels)]
    elif how < 0.6:
        merges = (f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in levels)
        lines = ["a0: &a0 {x: 1, y: 2, z: 3}", *merges]
    elif how < 0.8:
        lines = ["spec: 1" + ":59" * chance.choice((3, 150, 20_000)) + chance.choice(("", ".5"))]
    else:
        lines = ["spec: " + chance.choice(("[", "- ", "? ", "{a: ", "&a [*a, ")) * chance.choice((10, 90, 110, 40_000))]
    return head + "\n".join(lines)


def _read_apply_manifests(texts: Sequence[str]) -> None:
    """Reads manifests as the planner does, and then as the readers of the declaration do."""
    declared = read_manifests(tuple(texts))
    declared_shape(declared.manifest, declared.namespace)
    ApplyRequest(tuple(texts))


def _read_scale_policy(text: str) -> None:
    read_attached(read_object(text, "manifest"))


def _check_caller_namespaces(texts: Sequence[str]) -> None:
    check_namespaces(RESTRICTED, "apply", ApplyRequest(tuple(texts)))


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _file_target(
    name: str, sample: str, folder: "TemporaryDirectory[str]", read: Callable[[Path], object], refusal: type[Exception]
) -> Target:
    """Returns a target that writes mutated content to a file and reads it. Closing the target deletes the folder."""
    path = Path(folder.name) / f"{sample}.kubeconfig"

    def make_file_content(chance: Random) -> Input:
        tree, how = samples.OPERATORS[sample], chance.random()
        if how < 0.7:
            return mutated_json(tree, chance).encode(errors="replace")
        return mutated_bytes(yaml.safe_dump(tree).encode(), chance) if how < 0.97 else costly_yaml(chance).encode()

    def write_and_read_file(manifest_bytes: bytes) -> bool:
        path.write_bytes(manifest_bytes)
        return acceptance_check(read, refusal)(path)

    return Target(name, make_file_content, write_and_read_file, share=5, close=folder.cleanup)


def _read_callers(path: Path) -> None:
    for name in ("callers.yaml", "callers.json", "callers.toml"):
        try:
            parse_callers(path.read_bytes(), name)
        except OperatorError:
            if name == "callers.toml":
                raise


def _read_connections(path: Path) -> None:
    read_connections(str(path))


def _read_kubeconfig(path: Path) -> None:
    load_endpoint(path.parent, path.stem)
