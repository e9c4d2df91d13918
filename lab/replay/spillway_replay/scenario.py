"""Plays one run: a burst arrives, half of it is scaled at once, some of it must leave a cluster. Then judges all."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from spillway_simulation.loop import Deadlock, VirtualLoop

from .member import FLEET, Member
from .naive import Naive
from .ours import Ours
from .schedulers import OracleScheduler, PlainScheduler, Pods, Scheduler
from .system import REFUSED, Answer
from .trace import Trace, make_fleet, with_joining_nodes
from .workloads import BETWEEN, PLAIN, Key, Workload, make_burst

OURS, OURS_KILLED = "ours", "ours, killed"
ARRIVAL_SECONDS = 1.0
SETTLE_SECONDS = 45.0
REST_SECONDS, REST_SECONDS_MAX = 5.0, 90.0
"""Seconds without a change that count as rest, and the longest wait for it."""
LEAVING_SHARE, LEAVING_SECONDS = 0.01, 20.0
"""The share of other users' pods that end in each phase, and the seconds from its start in which they do."""
PHASES = 3
SCALED_SHARE, RULED_OUT_SHARE = 0.5, 0.1
FACTORS = (0.5, 0.75, 1.5, 2.0)
KILLS = 3
KILLED_EVERY_SECONDS = 3.0
"""Seconds between kills. That is enough for the next life to begin."""
KILLED_WITHIN_STEPS = 60
NODES_BY_BURST = ((1, 8), (10, 16), (100, 60), (1000, 240))
"""(the most workloads, nodes of an own cluster). The cloud has 1.5 times as many."""
OWN_CLUSTERS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One run. planner: OURS, OURS_KILLED, or the naive mode. pressure: requested CPU as a share of the free CPU.

    delay: the most seconds from a change in a cluster to the reader of its record. plain: members without the oracle.
    joining: share of the nodes that are full at first and become free during the phases.
    """

    planner: str
    workloads: int
    seed: int
    pressure: float
    delay: float
    plain: bool = False
    joining: float = 0.0


def play_run(run: Run, trace: Trace) -> Counter[str]:
    """Plays one run in virtual time. Returns its figures."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _loop, _context: None)
    try:
        with ExitStack() as stack:
            scene = _Scene(run, trace, loop, stack)
            figures = loop.run_until_complete(scene.play_phases())
            _dispose_loop(loop)
            return figures
    finally:
        asyncio.set_event_loop(None)


def _dispose_loop(loop: VirtualLoop) -> None:
    """Cancels all remaining tasks, so that nothing of this run is left in the next one."""
    loop.revive_all_processes()
    for _ in range(3):
        tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            with suppress(Deadlock):
                loop.run_until_complete(asyncio.wait(tasks, timeout=60))
    loop.close()


class _Scene:
    def __init__(self, run: Run, trace: Trace, loop: VirtualLoop, stack: ExitStack) -> None:
        self.run, self.loop = run, loop
        self.random = Random(f"{run.seed}/{run.workloads}/{run.pressure}")
        nodes = next(count for burst_max, count in NODES_BY_BURST if run.workloads <= burst_max)
        sizes = [(f"own-{index + 1}", "own", nodes) for index in range(OWN_CLUSTERS)]
        clusters = make_fleet(trace, self.random, (*sizes, ("cloud-1", "cloud", nodes * 3 // 2)))
        chance = Random(f"{run.seed}/joining")
        self.clusters = tuple(with_joining_nodes(cluster, chance, run.joining) for cluster in clusters)
        self.joining = {cluster.name: chance.sample(cluster.joining, len(cluster.joining)) for cluster in self.clusters}
        free = sum(cluster.free_cpu_millis for cluster in self.clusters)
        self.workloads = make_burst(trace, self.random, run.workloads, round(free * run.pressure))
        chance = Random(f"{run.seed}/world")
        ours = run.planner in (OURS, OURS_KILLED)
        self.system: Ours | Naive = Ours(chance, loop) if ours else Naive(run.planner, chance, loop)
        for cluster in self.clusters:
            ties = Random(f"{run.seed}/{cluster.name}/ties")
            scheduler: Scheduler = PlainScheduler(cluster, ties)
            if not run.plain:
                scheduler = stack.enter_context(OracleScheduler(cluster, ties))
            chance = Random(f"{run.seed}/{cluster.name}")
            self.system.members[cluster.name] = Member(cluster, scheduler, self.system, chance, run.delay)
        self.figures: Counter[str] = Counter()
        self.departed: dict[str, list[Any]] = {cluster.name: [] for cluster in self.clusters}
        self.taken: dict[Key, int] = {}
        self.running: list[asyncio.Task[None]] = []

    async def play_phases(self) -> Counter[str]:
        if isinstance(self.system, Ours):
            self.system.broker.form_log(FLEET)
        for member in self.system.members.values():
            await member.report_first_state()
            self.running.append(asyncio.create_task(member.run()))
        await self.system.start()
        await self._run_phase(self._apply_workload(workload) for workload in self.workloads)
        await self._run_phase(self._scale_workload(workload) for workload in self._sample_workloads(SCALED_SHARE))
        await self._run_phase(self._rule_out_cluster(workload) for workload in self._sample_workloads(RULED_OUT_SHARE))
        self._judge_end()
        return self.figures

    def _plan_departures(self) -> None:
        for cluster in self.clusters:
            others = cluster.pods[: len(cluster.pods) - len(cluster.joining)]
            for pod in self.random.sample(others, round(len(others) * LEAVING_SHARE)):
                if pod not in self.departed[cluster.name]:
                    self.loop.call_later(
                        self.random.uniform(0, LEAVING_SECONDS), self._end_foreign_pod, cluster.name, pod
                    )
            joining = self.joining[cluster.name]
            for pod in [joining.pop() for _ in range(-(-len(cluster.joining) // PHASES)) if joining]:
                self.loop.call_later(self.random.uniform(0, LEAVING_SECONDS), self._end_foreign_pod, cluster.name, pod)

    def _end_foreign_pod(self, cluster: str, pod: Any) -> None:
        self.system.members[cluster].end_foreign_pods([pod])
        self.departed[cluster].append(pod)

    def _sample_workloads(self, share: float) -> list[Workload]:
        there = [workload for workload in self.workloads if workload.key in self.taken]
        return self.random.sample(there, round(len(there) * share)) if len(there) > 1 else there

    async def _run_phase(self, asks: Iterable[Any]) -> None:
        if self.run.planner == OURS_KILLED and isinstance(self.system, Ours):
            for number in range(KILLS):
                seconds = number * KILLED_EVERY_SECONDS + self.random.uniform(0.0, ARRIVAL_SECONDS / 2)
                self.system.kill_planner_after(seconds, self.random.randrange(KILLED_WITHIN_STEPS))
        self._plan_departures()
        await asyncio.gather(*asks)
        await asyncio.sleep(SETTLE_SECONDS)
        until, quiet = self.loop.time() + REST_SECONDS_MAX, 0.0
        while self.loop.time() < until and quiet < REST_SECONDS:
            await asyncio.sleep(1.0)
            quiet = quiet + 1.0 if self._is_everything_bound() else 0.0
        self.figures["phases that did not come to rest"] += quiet < REST_SECONDS
        self._judge_waiting()

    def _is_everything_bound(self) -> bool:
        """Returns whether exactly the decided replicas are bound."""
        desired = self.system.desired_by_cluster()
        return all(
            {key: count for key, count in desired.get(name, {}).items() if count}
            == {key: known.bound_pod_count for key, known in member.objects.items() if known.bound_pod_count}
            for name, member in self.system.members.items()
        )

    # ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _apply_workload(self, workload: Workload) -> None:
        await asyncio.sleep(self.random.uniform(0.0, ARRIVAL_SECONDS))
        since = self.loop.time()
        answer = await self.system.apply(workload, f"apply/{workload.key[1]}")
        self._note_answer("apply", workload, workload.replicas, answer, since)

    async def _scale_workload(self, workload: Workload) -> None:
        await asyncio.sleep(self.random.uniform(0.0, ARRIVAL_SECONDS))
        replicas = max(1, round(self.taken[workload.key] * self.random.choice(FACTORS)))
        more, since = replicas - self.taken[workload.key], self.loop.time()
        answer = await self.system.scale(workload, replicas, f"scale/{workload.key[1]}")
        self._note_answer("scale", workload, max(0, more), answer, since, replicas)

    async def _rule_out_cluster(self, workload: Workload) -> None:
        """Excludes a workload from the own cluster that has most of its replicas."""
        await asyncio.sleep(self.random.uniform(0.0, ARRIVAL_SECONDS))
        names = [cluster.name for cluster in self.clusters]
        has = {name: self.system.desired_by_cluster().get(name, {}).get(workload.key, 0) for name in names[:-1]}
        out = max(has, key=lambda name: has[name])
        chosen = tuple(name for name in names if name != out)
        ruled, since = (
            replace(workload, replicas=self.taken[workload.key], clusters=chosen, refuse=False),
            self.loop.time(),
        )
        answer = await self.system.apply(ruled, f"rule-out/{workload.key[1]}")
        self._note_answer("rule out", ruled, 0, answer, since, ruled.replicas)

    def _note_answer(
        self, what: str, workload: Workload, more: int, answer: Answer, since: float, replicas: int | None = None
    ) -> None:
        """Notes the answer to a request. since: the time of the request."""
        self.figures[f"asked: {what}"] += 1
        self.figures["replicas asked"] += more
        if answer.error == REFUSED:
            self.figures["requests refused"] += 1
            self.figures["replicas refused"] += more
            self._judge_refusal(workload, more, since)
        elif answer.error:
            self.figures["requests failed"] += 1
            self.figures[f"failed: {answer.error[:80]}"] += 1
        else:
            self.taken[workload.key] = workload.replicas if replicas is None else replicas

    # ── Judgement ───────────────────────────────────────────────────────────────────────────────────────────────

    def _judge_refusal(self, workload: Workload, replicas: int, since: float) -> None:
        """Judges whether a workload refused as a whole would have had places beside all earlier promises.

        as asked: counts room that existed at the request, or that a record has told of since. as told: counts only
        room that a record had told of.
        """
        self.figures["refusals judged"] += 1
        self.figures["refused replicas judged"] += replicas
        if not self._may_have_place(workload, replicas):
            return
        wanted = [(workload, replicas)]
        for name, untold_since in (("", float("inf")), (" as asked", since), (" as told", 0.0)):
            if self._replicas_without_place(wanted, untold_since) == [0]:
                self.figures[f"refused though placeable{name}: {workload.kind}"] += replicas

    def _may_have_place(self, workload: Workload, replicas: int) -> bool:
        """Returns False if the workload surely has no place, even without its rules about other pods and no promises.

        Without other pods, nodes take at least as many pods without such rules. Most refusals are judged by this alone.
        """
        asked = Pods(workload.key[0], workload.plain_template, replicas, "wanted")
        members = self.system.members
        names = workload.clusters or tuple(members)
        return sum(members[name].scheduler.count_placeable([asked])[0] for name in names) >= replicas

    def _judge_waiting(self) -> None:
        """Judges, at rest, which of the waiting replicas have a place."""
        workloads = {workload.key: workload for workload in self.workloads} | self.system.workloads
        waiting = [(workloads[key], count) for key, count in sorted(self.system.unplaced_by_workload().items())]
        lefts = self._replicas_without_place(waiting)
        placeable = any(left < count for left, (_, count) in zip(lefts, waiting, strict=True))
        as_told = self._replicas_without_place(waiting, untold_since=0.0) if placeable else lefts
        for (workload, count), left, known in zip(waiting, lefts, as_told, strict=True):
            self.figures["waiting at rest"] += count
            self.figures[f"waiting though placeable: {workload.kind}"] += count - left
            self.figures[f"waiting though placeable as told: {workload.kind}"] += count - known

    def _replicas_without_place(
        self, wanted: Sequence[tuple[Workload, int]], untold_since: float = float("inf")
    ) -> list[int]:
        """Returns for each the replicas without a place in any cluster, once all promised replicas are bound.

        untold_since: puts back the pods that left at this time or later and that no record has reported yet.
        """
        left = [count for _, count in wanted]
        for name, member in self.system.members.items():
            promised = list(self._promised_pods(member))
            asked = [
                Pods(
                    workload.key[0],
                    workload.pod_template,
                    count if name in (workload.clusters or self.system.members) else 0,
                    f"wanted-{index}",
                )
                for index, ((workload, _), count) in enumerate(zip(wanted, left, strict=True))
            ]
            if any(left):
                untold = member.unreported_departures(untold_since)
                member.scheduler.put_back_pods(untold)
                placed = member.scheduler.count_placeable([*promised, *asked])[len(promised) :]
                member.scheduler.remove_foreign_pods(untold)
                left = [count - found for count, found in zip(left, placed, strict=True)]
        return left

    def _promised_pods(self, member: Member) -> Iterable[Pods]:
        for key, replicas in self.system.desired_by_cluster().get(member.cluster.name, {}).items():
            known = member.objects.get(key)
            missing = replicas - (known.bound_pod_count if known is not None else 0)
            if missing > 0:
                workload = self.system.workloads[key]
                yield Pods(key[0], workload.pod_template, missing, f"promised-{key[1]}")

    def _judge_end(self) -> None:
        figures, system = self.figures, self.system
        for member in system.members.values():
            for kind in (PLAIN, BETWEEN):
                figures[f"handed: {kind}"] += member.handed[kind]
            self._judge_failures(member)
        for cause, count in system.decisions.items():
            figures[f"decisions: {cause}"] += count
            figures[f"moves: {cause}"] += system.moves[cause]
            figures[f"least moves: {cause}"] += system.least[cause]
        declared = system.declared_by_workload()
        figures["workloads taken"] += len(self.taken)
        figures["workloads lost or doubled"] += sum(
            1 for key in {*declared, *self.taken} if declared.get(key) != self.taken.get(key)
        )
        if isinstance(system, Ours):
            figures["kills"] += system.kills
            figures["asked again"] += system.retries

    def _judge_failures(self, member: Member) -> None:
        """Judges whether the cluster would have had room for a failed part without the other workloads of the burst."""
        if not member.failed:
            return
        member.scheduler.reset_cluster()
        member.scheduler.remove_foreign_pods(self.departed[member.cluster.name])
        for key, failed in sorted(member.failed.items()):
            workload = self.system.workloads[key]
            self.figures[f"unplaceable: {workload.kind}"] += failed
            part = Pods(key[0], workload.pod_template, member.most[key], "alone")
            if member.scheduler.count_placeable([part]) == [member.most[key]]:
                self.figures[f"double-booked: {workload.kind}"] += failed
