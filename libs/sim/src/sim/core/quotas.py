"""ResourceQuota: the resources that the pods of a namespace use, and whether one more pod is allowed."""

from collections.abc import Mapping
from typing import Any

from sim.core.kinds import KIND_BY_PLURAL, Key, Object
from sim.core.pods import is_terminal
from sim.core.quantity import parse_amount, quantity_text
from sim.core.shape import PodShape
from sim.core.world import World

_PLURAL = "resourcequotas"
_MUST_BE_ASKED = ("cpu", "memory")


class Quotas:
    def __init__(self, world: World) -> None:
        self._world = world
        self._used_by_namespace: dict[str, dict[str, int]] = {}
        self._keys_by_namespace: dict[str, dict[Key, None]] = {}
        self.dirty: dict[str, None] = {}
        """Namespaces whose quotas' status must be written again."""

    def on_quota(self, key: Key, new: Object | None) -> None:
        keys = self._keys_by_namespace.setdefault(key[0], {})
        if new is None:
            keys.pop(key, None)
        else:
            keys[key] = None
            self.dirty[key[0]] = None

    def on_pod(self, shape: PodShape, old: Object | None, new: Object | None) -> bool:
        """Notes a change of a pod. Returns whether the namespace uses less now."""
        before = old is not None and not is_terminal(old)
        after = new is not None and not is_terminal(new)
        if before == after:
            return False
        used = self._used_by_namespace.setdefault(shape.namespace, {})
        for name, amount in shape.requests:
            used[name] = used.get(name, 0) + (amount if after else -amount)
        if self._keys_by_namespace.get(shape.namespace):
            self.dirty[shape.namespace] = None
        return before

    def pod_refusal_reason(self, shape: PodShape) -> str:
        """Returns why another pod of this shape is refused; empty when it is allowed."""
        used = self._used_by_namespace.get(shape.namespace, {})
        asked = dict(shape.requests)
        for key in self._keys_by_namespace.get(shape.namespace, ()):
            quota = self._world.store.tables[_PLURAL][key]
            hard = _hard_limits(quota)
            missing = [name for name in _MUST_BE_ASKED if name in hard and not asked.get(name)]
            if missing:
                wanted = ",".join(hard[name][0] for name in missing)
                return f"failed quota: {key[1]}: must specify {wanted}"
            over = [name for name, (_, limit) in hard.items() if used.get(name, 0) + asked.get(name, 0) > limit]
            over = [name for name in over if asked.get(name)]
            if over:
                return _exceeded_text(key[1], hard, sorted(over), (asked, used))
        return ""

    def write_status(self) -> int:
        """Writes the status of changed quotas. Returns the number of quotas that were looked at."""
        count = 0
        for namespace in self.dirty:
            used = self._used_by_namespace.get(namespace, {})
            for key in self._keys_by_namespace.get(namespace, ()):
                quota = self._world.store.tables[_PLURAL][key]
                hard = (quota.get("spec") or {}).get("hard") or {}
                texts = {
                    field: quantity_text(name, used.get(name, 0)) for name, (field, _) in _hard_limits(quota).items()
                }
                self._world.put_status(_PLURAL, quota, {"hard": hard, "used": texts})
                count += 1
        self.dirty = {}
        return count


def _hard_limits(quota: Object) -> dict[str, tuple[str, int]]:
    """Returns by resource the field as written, and the limit. Limits on things other than pods are not enforced."""
    found = {}
    for field, text in ((quota.get("spec") or {}).get("hard") or {}).items():
        name = field.removeprefix("requests.").removeprefix("count/")
        if not field.startswith(("limits.", "count/")) or field == "count/pods":
            found[name] = (field, parse_amount(name, text))
    return found


def _exceeded_text(
    quota: str,
    hard: Mapping[str, tuple[str, int]],
    over: list[str],
    amounts: tuple[Mapping[str, int], Mapping[str, int]],
) -> str:
    asked, used = amounts

    def amounts_text(amount_by_name: Mapping[str, int]) -> str:
        return ",".join(f"{hard[name][0]}={quantity_text(name, amount_by_name.get(name, 0))}" for name in over)

    limits = {name: limit for name, (_, limit) in hard.items()}
    detail = f"requested: {amounts_text(asked)}, used: {amounts_text(used)}, limited: {amounts_text(limits)}"
    return f"exceeded quota: {quota}, {detail}"


def pod_refused_text(name: str, why: str) -> str:
    return f'{KIND_BY_PLURAL["pods"].qualified_name} "{name}" is forbidden: {why}'


def failed_create_condition(message: str, stamp: str) -> dict[str, Any]:
    return {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": message,
        "lastTransitionTime": stamp,
    }
