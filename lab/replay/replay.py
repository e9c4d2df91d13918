"""Runs `make replay`: compares the planner's decisions with two simple planners', and writes build/replay.json."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    # The scheduler of the members comes from the differential tests, and the clock from the simulation.
    sys.path += [str(ROOT / folder) for folder in ("lab/oracle", "lab/simulation", "services/planner/tests")]
    sys.exit(import_module("spillway_replay.run").main())
