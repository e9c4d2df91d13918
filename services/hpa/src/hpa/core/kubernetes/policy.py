"""What a person asks of the autoscaler of one workload: metrics with targets, bounds, behaviour. Values only.

The words are those of autoscaling/v2; amounts are milli-units, times milliseconds.
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


class Target(Struct, frozen=True, gc=False):
    """kind: UTILIZATION (amount: percent of requests), AVERAGE_VALUE (milli per pod) or VALUE (milli in all).

    amount None: the manifest left out what its kind needs.
    """

    kind: str
    amount: int | None


class Metric(Struct, frozen=True, gc=False):
    """One metric. name: of the resource or the metric. container: of CONTAINER_RESOURCE. object_kind: of OBJECT.

    source: one of the five, or the manifest's own word, which then makes the metric invalid. tolerant: a ratio near 1
    changes nothing; False is ours, for what is counted and not measured.
    """

    source: str
    name: str
    target: Target
    container: str = ""
    object_kind: str = ""
    object_name: str = ""
    selector: str = ""
    tolerant: bool = True


class ScalingPolicy(Struct, frozen=True, gc=False):
    """At most amount pods or percent within any period_ms."""

    kind: str
    amount: int
    period_ms: int


class ScalingRules(Struct, frozen=True, gc=False):
    """One direction. stabilization_ms: how long the most careful earlier number binds. tolerance None: the default."""

    policies: tuple[ScalingPolicy, ...]
    select: str = SELECT_MAX
    stabilization_ms: int = 0
    tolerance: float | None = None

    def longest_period_ms(self) -> int:
        return max((policy.period_ms for policy in self.policies), default=0)


class GivenRules(Struct, frozen=True):
    """One direction as a manifest has it; None: not given."""

    policies: tuple[ScalingPolicy, ...] | None = None
    select: str | None = None
    stabilization_ms: int | None = None
    tolerance: float | None = None


UP_DEFAULT: Final = ScalingRules((ScalingPolicy(BY_PODS, 4, 15_000), ScalingPolicy(BY_PERCENT, 100, 15_000)))
DOWN_DEFAULT: Final = ScalingRules((ScalingPolicy(BY_PERCENT, 100, 15_000),))


class Behavior(Struct, frozen=True, gc=False):
    """Both directions, with defaults filled in."""

    up: ScalingRules = UP_DEFAULT
    down: ScalingRules = DOWN_DEFAULT


def completed(up: GivenRules | None, down: GivenRules | None, downscale_stabilization_ms: int) -> Behavior:
    """Behaviour with Kubernetes' defaults; a list of policies is replaced as a whole, an empty one by the default.

    Source: kubernetes v1.36.1, pkg/apis/autoscaling/v2/defaults.go.
    """
    return Behavior(_completed(up, UP_DEFAULT, 0), _completed(down, DOWN_DEFAULT, downscale_stabilization_ms))


def _completed(given: GivenRules | None, default: ScalingRules, stabilization_ms: int) -> ScalingRules:
    given = given or GivenRules()
    return ScalingRules(
        policies=given.policies or default.policies,
        select=given.select or default.select,
        stabilization_ms=stabilization_ms if given.stabilization_ms is None else given.stabilization_ms,
        tolerance=given.tolerance,
    )


class Autoscaler(Struct, frozen=True, gc=False):
    """One policy of one workload. behavior None: the older rules, with one downscale window and a doubling cap.

    from_zero: it decides at zero replicas whoever scaled to zero.
    """

    max_replicas: int
    metrics: tuple[Metric, ...]
    min_replicas: int = 1
    behavior: Behavior | None = None
    from_zero: bool = False

    def reaches_zero(self) -> bool:
        """Whether some metric has a value while there is no pod."""
        return any(metric.source in (OBJECT, EXTERNAL) for metric in self.metrics)


class Settings(Struct, frozen=True):
    """The controller's own numbers, as kube-controller-manager's flags have them by default.

    doubling_period_ms: the cap of the older rules counts from the size that was so long ago; 0: from the size now,
    since the controller's instants are far apart.
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


DEFAULT_SETTINGS: Final = Settings()
