"""Decides which pool pods wait because a node did not admit others: of the same kind, or of the same namespace.

A controller makes a rejected pod anew at once. The pause keeps both sides from an endless loop, and it holds nobody
else's pods: a namespace of the pool is one tenant, who may make as many controllers as it likes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.virtual_node import quantity_text
from vk_bridge.core.pod.admitted_sizes import AdmittedSizes, requested_amounts


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods that a node admits alike. maker: the pod's controller, or the pod's own name. requests: by resource."""

    namespace: str
    maker: str
    requests: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that its node did not admit. sizes: what it asks for in both clusters."""

    kind: PodKind
    sizes: AdmittedSizes


@dataclass(frozen=True, slots=True)
class RefusedLately:
    """The recent refusals of one node.

    sizes: the sizes of refused pods that the owner's admission had enlarged.
    kinds: the kind of each refused pod, with the clock time of the refusal.
    enlarged: the enlarged pods that any node of the owner refused, by kind, with the clock time of the last refusal.
    forgotten_at: the clock time at which the next refusal no longer counts.
    """

    sizes: tuple[AdmittedSizes, ...] = ()
    kinds: tuple[tuple[PodKind, float], ...] = ()
    enlarged: Mapping[PodKind, tuple[AdmittedSizes, float]] = field(default_factory=lambda: MappingProxyType({}))
    forgotten_at: float | None = None


@dataclass(frozen=True, slots=True)
class PauseRules:
    """seconds: how long a kind of pods is not tried after a refusal.

    tries_max: pods of one namespace that a node may refuse, or has yet to answer, within that time. It applies while
        the node remembers a refusal of that namespace.
    """

    seconds: float
    tries_max: int


def kind_of_pod(pool_pod: Manifest) -> PodKind:
    metadata = pool_pod["metadata"]
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    maker = f"{owner.get('kind')}/{owner.get('name')}" if owner else f"Pod/{metadata['name']}"
    return PodKind(metadata["namespace"], maker, frozenset(requested_amounts(pool_pod).items()))


def is_unanswered_by_its_node(real_pod: Manifest) -> bool:
    """Returns whether the kubelet has neither admitted nor rejected the pod. It sets startTime when it admits one."""
    status = real_pod.get("status") or {}
    is_leaving = bool(real_pod["metadata"].get("deletionTimestamp"))
    return status.get("phase", "Pending") == "Pending" and not status.get("startTime") and not is_leaving


def too_large_pods(waiting: Mapping[str, PodKind], free: Mapping[str, int]) -> dict[str, str]:
    """Returns, by uid, why a waiting pool pod never fits the node: it requests more than the node has for its pool.

    free: the amounts that all other pods leave. A resource that the node does not list is not compared.
    """
    found = dict[str, str]()
    for uid, kind in waiting.items():
        beyond = sorted((name, amount) for name, amount in kind.requests if amount > free.get(name, amount))
        if beyond:
            found[uid] = ", ".join(
                f"{name}: {quantity_text(name, amount)}: expected at most {quantity_text(name, free[name])}, "
                "which its node has for pods of this cluster"
                for name, amount in beyond
            )
    return found


def paused_pool_uids(
    waiting: Mapping[str, PodKind],
    unanswered: Iterable[PodKind],
    lately: RefusedLately,
    room: Mapping[str, int],
    now: float,
    rules: PauseRules,
) -> frozenset[str]:
    """Returns the uids of waiting pool pods that are created later.

    Of a kind that the node refused lately, one pod is tried in the pause; of its namespace, tries_max pods. Of a kind
    that another node refused within the pause, no pod is tried here without room for it.
    unanswered: the kinds of real pods that were created and of which the kubelet has said nothing.
    room: the amounts that the kubelet has left for more pods of the pool.
    """
    refused = [kind for kind, at in lately.kinds if now - at < rules.seconds]
    tried = Counter((*refused, *unanswered))
    tried_of_namespace = Counter(kind.namespace for kind in tried.elements())
    known = {kind for kind, _ in lately.kinds}
    namespaces = {kind.namespace for kind in known}
    paused = set[str]()
    for uid, kind in sorted(waiting.items(), key=lambda one: one[0]):
        has_turn = kind not in known or not tried[kind]
        is_within_share = kind.namespace not in namespaces or tried_of_namespace[kind.namespace] < rules.tries_max
        if has_turn and is_within_share and not _would_refuse(kind, lately, room, now, rules):
            tried[kind] += 1
            tried_of_namespace[kind.namespace] += 1
        else:
            paused.add(uid)
    return frozenset(paused)


def _would_refuse(kind: PodKind, lately: RefusedLately, room: Mapping[str, int], now: float, rules: PauseRules) -> bool:
    """Returns whether a pod of this kind does not fit the room, if any node refused such a pod within the pause."""
    sizes, at = lately.enlarged.get(kind, (None, now))
    if sizes is None or now - at >= rules.seconds:
        return False
    return any(more > room.get(name, 0) for name, more in sizes.admitted.items())


class Refusals:
    """The pods that nodes of one owner did not admit. Each counts for kept_seconds after it was first seen."""

    def __init__(self, kept_seconds: float) -> None:
        self._kept_seconds = kept_seconds
        self._by_node: dict[str, dict[str, tuple[RefusedPod, float]]] = {}
        self._enlarged: dict[PodKind, tuple[AdmittedSizes, float]] = {}
        """By kind: the sizes of an enlarged pod, and when such a pod was last refused."""

    def update_refusals(self, node: str, refused: Mapping[str, RefusedPod], now: float) -> RefusedLately:
        """Returns the node's recent refusals. refused: the refused pods that exist, by uid.

        A refusal counts for kept_seconds after it was first seen, also if its pod exists for days.
        """
        before = self._by_node.pop(node, {})
        seen = {uid: before.get(uid, (one, now)) for uid, one in refused.items()}
        grown = [one for uid, one in refused.items() if uid not in before and one.sizes.added_amounts()]
        self._enlarged |= {one.kind: (one.sizes, now) for one in grown}
        self._enlarged = {kind: one for kind, one in self._enlarged.items() if now < one[1] + self._kept_seconds}
        counts = {uid: one for uid, one in {**before, **seen}.items() if now < one[1] + self._kept_seconds}
        if seen or counts:
            self._by_node[node] = {**seen, **counts}
        return RefusedLately(
            tuple(one.sizes for one, _ in counts.values() if one.sizes.added_amounts()),
            tuple((one.kind, at) for one, at in counts.values()),
            dict(self._enlarged),
            min((at + self._kept_seconds for _, at in counts.values()), default=None),
        )
