"""Runs small processes that stand for pods: one for each running pod that names a program which this cluster allows.

Nothing runs unless programs are allowed (`--pod-programs`). A pod's annotation selects one of them, never its command.
A program starts once its pod runs. It gets SIGTERM when the pod is deleted, and the pod is gone once the program has
ended. It is killed when the pod's grace period is over. A program that ends by itself is started again. All programs
end with this process.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.pods import PROGRAM
from sim.settings import ProgramSettings, ProgramSpec

_CHUNK_BYTES = 1 << 16


@dataclass(slots=True)
class _Running:
    """The program of one pod. process: None between two starts."""

    pod: Object
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    task: asyncio.Task[None] | None = None

    def signal_end(self, number: signal.Signals) -> None:
        """Tells the program to end: by SIGTERM only once, by SIGKILL at each call."""
        is_new = not self.ending.is_set()
        self.ending.set()
        if self.process is not None and (is_new or number is signal.SIGKILL):
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class PodPrograms:
    """The programs of a cluster's pods. Use `async with` inside the cluster's block; leaving it ends every program.

    Raises ValueError without setpriv.
    """

    def __init__(
        self, cluster: SimCluster, programs: Mapping[str, ProgramSpec], settings: ProgramSettings | None = None
    ) -> None:
        self._cluster = cluster
        self._programs = programs
        self._settings = settings or ProgramSettings()
        self._setpriv = shutil.which("setpriv") or ""
        if not self._setpriv:
            raise ValueError("programs of pods: expected setpriv (util-linux): by it they end when this process does")
        self._running: dict[str, _Running] = {}
        self._told: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._cluster.control_plane.kubelet.programs = frozenset(self._programs)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"programs of {self._cluster.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for number in (signal.SIGTERM, signal.SIGKILL):
            tasks = [one.task for one in self._running.values() if one.task is not None]
            for one in self._running.values():
                one.signal_end(number)
            if tasks:
                await asyncio.wait(tasks, timeout=self._settings.stop_seconds)

    async def _run(self) -> None:
        self._cluster.add_waker("pods", self._changed)
        try:
            while True:
                self._changed.clear()
                self._reconcile_programs()
                await self._changed.wait()
        finally:
            self._cluster.remove_waker("pods", self._changed)

    def _reconcile_programs(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._cluster.objects("pods") if self._has_program(pod)}
        self._told &= pods.keys()
        for uid, one in self._running.items():
            if uid not in pods:
                one.signal_end(signal.SIGKILL)
            elif "deletionTimestamp" in pods[uid]["metadata"]:
                one.signal_end(signal.SIGTERM)
        for uid, pod in pods.items():
            if uid in self._running:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self._cluster.note_program_ended(pod)
            elif pod["status"].get("phase") == "Running":
                self._begin_program(uid, pod)

    def _has_program(self, pod: Object) -> bool:
        named = PROGRAM in (pod["metadata"].get("annotations") or {})
        return named and self._cluster.control_plane.kubelet.is_simulated_node(pod["spec"].get("nodeName", ""))

    def _begin_program(self, uid: str, pod: Object) -> None:
        name = pod["metadata"]["annotations"][PROGRAM]
        if name not in self._programs:
            self._write_pod_log_once(
                uid, pod, f"no program {name!r}: expected one of {', '.join(sorted(self._programs))}"
            )
        elif len(self._running) >= self._settings.processes_max:
            self._write_pod_log_once(uid, pod, f"waits: {self._settings.processes_max} programs run, no more may")
        else:
            one = self._running[uid] = _Running(pod)
            one.task = asyncio.get_running_loop().create_task(
                self._keep_program_running(uid, one, self._programs[name]), name=name
            )

    async def _keep_program_running(self, uid: str, one: _Running, spec: ProgramSpec) -> None:
        try:
            while not one.ending.is_set():
                await self._run_program_once(one, spec)
                with suppress(TimeoutError):
                    await asyncio.wait_for(one.ending.wait(), self._settings.restart_seconds)
        finally:
            del self._running[uid]
            self._cluster.note_program_ended(one.pod)
            self._changed.set()

    async def _run_program_once(self, one: _Running, spec: ProgramSpec) -> None:
        """Runs the program once. Its output becomes the log of its pod."""
        command = (self._setpriv, "--pdeathsig", "KILL", *spec.command)
        environment = os.environ | self._program_environment(one.pod, spec)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=environment
            )
        except OSError as error:
            self._write_pod_log(one.pod, f"did not begin: {error}")
            return
        one.process = process
        if one.ending.is_set():
            process.terminate()
        copying = asyncio.get_running_loop().create_task(self._copy_log(one.pod, process))
        code = await process.wait()
        one.process = None
        # Children of the program may keep its output open, so the copying gets only this time.
        await asyncio.wait({copying}, timeout=self._settings.last_words_seconds)
        copying.cancel()
        self._write_pod_log(one.pod, f"ended with {code}")

    def _program_environment(self, pod: Object, spec: ProgramSpec) -> dict[str, str]:
        metadata = pod["metadata"]
        said = {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0].get("env") or ()}
        chosen = {name: str(said[name]) for name in spec.environment if name in said}
        own = {"CLUSTER": self._cluster.name, "POD_NAMESPACE": metadata["namespace"], "POD_NAME": metadata["name"]}
        return chosen | own

    async def _copy_log(self, pod: Object, process: Process) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if not newline and len(rest) < _CHUNK_BYTES:
                continue
            self._write_pod_log(pod, (whole if newline else rest).decode(errors="replace"))
            rest = rest if newline else b""
        if rest:
            self._write_pod_log(pod, rest.decode(errors="replace"))

    def _write_pod_log_once(self, uid: str, pod: Object, text: str) -> None:
        if uid not in self._told:
            self._told.add(uid)
            self._write_pod_log(pod, text)

    def _write_pod_log(self, pod: Object, text: str) -> None:
        metadata = pod["metadata"]
        with suppress(KeyError):  # The pod is gone already.
            self._cluster.write_log(metadata["namespace"], metadata["name"], text)
