"""A Docker engine to test with: the machine's own, or one that this process starts and ends."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spillway_local.programs import Program, start_child
from spillway_local.tools import ensure_program, run_tool

ENGINE_SECONDS = 60.0
TAGS_ALONE = Path(__file__).with_name("tags_alone.env")
_ADVICE = "leave `make test-compose` out."


@dataclass(frozen=True, slots=True)
class Engine:
    """Its command lines; host "" is the machine's own engine."""

    host: str
    compose: tuple[str, ...]

    def run_docker(self, *arguments: str, folder: Path = Path("/")) -> str:
        """What it printed. Raises ToolFailed with the end of it."""
        return run_tool(("docker", *arguments), folder, self.docker_environment)

    def is_answering(self) -> bool:
        asked = subprocess.run(
            ("docker", "info"), env=os.environ | self.docker_environment, capture_output=True, check=False
        )
        return asked.returncode == 0 and b"Server Version" in asked.stdout

    def run_compose(self, files: Sequence[Path], *arguments: str, digests: Path = TAGS_ALONE) -> str:
        """files: the first, and what is put over it. digests: in place of a file .env beside the first; without one
        images go by their tags, since stand-ins have other digests."""
        named = [part for file in files for part in ("-f", str(file))]
        command = (*self.compose, "--env-file", str(digests), *named, *arguments)
        return run_tool(command, files[0].parent, self.docker_environment)

    @property
    def docker_environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.host} if self.host else {}


@contextmanager
def running_engine(folder: Path) -> Iterator[Engine]:
    """The machine's engine where one answers; as root one of our own, with its data below folder."""
    ensure_program("dockerd", ("docker.io",), _ADVICE)
    own = Engine("", compose_command())
    if own.is_answering():
        yield own
        return
    socket = folder / "docker.sock"
    engine = Engine(f"unix://{socket}", own.compose)
    flags = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    command = ("dockerd", "-H", engine.host, *(f"--{flag}={folder / name}" for flag, name in flags.items()))
    child = start_child(Program("dockerd", command, folder), folder.parent / "dockerd.log", at_our_death="TERM")
    try:
        child.wait_ready(engine.is_answering, ENGINE_SECONDS)
        yield engine
    finally:
        child.stop()


def find_compose_command() -> tuple[str, ...] | None:
    """The command of compose that is on this machine: docker's plugin or Debian's program; None: neither."""
    if shutil.which("docker"):
        plugin = subprocess.run(("docker", "compose", "version"), capture_output=True, check=False)
        if plugin.returncode == 0:
            return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


def compose_command() -> tuple[str, ...]:
    """What is installed, else Debian's docker-compose, which is installed then."""
    return find_compose_command() or (str(ensure_program("docker-compose", ("docker-compose",), _ADVICE)),)
