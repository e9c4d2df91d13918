"""The contract of the log and the store, asked of containers; `make test` asks it of processes where no engine is."""

import os
import subprocess
import sys

import pytest

from .engine import Engine
from .stand_ins import ROOT

ASKED = ("tests/contract/test_store.py", "tests/contract/test_bus.py")


@pytest.mark.timeout(900)
def test_the_contract_holds_on_containers(engine: Engine) -> None:
    environment = os.environ | {"SPILLWAY_TEST_PARTS": "containers"}
    if engine.host:
        environment["DOCKER_HOST"] = engine.host
    before = engine.run_docker("ps", "-aq")
    run = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", *ASKED), cwd=ROOT, env=environment, capture_output=True, check=False
    )
    said = run.stdout.decode()[-4000:]
    assert run.returncode == 0, said
    assert "skipped" not in said
    assert engine.run_docker("ps", "-aq") == before
