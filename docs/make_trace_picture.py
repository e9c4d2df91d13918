"""Makes docs/trace-of-an-apply.svg: one Apply on processes with a real Kafka, from the command to ready pods.

Run it by hand; it takes about two minutes. The picture names its commit, time and machine. The services send spans by
OTLP to a receiver in this process. Spans of the same name under one parent share one line.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, log10
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from otlp_receiver import Received, Receiver, running_receiver

from spillway_local.fleet_plan import FLEET
from spillway_local.stack import Stack, StackOptions

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "trace-of-an-apply.svg"
WORKLOAD: Final = ROOT / "examples" / "web.yaml"
CALL: Final = "spillway.v1.Planner/Apply"
QUIET_SECONDS, PATIENCE_SECONDS = 12.0, 120.0
"""The time without new spans after which a trace is complete, and the longest wait. Processes send every 5 s."""
COLORS: Final = {
    "cli": "#4c566a",
    "planner": "#2f6f9f",
    "propagator": "#b0562a",
    "hpa": "#5a8f3c",
    "snapshot": "#8a5a9e",
}
LABELS, CHART, LINE, TOP, FONT = 470, 640, 19, 86, 12


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture: spans of one name under one parent. depth: the number of spans above it."""

    depth: int
    spans: tuple[Received, ...]

    @property
    def label(self) -> str:
        first = self.spans[0]
        name = first.name.removeprefix("spillway.v1.").replace("spillway.", "").replace(".v1", "")
        where = {str(one.attributes["k8s.cluster.name"]) for one in self.spans if "k8s.cluster.name" in one.attributes}
        times = f" ×{len(self.spans)}" if len(self.spans) > 1 else ""
        return f"{name}{times}" + (f" · {', '.join(sorted(where))}" if where and len(where) == 1 else "")


# ── The run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def trace_one_apply(folder: Path) -> list[Received]:
    """Runs one Apply on a new platform and returns the spans of its trace."""
    with running_receiver() as receiver:
        tracing = {"SPILLWAY_OTLP_ENDPOINT": f"127.0.0.1:{receiver.port}", "SPILLWAY_TRACE_RATIO": "1"}
        stack = Stack(StackOptions(folder, instances=1, environment=tuple(tracing.items()), outlives=False), print)
        try:
            stack.start()
            for member in FLEET:
                _run_command(
                    folder, {}, "cluster", "join", member.name, "--credential", member.name, "--tier", member.tier
                )
            _wait_until_clusters_ready(folder)
            _run_command(folder, tracing, "apply", "-f", str(WORKLOAD), "--wait")
            return _wait_for_whole_trace(receiver)
        finally:
            stack.stop()


def _run_command(folder: Path, variables: dict[str, str], *arguments: str) -> str:
    command = (sys.executable, "-c", "from spillway_cli.main import main; main()", *arguments)
    environment = os.environ | variables
    ended = subprocess.run(command, cwd=folder.parent, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return ended.stdout


def _wait_until_clusters_ready(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _run_command(folder, {}, "cluster", "list").count("Ready") < len(FLEET):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the clusters were not Ready within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.5)


def _wait_for_whole_trace(receiver: Receiver) -> list[Received]:
    """Returns the trace's spans once no new one came for QUIET_SECONDS, which is longer than two sendings.

    Raises TimeoutError after PATIENCE_SECONDS, and ValueError unless there is exactly one trace.
    """
    deadline, seen, since = time.monotonic() + PATIENCE_SECONDS, -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        traces = {one.trace for one in receiver.spans if one.name == CALL and not one.parent}
        found = [one for one in receiver.spans if one.trace in traces]
        if len(found) != seen:
            seen, since = len(found), time.monotonic()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the trace did not end within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.5)
    if len(traces) != 1:
        raise ValueError(f"{len(traces)} traces begin with {CALL}: expected one")
    return found


# ── The picture ─────────────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(spans: Sequence[Received]) -> list[Row]:
    """Returns the lines of the picture: each below its parent, children in the order of their begin."""
    children: dict[str, list[Received]] = {}
    for one in sorted(spans, key=lambda span: span.begin_ns):
        children.setdefault(one.parent, []).append(one)

    def rows_below(parent: str, depth: int) -> Iterable[Row]:
        groups: dict[tuple[str, str], list[Received]] = {}
        for one in children.get(parent, ()):
            alike = one.span if one.span in children else ""  # A span with children gets its own line.
            groups.setdefault((one.name, alike), []).append(one)
        for group in groups.values():
            yield Row(depth, tuple(group))
            for one in group:
                yield from rows_below(one.span, depth + 1)

    return list(rows_below("", 0))


def begin_and_end_ms(span: Received, start_ns: int) -> tuple[float, float]:
    """Returns begin and end of a span in milliseconds since the trace began."""
    return (span.begin_ns - start_ns) / 1e6, (span.end_ns - start_ns) / 1e6


def svg_text(spans: Sequence[Received], caption: Sequence[str]) -> str:
    rows, start_ns = rows_of(spans), min(one.begin_ns for one in spans)
    decades = ceil(log10(max(begin_and_end_ms(one, start_ns)[1] for one in spans)))
    height = TOP + LINE * len(rows) + 14

    def x_of(at_ms: float) -> float:
        """Returns the x coordinate of a time. The scale is logarithmic, with 1 ms at the left."""
        return LABELS + CHART * log10(max(at_ms, 1.0)) / decades

    size = f'width="{LABELS + CHART + 90}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="ui-monospace, monospace" font-size="{FONT}">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(f'<text x="10" y="{18 + 16 * n}" fill="#333">{escape(text)}</text>' for n, text in enumerate(caption)),
    ]
    for decade in range(decades + 1):
        x = x_of(10**decade)
        said = f"{10**decade} ms" if decade < 3 else f"{10 ** (decade - 3)} s"
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 8}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP - 10}" fill="#777" text-anchor="middle">{said}</text>')
    for number, row in enumerate(rows):
        parts += _row_svg_elements(row, TOP + LINE * number, start_ns, x_of)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row_svg_elements(row: Row, y: int, start_ns: int, x_of: Callable[[float], float]) -> Iterable[str]:
    service = row.spans[0].service_name.removeprefix("spillway-")
    color = COLORS.get(service, "#888")
    yield f'<text x="10" y="{y + 13}" fill="{color}">{escape(service)}</text>'
    yield f'<text x="{92 + 13 * row.depth}" y="{y + 13}" fill="#222">{escape(row.label)}</text>'
    for one in row.spans:
        begin, end = begin_and_end_ms(one, start_ns)
        x, width = x_of(begin), max(2.0, x_of(end) - x_of(begin))
        yield f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{LINE - 8}" fill="{color}" rx="2"/>'
    total = sum(one.end_ns - one.begin_ns for one in row.spans) / 1e6
    x = x_of(begin_and_end_ms(row.spans[-1], start_ns)[1]) + 6
    yield f'<text x="{x:.1f}" y="{y + 13}" fill="#777">{total:.1f} ms</text>'


def caption_lines(spans: Sequence[Received]) -> list[str]:
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"), cwd=ROOT, check=True, text=True, capture_output=True
    ).stdout.strip()
    services = ", ".join(sorted({one.service_name.removeprefix("spillway-") for one in spans}))
    machine = f"{os.cpu_count()} cores, with all else that runs on them (load average {os.getloadavg()[0]:.1f})"
    return [
        f"One `spillway apply -f examples/web.yaml` (60 replicas): {len(spans)} spans of {services}, one trace.",
        f"Commit {commit}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine}.",
        f"One Kafka broker, {len(FLEET)} simulated clusters, one instance of each service, no other workload placed.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spillway-trace-") as folder:
        spans = trace_one_apply(Path(folder) / "run")
    asked.output.write_text(svg_text(spans, caption_lines(spans)))
    print(f"{asked.output}: {len(spans)} spans")
    return 0


if __name__ == "__main__":
    sys.exit(main())
