"""Checks that control loops come to rest while nodes are lent, with moves, partial placement and headroom.

A service is scaled by its CPU use. Its owner lends idle nodes, and waiting pods recall them, after a grace period for
the borrower's pods. Offline work fills the idle lent nodes (headroom), so each recall also scales the offline work.
Load and capacity are constant, so scaling, lending and headroom must all come to rest.
"""

from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from hpa.core.kubernetes.evaluating import NOTHING_DECIDED
from hpa.core.kubernetes.pods import PodKey
from hpa.core.kubernetes.policy import Autoscaler, behavior_with_defaults
from hpa.core.own.headroom import HeadroomShare, headroom_replicas

from .damping import (
    CPU_USE,
    DEFAULT_DAMPING,
    MOVES_UNTIL,
    REQUEST_MILLI,
    STEP_MS,
    TARGET_PERCENT,
    Damping,
    Fleet,
    Ground,
    next_size_and_state,
    random_ground,
)

IDLE_STEPS = 2
"""The steps without pods after which a node is lent."""
GRACE_STEPS = 2
"""The steps from a recall until the node is back."""
COOLDOWN_STEPS = 20
"""The steps for which a returned node is not lent again: five minutes."""
LENDING_RESTS_AFTER = MOVES_UNTIL + 60
"""Steps of 15 s: the last move, a window of five minutes, a cooldown, and as long as one of them again."""
SHARES = (HeadroomShare("lent", 80),)


@dataclass(frozen=True, slots=True)
class LentGround:
    """The conditions of a loop with lending.

    pods_on_node: the places of a node; the ground's `room` is ignored.
    kept, lendable: the number of nodes that are never lent, and of those that may be.
    """

    ground: Ground
    pods_on_node: int
    kept: int
    lendable: int


def random_lent_ground(seed: int) -> LentGround:
    """Makes the conditions of a seed. A third of the seeds has only half of the needed nodes, so that pods wait."""
    chance = Random(seed + 10_000)
    alone, pods_on_node = random_ground(seed), chance.choice((1, 2, 4, 8))
    ground = Ground(alone.work_milli, alone.room, chance.choice((0.05, 0.3)), behavior=alone.behavior)
    needed = -(-ground.work_milli * 100 // (TARGET_PERCENT * REQUEST_MILLI * pods_on_node))
    nodes = max(2, needed * chance.choice((1, 3, 4)) // 2)
    kept = chance.randrange(1, nodes)
    return LentGround(ground, pods_on_node, kept, nodes - kept)


@dataclass(slots=True)
class Node:
    """A node of the owner.

    back_at: the step at which its recall ends; None: not recalled. lent_from: the first step at which it may be lent.
    idle: the steps without a pod.
    """

    lent: bool
    back_at: int | None = None
    lent_from: int = 0
    idle: int = 0


class LentFleet(Fleet):
    """The service's pods on nodes that are lent and come back. lent_at, recalled_at: steps, one for each node."""

    def __init__(self, lent: LentGround, chance: Random, moves_until: int) -> None:
        super().__init__(lent.ground, chance, moves_until)
        self.places = lent.pods_on_node
        self.nodes = [Node(False) for _ in range(lent.kept)] + [Node(True) for _ in range(lent.lendable)]
        self.kept = lent.kept
        self.on: dict[PodKey, int] = {}
        self.lent_at: list[int] = []
        self.recalled_at: list[int] = []

    @property
    def lent_places(self) -> int:
        """Returns the places on lent nodes that are not recalled."""
        return self.places * sum(1 for node in self.nodes if node.lent and node.back_at is None)

    def _place_pods(self, step: int) -> None:
        self._return_recalled_nodes(step)
        self.on = {key: number for key, number in self.on.items() if key in self.pods}
        taken = [0] * len(self.nodes)
        for number in self.on.values():
            taken[number] += 1
        at_ms = step * STEP_MS
        for key, pod in self.pods.items():
            free = next((n for n, node in enumerate(self.nodes) if not node.lent and taken[n] < self.places), None)
            if pod.phase == "Pending" and free is not None:
                taken[free] += 1
                self.on[key] = free
                self.pods[key] = replace(pod, phase="Running", started_ms=at_ms, ready="true", ready_changed_ms=at_ms)
        self._lend_or_recall_nodes(step, taken)

    def _return_recalled_nodes(self, step: int) -> None:
        for node in self.nodes:
            if node.back_at is not None and node.back_at <= step:
                node.lent, node.back_at, node.lent_from, node.idle = False, None, step + COOLDOWN_STEPS, 0

    def _lend_or_recall_nodes(self, step: int, taken: list[int]) -> None:
        waiting = sum(1 for pod in self.pods.values() if pod.phase == "Pending")
        waiting -= self.places * sum(1 for node in self.nodes if node.back_at is not None)
        for number, node in enumerate(self.nodes):
            node.idle = 0 if taken[number] else node.idle + 1
            if waiting > 0 and node.lent and node.back_at is None:
                node.back_at, waiting = step + GRACE_STEPS, waiting - self.places
                self.recalled_at.append(step)
        if any(pod.phase == "Pending" for pod in self.pods.values()):
            return
        for node in self.nodes[self.kept :]:
            if not node.lent and node.idle >= IDLE_STEPS and step >= node.lent_from:
                node.lent = True
                self.lent_at.append(step)


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a run.

    service, offline: sizes after each step. lent_at, recalled_at: the step of each lending and recall.
    waiting: the pods that wait at the end.
    """

    service: list[int]
    offline: list[int]
    lent_at: list[int]
    recalled_at: list[int]
    waiting: int

    @property
    def last_change_step(self) -> int:
        """Returns the last step at which a size changed or a node was lent or recalled."""
        changed = [
            step
            for sizes in (self.service, self.offline)
            for step in range(1, len(sizes))
            if sizes[step] != sizes[step - 1]
        ]
        return max([*changed, *self.lent_at, *self.recalled_at], default=0)


def play_lending(lent: LentGround, seed: int, steps: int, damping: Damping = DEFAULT_DAMPING) -> Played:
    behavior = behavior_with_defaults(None, None, damping.window_ms) if lent.ground.behavior else None
    policy = Autoscaler(60, (CPU_USE,), 1, behavior)
    fleet, state = LentFleet(lent, Random(seed), MOVES_UNTIL), NOTHING_DECIDED
    service, offline = [3], [headroom_replicas(SHARES, {"lent": lent.lendable * lent.pods_on_node}, 0)]
    for step in range(1, steps):
        fleet.resize_fleet(service[-1], step)
        size, state = next_size_and_state(policy, fleet, service[-1], state, step, damping)
        service.append(size)
        offline.append(headroom_replicas(SHARES, {"lent": fleet.lent_places}, step * STEP_MS // 1000))
    waiting = sum(1 for pod in fleet.pods.values() if pod.phase == "Pending")
    return Played(service, offline, fleet.lent_at, fleet.recalled_at, waiting)


def last_lending_step(seed: int, damping: Damping = DEFAULT_DAMPING) -> int:
    """Returns the last step with a change. Plays 60 steps more than LENDING_RESTS_AFTER, to find late changes."""
    return play_lending(random_lent_ground(seed), seed, LENDING_RESTS_AFTER + 60, damping).last_change_step
