"""`make scaling`: how good the autoscaler's decisions are on queues, beside KEDA's; tables, build/scaling.json."""

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("spillway_scaling.run").main())
