"""The kinds of platforms that rows need, and how each is brought up and down."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from spillway_local.stack import Stack, StackOptions

from .ground import Ground, chosen_ports, opened

Say = Callable[[str], None]


@asynccontextmanager
async def ground_of(kind: str, folder: Path, seed: str, say: Say) -> AsyncIterator[Ground]:
    """A new platform of this kind; it is down when the block is left, however it is left."""
    options = _options(kind, folder / kind)
    chosen_ports(options)
    stack = Stack(options, say)
    await asyncio.to_thread(stack.wipe)
    try:
        await asyncio.to_thread(stack.up)
        async with opened(stack, seed) as ground:
            yield ground
    finally:
        stack.down()


def _options(kind: str, folder: Path) -> StackOptions:
    return StackOptions(folder, brokers=3 if kind == "brokers" else 1)
