"""Starts and stops the kinds of platforms that the rows of faults need."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from spillway_local.fleet_plan import FLEET, GIB, MemberPlan
from spillway_local.member_credentials import CredentialFiles, MemberAccess, write_kubeconfig
from spillway_local.member_nodes import MemberNodes
from spillway_local.ports import PortBook
from spillway_local.stack import Stack, StackOptions

from . import lending_load
from .audit import Door, read_door
from .clock import clock_environment_by_service
from .ground import Ground, choose_ports, open_ground
from .proxy import Proxy

Say = Callable[[str], None]

KUBE_FLEET = tuple(
    MemberPlan(name, name.partition("-")[0], (MemberNodes(6, f"{name}-node", 8_000, 32 * GIB),), room=96)
    for name in ("own-1", "own-2", "own-3", "own-4", "cloud-1", "cloud-2")
)
DISK_MEGABYTES = 192
HOME_LATE = ("SPILLWAY_PLANNER_HOME_AFTER_SECONDS", "3600")
"""With this setting no overflow goes home during a run, because the audit would count such a move as a loss."""


@asynccontextmanager
async def open_ground_of_kind(kind: str, folder: Path, seed: str, say: Say) -> AsyncIterator[Ground]:
    """Yields a new platform of this kind, and stops it in any case when the block ends."""
    options = _stack_options(kind, (folder / kind).absolute())
    choose_ports(options)
    stack = Stack(replace(options, outlives=False), say)
    await asyncio.to_thread(stack.stop_and_delete_data)
    async with AsyncExitStack() as exits:
        if kind == "disk":
            exits.enter_context(_mount_small_disk(options.folder / "kafka"))
        exits.callback(stack.stop)
        await asyncio.to_thread(stack.start)
        doors = {m.name: read_door(stack.credentials / f"{m.name}.kubeconfig") for m in options.fleet}
        proxies: dict[str, Proxy] = {}
        if kind == "kube":
            for name, door in doors.items():
                proxies[name] = _put_proxy_before_member(stack, name, door)
                await exits.enter_async_context(proxies[name].serve_requests())
        yield await exits.enter_async_context(open_ground(stack, doors, proxies, seed, lends=kind == "lending"))


def _stack_options(kind: str, folder: Path) -> StackOptions:
    options = StackOptions(folder, fleet=FLEET, environment=(HOME_LATE,))
    match kind:
        case "kube":
            return replace(options, members="kube", fleet=KUBE_FLEET)
        case "lending":
            return replace(options, fleet=lending_load.FLEET, environment=(HOME_LATE, *lending_load.ENVIRONMENT))
        case "brokers":
            return replace(options, brokers=3)
        case "clocks":
            return replace(options, environment_of=clock_environment_by_service(folder))
    return options


def _put_proxy_before_member(stack: Stack, name: str, door: Door) -> Proxy:
    """Puts a proxy before a running member: the platform's kubeconfig names the proxy from now on."""
    port = PortBook(stack.folder / "ports.json").assign_port(f"proxy/{name}", 26_000)
    access = MemberAccess(f"https://127.0.0.1:{port}", door.token, door.ca_pem)
    write_kubeconfig(stack.credentials / f"{name}.kubeconfig", name, access)
    return Proxy(door, CredentialFiles(stack.folder / "members" / name / "credentials"), port)


@contextmanager
def _mount_small_disk(folder: Path) -> Iterator[None]:
    """Mounts a small file system in memory at the folder, so that it can be filled."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "spillway-chaos", folder), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", folder), check=True)
