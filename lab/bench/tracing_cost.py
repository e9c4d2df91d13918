"""Measures the cost of traces: the CPU time of 1,000 Applies in one process, without and with shares of them traced.

`python lab/bench/tracing_cost.py` prints the median of each share over rounds. Each round is a process of its own, and
the shares take turns.
"""

import asyncio
import logging
import statistics
import subprocess
import sys
import time
from typing import Final

import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from spillway import tracing
from spillway.api import ApplyRequest, JoinClusterRequest, ListClustersRequest
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

APPLIES, ROUNDS, OFF = 1_000, 5, "off"
RATIOS: Final = (OFF, "0.01", "1")
PATH: Final = "/spillway.v1.Planner/Apply"
_LOOK_SECONDS = 0.05


async def join_clusters(platform: InProcess) -> None:
    while not platform.planner().is_active:
        await asyncio.sleep(_LOOK_SECONDS)
    for name in platform.members:
        await platform.planner().join_cluster(JoinClusterRequest(name, name))
    while any(c.state != "Ready" for c in (await platform.planner().list_clusters(ListClustersRequest())).clusters):
        await asyncio.sleep(_LOOK_SECONDS)


async def measure_apply_cpu_seconds() -> float:
    """Returns the CPU seconds of the Applies. Each is in a span, as a call over gRPC would be."""
    async with in_process_platform(services=("snapshot-1", "planner-1")) as platform:
        await join_clusters(platform)
        requests = [ApplyRequest((deployment(f"w{number}", "shop", 1, cpu="1m"),)) for number in range(APPLIES)]
        began = time.process_time()
        for request in requests:
            with tracing.begin_or_continue_trace(PATH[1:], tracing.SERVER, tracing.rpc_attributes(PATH)):
                await platform.planner().apply(request)
        return time.process_time() - began


def measure_with_ratio(ratio: str) -> float:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if ratio != OFF:
        provider = TracerProvider(ParentBased(TraceIdRatioBased(float(ratio))), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
        tracing.use_provider(provider)
    return asyncio.run(measure_apply_cpu_seconds())


def main(arguments: list[str]) -> int:
    if arguments:
        print(measure_with_ratio(arguments[0]))
        return 0
    found: dict[str, list[float]] = {ratio: [] for ratio in RATIOS}
    for _ in range(ROUNDS):
        for ratio in RATIOS:
            asked = (sys.executable, __file__, ratio)
            found[ratio].append(float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout))
    for ratio, seconds in found.items():
        print(f"{ratio:>5}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
