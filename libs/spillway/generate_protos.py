"""Build hook: /proto becomes src/spillway/v1, so that no generated file is in git and no step can be forgotten."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateProtos(BuildHookInterface):  # type: ignore[type-arg]
    """Runs protoc from grpcio-tools over /proto at every build of this package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from grpc_tools import protoc

        here = Path(self.root)
        protos = here.parent.parent / "proto"
        files = sorted(str(path) for path in protos.glob("spillway/v1/*.proto"))
        if not files:  # An installed source distribution carries the generated files already.
            return
        out = str(here / "src")
        arguments = [
            "protoc",
            f"-I{protos}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out={out}",
            f"--mypy_grpc_out={out}",
            *files,
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc failed on {files}")
