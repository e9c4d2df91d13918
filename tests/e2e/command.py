"""`spillway` as a person runs it, against a running platform."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .running import NAMESPACE, Platform


class Command:
    """Runs the command in a folder of its own; code: the exit code that is expected."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        addresses = platform.stack.addresses()
        self.folder = folder
        self._environment = os.environ | {
            "SPILLWAY_ENDPOINTS": ",".join(addresses.planners),
            "SPILLWAY_SCALING_ENDPOINTS": ",".join(addresses.hpas),
            "SPILLWAY_LENDING_ENDPOINTS": ",".join(addresses.deschedulers),
            "SPILLWAY_KAFKA": addresses.kafka,
            "SPILLWAY_FLEET": addresses.fleet,
            "SPILLWAY_NAMESPACE": NAMESPACE,
            "SPILLWAY_CONFIG": "",
        }

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it prints; when it fails, what it complains of."""
        out, complaint = await self._run_command(arguments, code)
        return out if code in (0, 3) else complaint

    async def run_for_json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads((await self._run_command((*arguments, "-o", "json"), code))[0])

    async def _run_command(self, arguments: tuple[str, ...], code: int) -> tuple[str, str]:
        ended = await asyncio.to_thread(
            subprocess.run,
            (str(Path(sys.executable).parent / "spillway"), *arguments),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ended.returncode == code, f"{arguments}: {ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr
        return ended.stdout, ended.stderr
