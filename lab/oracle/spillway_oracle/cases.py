"""Makes cases: a small cluster and a pod template each. The same choices of a Chance make the same case."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, Drawn, Seeded
from .clusters import make_namespaces, make_nodes, make_pods, make_volumes_and_claims
from .pods import USUAL_NAMESPACES
from .templates import APART, FEATURES, MIXED, RESOURCES, SPREAD, SYMMETRY, TOGETHER, VOLUMES, make_template

ORDER_MATTERS = frozenset((SPREAD, APART, TOGETHER))


@dataclass(frozen=True, slots=True)
class Case:
    """A small cluster and a pod template.

    world: lists of Kubernetes objects by name, as the oracle loads them. features: the features of the template.
    """

    world: Mapping[str, Any]
    namespace: str
    template: Manifest
    features: tuple[str, ...] = ()
    name: str = field(default="", compare=False)

    @property
    def nodes(self) -> Manifests:
        nodes: Manifests = self.world["nodes"]
        return nodes

    @property
    def main_feature(self) -> str:
        return self.features[0] if len(self.features) == 1 else MIXED


def make_case(chance: Chance, name: str = "") -> Case:
    about = chance.pick_option(FEATURES)
    features = frozenset((about,))
    if about == MIXED:
        features = frozenset(feature for feature in FEATURES[:-1] if chance.is_chosen(35))
    between_pods = bool(features & (ORDER_MATTERS | {SYMMETRY}))
    many = chance.is_chosen(4)
    if features & ORDER_MATTERS:
        nodes = make_nodes(chance, 25 if many else 5, roomy=RESOURCES in features)
    else:
        nodes = make_nodes(chance, 40 if many else 7, roomy=True)
    pods_most = 40 if many else 10 if between_pods else 6
    if chance.is_chosen(40):
        pods_most = 2
    world: dict[str, Manifests] = {
        "nodes": nodes,
        "pods": make_pods(chance, nodes, pods_most, affinity=bool(features & {SYMMETRY, APART})),
        "namespaces": make_namespaces(chance) if between_pods else [],
    }
    if VOLUMES in features:
        world |= make_volumes_and_claims(chance, nodes)
    names = [node["metadata"]["name"] for node in nodes]
    return Case(
        world,
        chance.pick_option(USUAL_NAMESPACES),
        make_template(chance, features, names),
        tuple(sorted(features)),
        name,
    )


def seeded_case(seed: int) -> Case:
    return make_case(Seeded(seed), f"seed-{seed}")


@st.composite
def any_case(draw: Any) -> Case:
    return make_case(Drawn(draw))


def read_case(found: Mapping[str, Any]) -> Case:
    """Returns the case of a file's content: world, namespace, template and perhaps features."""
    return Case(found["world"], found["namespace"], found["template"], tuple(found.get("features", ())))
