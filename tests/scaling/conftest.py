"""The log in memory is that of hpa's own tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "services" / "hpa" / "tests"))
