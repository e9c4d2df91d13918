"""Defines an autoscaler of one workload as values: metrics with targets, bounds and behaviour.

The names are the same as in autoscaling/v2. Amounts are milli-units, times are milliseconds.
"""

from typing import Final

from msgspec import Struct

RESOURCE: Final = "resource"
CONTAINER_RESOURCE: Final = "container_resource"
PODS: Final = "pods"
OBJECT: Final = "object"
EXTERNAL: Final = "external"

UTILIZATION: Final = "utilization"
AVERAGE_VALUE: Final = "average_value"
VALUE: Final = "value"

BY_PODS: Final = "pods"
BY_PERCENT: Final = "percent"

SELECT_MAX: Final = "max"
SELECT_MIN: Final = "min"
SELECT_DISABLED: Final = "disabled"

DOWNSCALE_STABILIZATION_MS: Final = 300_000


class TargetValue(Struct, frozen=True, gc=False):
    """The target of a metric.

    kind: UTILIZATION (amount: percent of requests), AVERAGE_VALUE (milli-units per pod) or VALUE (milli-units, total).
    amount: None when the manifest left out the field that its kind needs.
    """

    kind: str
    amount: int | None


class Metric(Struct, frozen=True, gc=False):
    """One metric of a policy.

    source: one of the five sources; any other word of the manifest makes the metric invalid.
    name: the name of the resource or the metric.
    container: for CONTAINER_RESOURCE.
    object_kind, object_name: for OBJECT.
    tolerant: True if a ratio near 1 changes nothing. False is our addition, for values that are counted, not measured.
    """

    source: str
    name: str
    target: TargetValue
    container: str = ""
    object_kind: str = ""
    object_name: str = ""
    selector: str = ""
    tolerant: bool = True


class ScalingPolicy(Struct, frozen=True, gc=False):
    """A limit on changes: at most `amount` pods or percent within any period_ms."""

    kind: str
    amount: int
    period_ms: int


class ScalingRules(Struct, frozen=True, gc=False):
    """The rules for one direction, scaling out or in.

    select: which of several policies counts: the one that allows most (max), least (min), or no change at all.
    tolerance: None for the default.
    stabilization_ms: how long the most careful earlier number limits the size.
    """

    policies: tuple[ScalingPolicy, ...]
    select: str = SELECT_MAX
    stabilization_ms: int = 0
    tolerance: float | None = None

    def longest_period_ms(self) -> int:
        return max((policy.period_ms for policy in self.policies), default=0)


class GivenRules(Struct, frozen=True):
    """The rules of one direction as the manifest has them; None: not given."""

    policies: tuple[ScalingPolicy, ...] | None = None
    select: str | None = None
    stabilization_ms: int | None = None
    tolerance: float | None = None


UP_DEFAULT: Final = ScalingRules((ScalingPolicy(BY_PODS, 4, 15_000), ScalingPolicy(BY_PERCENT, 100, 15_000)))
DOWN_DEFAULT: Final = ScalingRules((ScalingPolicy(BY_PERCENT, 100, 15_000),))


class Behavior(Struct, frozen=True, gc=False):
    """The rules of both directions, with defaults filled in."""

    up: ScalingRules = UP_DEFAULT
    down: ScalingRules = DOWN_DEFAULT


def behavior_with_defaults(up: GivenRules | None, down: GivenRules | None, downscale_stabilization_ms: int) -> Behavior:
    """Returns the behaviour with Kubernetes' defaults.

    A list of policies replaces the default list; an empty one does not.

    Source: kubernetes v1.36.1, pkg/apis/autoscaling/v2/defaults.go.
    """
    return Behavior(
        _rules_with_defaults(up, UP_DEFAULT, 0), _rules_with_defaults(down, DOWN_DEFAULT, downscale_stabilization_ms)
    )


def _rules_with_defaults(given: GivenRules | None, default: ScalingRules, stabilization_ms: int) -> ScalingRules:
    given = given or GivenRules()
    return ScalingRules(
        policies=given.policies or default.policies,
        select=given.select or default.select,
        stabilization_ms=stabilization_ms if given.stabilization_ms is None else given.stabilization_ms,
        tolerance=given.tolerance,
    )


class Autoscaler(Struct, frozen=True, gc=False):
    """The autoscaler of one workload.

    behavior: None for the older rules, with one window against scaling in and a doubling cap.
    from_zero: True if it also decides at zero replicas when hpa itself did not scale to zero.
    """

    max_replicas: int
    metrics: tuple[Metric, ...]
    min_replicas: int = 1
    behavior: Behavior | None = None
    from_zero: bool = False

    def has_metric_without_pods(self) -> bool:
        """Returns whether some metric has a value without any pod."""
        return any(metric.source in (OBJECT, EXTERNAL) for metric in self.metrics)


class ControllerSettings(Struct, frozen=True):
    """The controller's own numbers, with the defaults of kube-controller-manager's flags.

    doubling_period_ms: the older rules at most double the size of this long ago. 0: at most double the present size,
        because the controller's instants are far apart.
    """

    tolerance: float = 0.1
    downscale_stabilization_ms: int = DOWNSCALE_STABILIZATION_MS
    cpu_initialization_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000
    scale_up_limit_factor: float = 2.0
    scale_up_limit_minimum: float = 4.0
    doubling_period_ms: int = 0
    configurable_tolerance: bool = True
    pod_level_resources: bool = True
    scale_to_zero: bool = True


DEFAULT_SETTINGS: Final = ControllerSettings()
