"""A command imports the client each time it runs: what only a server needs stays out of it."""

import subprocess
import sys

OF_SERVERS = (
    "prometheus_client",
    "structlog",
    "yaml",
    "spillway.metrics",
    "spillway.rpc.front",
    "spillway.rpc.callers",
)


def test_a_client_imports_nothing_that_only_a_server_needs() -> None:
    script = f"import sys, spillway.rpc.client; print([name for name in {OF_SERVERS} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
