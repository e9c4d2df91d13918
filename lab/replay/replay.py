"""`make replay`: how good the planner's decisions are, beside two plain planners'; a table, build/replay.json."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    # The members' scheduler is the oracle of the differential tests, the clock that of the simulation.
    sys.path += [str(ROOT / folder) for folder in ("lab/oracle", "lab/simulation", "services/planner/tests")]
    sys.exit(import_module("spillway_replay.run").main())
