"""Computes the limits that a shape's volume claims set on nodes in one cluster, and reports what is not computed.

Source: the kube-scheduler's plugins VolumeBinding, for claims that are bound, and VolumeZone (v1.36). The collector
converts volumes to limits (snapshot's core/volumes.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spillway.model import NamespaceFacts, Shape, VolumeClaim, VolumeLimit

ONE_NODE = "{}: that its pods must share a node"
ONE_POD = "{}: that one pod at a time may use it"


@dataclass(frozen=True, slots=True)
class NamespaceClaims:
    """The known volume claims of one namespace of one cluster. left_out: True if there are more claims than these.

    unread: the resources (claims, volumes) that our account has no right to read there.
    """

    claims: Mapping[str, VolumeClaim] = field(default_factory=dict)
    left_out: bool = False
    unread: str = ""


NO_CLAIMS = NamespaceClaims()


def volume_claims_of(facts: NamespaceFacts) -> NamespaceClaims:
    if not (facts.volume_claims or facts.volume_claims_left_out):
        return NO_CLAIMS
    return NamespaceClaims({claim.name: claim for claim in facts.volume_claims}, facts.volume_claims_left_out)


def with_volume_limits(shape: Shape, known: NamespaceClaims) -> Shape:
    """Returns the shape with the volume limits of the cluster whose claims are given."""
    limits: list[VolumeLimit] = []
    for name in shape.volume_claims:
        if name in known.claims:
            limits.extend(known.claims[name].limits)
    found = tuple(limits)
    return shape if found == shape.volume_limits else replace(shape, volume_limits=found)


def volume_claim_warnings(there: Iterable[tuple[str, Shape, NamespaceClaims]]) -> tuple[str, ...]:
    """Returns warnings for the user about volume claims that the computation ignores.

    there: (cluster, shape in that cluster, claims of the shape's namespace there).
    """
    clusters_by_text: dict[str, list[str]] = {}
    for cluster, shape, known in there:
        for name in shape.volume_claims:
            for why in _reasons_not_computed(known, name):
                clusters_by_text.setdefault(f"volume claim {name} in {{}}: {why}", []).append(cluster)
    return tuple(text.format(", ".join(clusters)) for text, clusters in clusters_by_text.items())


def _reasons_not_computed(known: NamespaceClaims, name: str) -> Iterable[str]:
    claim = known.claims.get(name)
    if known.unread and (claim is None or not claim.bound):
        yield f"our account may not read on which nodes its volume is: {known.unread}"
        return
    if claim is None:
        yield (
            "not known of so many there" if known.left_out else "it is not there yet: on which nodes its volume will be"
        )
        return
    if not claim.bound:
        yield "it is not bound yet: on which nodes its volume will be"
    if claim.attached:
        yield f"to how many volumes a node can be attached by {claim.attached}"
    if claim.once:
        yield (ONE_POD if claim.once == "ReadWriteOncePod" else ONE_NODE).format(claim.once)
