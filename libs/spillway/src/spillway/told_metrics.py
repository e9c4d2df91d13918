"""Gauges whose values are computed only when metrics are read, so they cost nothing in between."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Tell = Callable[[], Mapping[str, float]]
"""A function that returns the values of a gauge, by the value of its label."""


class ToldGauge(Collector):
    """A gauge with one label. If several callbacks return a value for one label, the highest counts."""

    def __init__(self, name: str, documentation: str, label: str, registry: CollectorRegistry = REGISTRY) -> None:
        self.name = name
        self.documentation = documentation
        self.label = label
        self._told_by: list[Tell] = []
        registry.register(self)

    @contextmanager
    def collecting_values_from(self, tell: Tell) -> Iterator[None]:
        """Registers `tell` for the time of this context. It is called each time the metrics are read."""
        self._told_by.append(tell)
        try:
            yield
        finally:
            self._told_by.remove(tell)

    def describe(self) -> Iterable[Metric]:
        yield self._new_family()

    def collect(self) -> Iterable[Metric]:
        family, values = self._new_family(), dict[str, float]()
        for tell in self._told_by:
            for label, value in tell().items():
                values[label] = max(value, values.get(label, value))
        for label in sorted(values):
            family.add_metric([label], values[label])
        yield family

    def _new_family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.documentation, labels=[self.label])
