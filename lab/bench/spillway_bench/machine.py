"""Describes this machine and its software, and reads the memory and CPU time of processes."""

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from spillway_local.kafka_server import ensure_kafka_jars

MEGABYTE = 10**6
_PACKAGES = ("aiokafka", "grpcio", "aiohttp", "msgspec", "protobuf", "numpy")
_KIBIBYTE = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a process in MB.

    resident_mb: PSS, which counts only a share of a page that several processes map. peak_mb: the largest RSS.
    """

    resident_mb: float
    peak_mb: float


def memory_of(pid: int) -> Memory:
    resident = psutil.Process(pid).memory_full_info().pss / MEGABYTE
    return Memory(resident, _peak_memory_bytes(pid) / MEGABYTE)


def cpu_seconds_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def facts() -> dict[str, str]:
    """Returns the facts about machine and software that a reader needs to compare figures of different days."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git_commit(),
        "cores": f"{len(os.sched_getaffinity(0))} ({_processor_model()})",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Kafka": _kafka_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    }


def is_process_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _peak_memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * _KIBIBYTE
    raise LookupError(f"process {pid}: no VmHWM in its status")


def _git_commit() -> str:
    def run_git(*arguments: str) -> str:
        done = subprocess.run(("git", *arguments), capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = " with uncommitted changes" if run_git("status", "--porcelain", "--untracked-files=no") else ""
    return (run_git("rev-parse", "--short", "HEAD") or "unknown") + changed


def _processor_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _kafka_version() -> str:
    names = [jar.stem.removeprefix("kafka-clients-") for jar in ensure_kafka_jars().glob("kafka-clients-*.jar")]
    return names[0] if names else "unknown"
