"""Clusters for tests that carry placements out, on nodes of their own, as unkindly as a real one may.

An object follows its part, pods follow the object, and each pod binds to any node that it fits on. What the planner is
told is the record of one instant, nodes and counts together, at times that the test chooses.
"""

from dataclasses import dataclass, field
from random import Random

from spillway.events import STATE_ABSENT, WorkloadObserved
from spillway.feasibility.fit import compute_fit
from spillway.model import NO_GENERATION, Generation, NodeRow, Part, Shape, WorkloadFacts

from .builders import Fleet, cluster_nodes_of

Key = tuple[str, str]


@dataclass
class Object:
    """A Deployment in a member. pods: the node of each bound one by template; waiting: pods without a node."""

    version: Generation
    replicas: int
    shape: Shape
    bound: list[int] = field(default_factory=list)
    waiting: int = 0


class MemberCluster:
    def __init__(self, name: str, rows: list[NodeRow], random: Random) -> None:
        self.name, self.rows, self.random = name, rows, random
        self.objects: dict[Key, Object] = {}
        self.inbox: list[tuple[Key, Part, Shape]] = []
        self.sequence = 0

    def queue_new_versions(self, fleet: Fleet) -> None:
        """Every version of every part comes, in order, and waits to be carried out."""
        for key, workload in fleet.state.workloads.items():
            part = workload.parts.get(self.name)
            last = [entry for name, entry, _ in self.inbox if name == key][-1:]
            if part is not None and part.version not in [entry.version for entry in last]:
                known = self.objects.get(key)
                if last or known is None or known.version < part.version:
                    self.inbox.append((key, part, workload.replica_shape))

    def carry_out_one_version(self, fleet: Fleet) -> None:
        """Each object has a queue of its own: any object's first version."""
        if self.inbox:
            key = self.random.choice(sorted({key for key, _, _ in self.inbox}))
            first = next(index for index, entry in enumerate(self.inbox) if entry[0] == key)
            self._carry_out_part(fleet, *self.inbox.pop(first))

    def carry_out_all_versions(self, fleet: Fleet) -> None:
        """Objects become what the placement says; those that are to go are gone, and the planner is told so."""
        self.queue_new_versions(fleet)
        while self.inbox:
            self.carry_out_one_version(fleet)

    def _carry_out_part(self, fleet: Fleet, key: Key, part: Part, shape: Shape) -> None:
        if part.removing:
            self._scale_object(self.objects.pop(key, Object(part.version, 0, shape)), 0)
            self._report_absent(fleet, key, part.version)
        else:
            known = self.objects.setdefault(key, Object(part.version, 0, shape))
            known.version = part.version
            self._scale_object(known, part.replicas)

    def would_all_pods_bind(self, random: Random) -> bool:
        """Whether every pod that is there now finds a node, one after another, without anything else happening."""
        copy = MemberCluster(self.name, list(self.rows), random)
        copy.objects = {
            key: Object(known.version, known.replicas, known.shape, list(known.bound), known.waiting)
            for key, known in self.objects.items()
        }
        while copy.bind_one_pod():
            pass
        return not copy.pending_pods()

    def _scale_object(self, known: Object, replicas: int) -> None:
        known.replicas = replicas
        known.waiting = max(0, min(known.waiting, replicas - len(known.bound)))
        while len(known.bound) > replicas:
            row = known.bound.pop(self.random.randrange(len(known.bound)))
            self._change_requested(row, known.shape, -1)
        known.waiting = replicas - len(known.bound)

    def _change_requested(self, row: int, shape: Shape, sign: int) -> None:
        before = self.rows[row]
        requested = dict(before.requested)
        for name, amount in shape.requests:
            requested[name] = requested.get(name, 0) + sign * amount
        self.rows[row] = NodeRow(before.name, before.allocatable, requested, before.labels, before.taints)

    def bind_one_pod(self) -> bool:
        """Binds a pod that can be bound, on any node that it fits on; False when none can."""
        waiting = [known for known in self.objects.values() if known.waiting]
        self.random.shuffle(waiting)
        for known in waiting:
            fits = compute_fit(known.shape, cluster_nodes_of(*self.rows)).per_node.tolist()
            rows = [row for row in range(len(self.rows)) if fits[row]]
            if rows:
                row = self.random.choice(rows)
                self._change_requested(row, known.shape, 1)
                known.bound.append(row)
                known.waiting -= 1
                return True
        return False

    def bind_pod_in_fleet(self, _: Fleet) -> None:
        self.bind_one_pod()

    def pending_pods(self) -> int:
        return sum(known.waiting for known in self.objects.values())

    def is_overcommitted(self) -> bool:
        return any(
            row.requested.get(name, 0) > row.allocatable.get(name, 0) for row in self.rows for name in ("cpu", "pods")
        )

    def report_full_block(self, fleet: Fleet) -> None:
        """A full block of this instant: nodes, and what is counted on them."""
        fleet.sequences[self.name] += 1
        fleet.report_full_block(
            self.name, self.rows, [self._workload_facts(key, known) for key, known in self.objects.items()]
        )
        fleet.send_heartbeats(self.name)

    def _workload_facts(self, key: Key, known: Object) -> WorkloadFacts:
        bound = len(known.bound)
        counted = (("h", bound),) if bound else ()
        replicas = known.replicas
        return WorkloadFacts(*key, known.version, "u", replicas, True, replicas, replicas, bound, counted)

    def _report_absent(self, fleet: Fleet, key: Key, version: Generation) -> None:
        self.sequence += 1
        fleet.state.apply_event(workload_observed(self.name, key, version, STATE_ABSENT, self.sequence), fleet.now)


def workload_observed(
    cluster: str, key: Key, version: Generation = NO_GENERATION, state: str = STATE_ABSENT, sequence: int = 1
) -> WorkloadObserved:
    return WorkloadObserved(*key, cluster, 3, sequence, version, state, "", 0, 0, 0, 0, 0)
