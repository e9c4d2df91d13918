"""Reads a scale policy of any kind from its manifest, into the form that is the same for all kinds. Pure."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.policy import DOWNSCALE_STABILIZATION_MS, Autoscaler, Metric
from hpa.core.manifests import manifests, scale_policy, scaled_object
from hpa.core.manifests.manifests import ScaleTarget, read_autoscaler
from hpa.core.manifests.scale_policy import ScalePolicy, read_scale_policy
from hpa.core.manifests.scaled_object import ScaledObject, read_scaled_object
from spillway.api import RequestError, invalid_argument_error

KINDS: Final = (manifests.KIND, scaled_object.KIND, scale_policy.KIND)
WORKLOAD_KINDS: Final = ("Deployment", "StatefulSet")
"""The kinds that can be scaled. A Job's parallelism stays as in its manifest."""


class AttachedPolicy(Struct, frozen=True, gc=False):
    """A scale policy of any kind.

    name: the policy's own name.
    wanted: the policy itself.
    least, most: its bounds; least is the idle size if there is one.
    """

    kind: str
    name: str
    target: ScaleTarget
    wanted: Autoscaler | ScaledObject | ScalePolicy
    least: int
    most: int
    warnings: tuple[str, ...] = ()

    @property
    def polling_ms(self) -> int:
        """Returns the polling interval of its triggers, in milliseconds; 0 when it has none."""
        return self.wanted.polling_ms if isinstance(self.wanted, ScaledObject) else 0

    @property
    def autoscaler(self) -> Autoscaler | None:
        """Returns the Autoscaler that decides by metrics; None if the policy has no metrics."""
        return self.wanted if isinstance(self.wanted, Autoscaler) else self.wanted.autoscaler


def read_attached(manifest: dict[str, Any], window_ms: int = DOWNSCALE_STABILIZATION_MS) -> AttachedPolicy:
    """Reads a scale policy from its manifest. Raises RequestError with the field, the value and what was expected.

    window_ms: the stabilization window for scaling in, if the policy's behavior sets none.
    """
    try:
        return _read_policy_of_kind(manifest, window_ms)
    except (ValueError, OverflowError, RecursionError) as error:  # Thousands of digits or brackets, for example.
        raise RequestError("INVALID_ARGUMENT", f"{manifest.get('kind')}: out of range: {error}") from error


def _read_policy_of_kind(manifest: dict[str, Any], window_ms: int) -> AttachedPolicy:
    kind, manifest = manifest.get("kind"), _without_nulls(manifest)
    if kind == manifests.KIND:
        found = read_autoscaler(manifest, window_ms)
        wanted = found.autoscaler
        read = AttachedPolicy(kind, found.name, found.target, wanted, wanted.min_replicas, wanted.max_replicas)
    elif kind == scaled_object.KIND:
        scaled = read_scaled_object(manifest, window_ms)
        activation = scaled.activation
        least = activation.min_replicas if activation.idle_replicas is None else activation.idle_replicas
        most = scaled.autoscaler.max_replicas
        read = AttachedPolicy(kind, scaled.name, scaled.target, scaled, least, most, scaled.warnings)
    elif kind == scale_policy.KIND:
        own = read_scale_policy(manifest, window_ms)
        read = AttachedPolicy(
            kind, own.name, own.target, own, own.min_replicas, own.max_replicas, _scale_policy_warnings(own)
        )
    else:
        raise invalid_argument_error("kind", kind, " or ".join(KINDS))
    if read.target.kind not in WORKLOAD_KINDS:
        raise invalid_argument_error(f"{kind}.spec.scaleTargetRef.kind", read.target.kind, " or ".join(WORKLOAD_KINDS))
    alike = _duplicate_metric_warnings(read.autoscaler.metrics if read.autoscaler else ())
    return replace(read, warnings=(*read.warnings, *alike))


def _without_nulls(value: Any) -> Any:
    """Returns the value without null fields, which the API server treats as absent. Templates write many of them."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _scale_policy_warnings(own: ScalePolicy) -> tuple[str, ...]:
    ignored = own.drain.ignored if own.drain is not None else ()
    return tuple(f"drain.kafka.{name}: no effect: a time to drain does not look at it" for name in ignored)


def _duplicate_metric_warnings(metrics: tuple[Metric, ...]) -> list[str]:
    """Returns warnings for metrics that have the same key in reports."""
    names = [(one.source, one.name, one.container, one.object_kind, one.object_name) for one in metrics]
    return [
        f"metrics: {name}: named twice, with other selectors: both get the same values"
        for _, name, *_ in dict.fromkeys(one for one in names if names.count(one) > 1)
    ]
