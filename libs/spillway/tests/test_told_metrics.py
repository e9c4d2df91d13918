"""Gauges that are asked for when metrics are."""

from prometheus_client import CollectorRegistry, generate_latest

from spillway.told_metrics import ToldGauge


def test_what_is_told_is_asked_each_time_of_all_who_tell_it_and_of_nobody_who_has_gone() -> None:
    registry = CollectorRegistry()
    lag = ToldGauge("lag_records", "How far behind", "topic", registry)
    values = {"a": 3.0}
    with lag.collecting_values_from(lambda: values):
        with lag.collecting_values_from(lambda: {"a": 2.0, "b": 1.0}):
            assert [registry.get_sample_value("lag_records", {"topic": topic}) for topic in "ab"] == [3.0, 1.0]
            values["a"] = 0.0
            assert registry.get_sample_value("lag_records", {"topic": "a"}) == 2.0
        assert registry.get_sample_value("lag_records", {"topic": "b"}) is None
    assert generate_latest(registry) == b"# HELP lag_records How far behind\n# TYPE lag_records gauge\n"
