"""Runs an older version of this code, exported from git, on events that this version writes, and the other way round.

make versions OLD=cfd3804            tests each event in both directions, and what the old version loses on rewriting
… versions.py --old cfd3804 --keep   keeps the old version's output and descriptors in data/ for the tests
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compatibility import RENAMED

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
EXAMPLES = HERE / "examples.py"
DATA = HERE / "data"


def export_commit(commit: str, folder: Path) -> Path:
    """Exports a commit, builds its protos and descriptors, and returns the folder of its sources."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    protos = sorted(str(path) for path in (folder / "proto").glob("spillway/v1/*.proto"))
    out = [f"--python_out={folder / 'libs/spillway/src'}", f"--descriptor_set_out={folder / 'protos.binpb'}"]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder / 'proto'}", "--include_imports", *out, *protos]
    subprocess.run(protoc, check=True)
    return folder / "libs/spillway/src"


def run_examples(source: Path | None, action: str, rows: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Runs examples.py with the code in `source`, or with this version if it is None. Returns the printed rows."""
    environment = os.environ | ({"PYTHONPATH": str(source)} if source else {})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    command = [sys.executable, str(EXAMPLES), action]
    done = subprocess.run(command, env=environment, input=text, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def changed_fields(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yields the names of fields whose values differ. All entries of a list have the same name."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            other = after.get(name, after.get(RENAMED.get(name, name)))
            yield from changed_fields(value, other, f"{where}.{name}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from changed_fields(one, other, where)
    elif before != after:
        yield where


def difference_lines(commit: str, source: Path) -> list[str]:
    """Returns the differences between the versions as sentences."""
    lines = []
    old, new = run_examples(source, "write"), run_examples(None, "write")
    for row, found in zip(old, run_examples(None, "read", old), strict=True):
        wrong = (
            [found["trouble"]] if "trouble" in found else sorted(set(changed_fields(row["fields"], found["fields"])))
        )
        lines += [f"old → new: {row['type']}: {what}" for what in wrong]
    read_by_old = run_examples(source, "read", new)
    for row, found in zip(new, read_by_old, strict=True):
        if "trouble" in found:
            lines.append(f"new → old: {row['type']}: a dead letter: {found['trouble'][:60]}…")
            continue
        lines += [
            f"new → old: {row['type']}: {name}" for name in sorted(set(changed_fields(found["fields"], row["fields"])))
        ]
    readable = [(row, found) for row, found in zip(new, read_by_old, strict=True) if "value" in found]
    again = run_examples(None, "read", [row | {"value": found["value"]} for row, found in readable])
    for (row, _), found in zip(readable, again, strict=True):
        lost = sorted(set(changed_fields(row["fields"], found["fields"])))
        lines += [f"written again by {commit}: {row['type']} loses {name}" for name in lost]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="cfd3804", help="commit of the older version")
    parser.add_argument("--keep", action="store_true", help="keep what it wrote, and its descriptors, for the tests")
    asked = parser.parse_args()
    folder = ROOT / "build" / "versions" / asked.old
    source = export_commit(asked.old, folder)
    if asked.keep:
        rows = run_examples(source, "write")
        (DATA / f"events-{asked.old}.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        (DATA / f"protos-{asked.old}.binpb").write_bytes((folder / "protos.binpb").read_bytes())
    print("\n".join(difference_lines(asked.old, source)))


if __name__ == "__main__":
    main()
