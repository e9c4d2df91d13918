"""Prometheus' own evaluator over the cases of test_rules.py: each alert fires, and not for what only looks like it.

There ALERTS is a series like any other, and says what fires. `make test-alerts`; promtool is in Debian's prometheus.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import make_slo_rules
import promql_parser
import pytest
import yaml

from .known import FOLDER, all_rules
from .promql import LOOKBACK_SECONDS
from .test_rules import ALERT_RULES, ALERTS, DAY, SLOS, Series

pytestmark = pytest.mark.skipif(os.environ.get("SPILLWAY_ALERTS") != "1", reason="a minute: make test-alerts")

STEP_SECONDS, LONG_STEP_SECONDS = 60.0, LOOKBACK_SECONDS * 0.8
PATIENCE_SECONDS = 110.0
"""Below the time of a test."""
Case = dict[str, Any]


def make_case(name: str, series: tuple[Series, ...], seconds: float, step: float, firing: dict[str, bool]) -> Case:
    """One of promtool's tests: samples from 0 to the end, at which each of these alerts fires, or does not."""
    count = int(seconds / step) + 1
    return {
        "name": name,
        "interval": f"{step:.0f}s",
        "input_series": [
            {"series": _series_text(one), "values": " ".join(_number_text(one.value(step * at)) for at in range(count))}
            for one in series
        ],
        "promql_expr_test": [
            {
                "expr": f'(count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0) or vector(0)',
                "eval_time": f"{step * (count - 1):.0f}s",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for alert, fires in firing.items()
        ],
    }


def _series_text(one: Series) -> str:
    return one.name + "{" + ", ".join(f'{name}="{value}"' for name, value in one.labels.items()) + "}"


def _number_text(value: float) -> str:
    return "Inf" if value == float("inf") else repr(float(value))


def faults_found_by_promtool(folder: Path, rules: str, step: float, cases: list[Case]) -> str:
    """What promtool finds wrong in these cases over the rules of one file; empty where nothing is."""
    tests = {"rule_files": [str(FOLDER / rules)], "evaluation_interval": f"{step:.0f}s", "tests": cases}
    file = folder / "cases.yaml"
    file.write_text(yaml.safe_dump(tests))
    command = ("promtool", "test", "rules", str(file))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_every_alert_fires_and_not_for_what_only_looks_like_it(tmp_path: Path) -> None:
    cases = []
    for name, table in ALERTS.items():
        lasting = ALERT_RULES[name].get("for")
        seconds = 3600.0 + (promql_parser.parse_duration(lasting).total_seconds() if lasting else 0.0)
        for series, firing in zip(table, (True, False), strict=True):
            cases.append(make_case(f"{name} {firing}", series, seconds, STEP_SECONDS, {name: firing}))
    assert faults_found_by_promtool(tmp_path, "alert-rules.yaml", STEP_SECONDS, cases) == ""


def test_every_promise_that_is_not_kept_is_told_in_all_windows(tmp_path: Path) -> None:
    """After three days, as in test_rules.py."""
    cases = []
    for name, table in SLOS.items():
        alerts = [rule["alert"] for rule in all_rules() if "alert" in rule and rule["labels"].get("slo") == name]
        assert len(alerts) == len(make_slo_rules.BURNS)
        for series, firing in zip(table, (True, False), strict=True):
            cases.append(
                make_case(f"{name} {firing}", series, 3 * DAY, LONG_STEP_SECONDS, dict.fromkeys(alerts, firing))
            )
    assert faults_found_by_promtool(tmp_path, "slo-rules.yaml", LONG_STEP_SECONDS, cases) == ""


def test_a_case_that_is_wrong_is_seen(tmp_path: Path) -> None:
    _, right = ALERTS["SpillwayDown"]
    wrong = make_case("down", right, 3600.0, STEP_SECONDS, {"SpillwayDown": True})
    assert "SpillwayDown" in faults_found_by_promtool(tmp_path, "alert-rules.yaml", STEP_SECONDS, [wrong])
