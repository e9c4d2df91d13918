"""What must hold of scaling at every record: one hpa decides, within bounds, and that is what is declared."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spillway.addresses import SCALE, SCALE_POLICIES, SCALE_STATE, WORKLOADS
from spillway.bus import Outgoing
from spillway.events import WorkloadDeclared
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.model import NO_GENERATION, Generation
from spillway.wire import decode_event

SCALING = (WORKLOADS, SCALE_POLICIES, SCALE_STATE, SCALE)

Key = tuple[str, str]


@dataclass(slots=True)
class Sizes:
    """Of one workload, as the log says. policy: in force; decided: the last decision of the policies since the first.

    every: all decisions that there ever were. state: the generation and instant of the last state.
    """

    declared: WorkloadDeclared | None = None
    policy: ScalePolicyDeclared | None = None
    decided: ScaleDecided | None = None
    every: dict[Generation, ScaleDecided] = field(default_factory=dict)
    state: tuple[Generation, int] = (NO_GENERATION, 0)

    def is_declaration_behind(self) -> bool:
        """Whether the last decision is not what is declared."""
        declared, decided = self.declared, self.decided
        if declared is None or decided is None or declared.deleting:
            return False
        return declared.scale_generation != decided.generation


Told = Callable[[str, Key], bool]
"""Whether the planner of this name has been told of a workload's policy, and of a decision of it."""


class ScalingOracle:
    def __init__(self, violated: Callable[[str], None], was_told: Told) -> None:
        self._violated = violated
        self._was_told = was_told
        self._epoch = -1
        self._writer = ""
        self.sizes: dict[Key, Sizes] = {}
        self.last_decision_at = -1.0

    def on_record(self, record: Outgoing, source: str) -> None:
        namespace, _, name = record.address.key.partition("/")
        key, topic = (namespace, name), record.address.topic
        sizes = self.sizes.setdefault(key, Sizes())
        if record.value is None:
            if topic is SCALE_POLICIES:
                sizes.policy = None
            elif topic is SCALE:
                sizes.decided = None
            elif topic is SCALE_STATE:
                sizes.state = (NO_GENERATION, 0)
            return
        match decode_event(topic.name, record.kind, record.value):
            case WorkloadDeclared() as declared:
                self._on_workload_declared(key, sizes, declared, source)
            case ScalePolicyDeclared() as policy:
                self._judge_epoch(policy.generation, source)
                sizes.policy = policy
            case ScaleStateChanged() as state:
                self._judge_epoch(state.generation, source)
                self._on_scale_state("/".join(key), sizes, state)
            case ScaleDecided() as decided:
                self._judge_epoch(decided.generation, source)
                self._on_size_decided("/".join(key), sizes, decided)

    def _judge_epoch(self, generation: Generation, source: str) -> None:
        """Records of a transaction come in the order in which they were decided; an epoch has one writer."""
        if generation.epoch < self._epoch:
            self._violated(f"{source} wrote in epoch {generation.epoch}, after {self._writer} in {self._epoch}")
        if generation.epoch == self._epoch and source != self._writer:
            self._violated(f"{source} and {self._writer} wrote in epoch {generation.epoch}")
        self._epoch, self._writer = generation.epoch, source

    def _on_scale_state(self, name: str, sizes: Sizes, state: ScaleStateChanged) -> None:
        generation, at_ms = sizes.state
        if state.generation <= generation:
            self._violated(f"{name}: state {state.generation} after {generation} in the log")
        if state.at_ms < at_ms:
            self._violated(f"{name}: a state of {state.at_ms} ms after one of {at_ms} ms")
        sizes.state = (state.generation, state.at_ms)

    def _on_size_decided(self, name: str, sizes: Sizes, decided: ScaleDecided) -> None:
        self.last_decision_at = asyncio.get_running_loop().time()
        if sizes.policy is None:
            self._violated(f"{name}: {decided.replicas} replicas decided, and it has no policy")
            return
        least, most = replica_bounds_of(json.loads(sizes.policy.manifest))
        if not least <= decided.replicas <= most:
            self._violated(f"{name}: {decided.replicas} replicas decided, {least} to {most} are allowed")
        newest = max(sizes.every, default=NO_GENERATION)
        if decided.generation <= newest:
            self._violated(f"{name}: decision {decided.generation} after {newest} in the log")
        sizes.every[decided.generation] = sizes.decided = decided

    def _on_workload_declared(self, key: Key, sizes: Sizes, declared: WorkloadDeclared, writer: str) -> None:
        """Under policy only a decision changes the number, and never an older one than the last that did; but for a
        person who scales from none, where a policy may rest."""
        name, before = "/".join(key), sizes.declared
        sizes.declared = declared
        followed = declared.scale_generation
        if followed is None:
            return
        decided = sizes.every.get(followed)
        if decided is None:
            self._violated(f"{name}: declared by decision {followed}, which nobody made")
            return
        last = before.scale_generation if before is not None else None
        if last is not None and followed < last:
            self._violated(f"{name}: declared by decision {followed}, after {last}")
        was = before.replicas if before is not None and not before.deleting else -1
        if declared.deleting or declared.replicas in (decided.replicas, was):
            return
        if followed != last or (was != 0 and self._was_told(writer, key)):
            self._violated(f"{name}: {declared.replicas} replicas declared, {decided.replicas} decided by {followed}")


def replica_bounds_of(manifest: dict[str, Any]) -> tuple[int, int]:
    """The least and the most replicas of a policy; 0 at the least where idle or no work is below its minimum."""
    spec = manifest["spec"]
    if manifest["kind"] == "ScaledObject":
        return spec["minReplicaCount"], spec["maxReplicaCount"]
    return spec["minReplicas"], spec["maxReplicas"]
