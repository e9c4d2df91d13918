"""Indexes all declared policies by workload and by their own name, and sorts them by workload. Pure.

The cost of looking up one policy or one page does not grow with the number of other policies.
"""

from bisect import bisect_left, bisect_right, insort

from hpa.core.heard.heard_record import WorkloadKey
from hpa.core.scaled import RefusedPolicy, ScaledWorkload

PolicyName = tuple[str, str]
"""Namespace and the policy's own name. A policy of each kind may have that name."""


class Policies:
    """All policies by workload. A workload is in at most one of `scaled` and `refused`.

    scaled: the policies in force.
    refused: the policies that cannot be read. Only put_policy and remove_policy change the two.
    """

    def __init__(self) -> None:
        self.scaled: dict[WorkloadKey, ScaledWorkload] = {}
        self.refused: dict[WorkloadKey, RefusedPolicy] = {}
        self._keys: list[WorkloadKey] = []
        self._names: dict[WorkloadKey, PolicyName] = {}
        self._keys_by_name: dict[PolicyName, list[WorkloadKey]] = {}

    def policy_of(self, key: WorkloadKey) -> ScaledWorkload | RefusedPolicy | None:
        """Returns the policy of a workload, or None."""
        return self.scaled.get(key) or self.refused.get(key)

    def put_policy(self, one: ScaledWorkload | RefusedPolicy) -> None:
        """Stores the policy of a workload in place of an earlier one. Call it again after its `declared` changed."""
        key = one.key
        if self.policy_of(key) is not one:
            self.remove_policy(key)
        if isinstance(one, ScaledWorkload):
            self.scaled[key] = one
        else:
            self.refused[key] = one
        self._forget_name(key)
        self._names[key] = name = key[0], one.declared.policy
        self._keys_by_name.setdefault(name, []).append(key)
        insort(self._keys, key)

    def remove_policy(self, key: WorkloadKey) -> ScaledWorkload | RefusedPolicy | None:
        """Removes and returns the policy of a workload, or returns None."""
        self._forget_name(key)
        return self.scaled.pop(key, None) or self.refused.pop(key, None)

    def policies_named(self, namespace: str, policy: str, kind: str = "") -> list[ScaledWorkload | RefusedPolicy]:
        """Returns the policies whose own name is `policy`. kind: empty for policies of any kind."""
        found = [self.policy_of(key) for key in self._keys_by_name.get((namespace, policy), ())]
        return [one for one in found if one is not None and kind in ("", one.declared.kind)]

    def next_policy_after(self, key: WorkloadKey | None, namespace: str = "") -> ScaledWorkload | RefusedPolicy | None:
        """Returns the next policy after a workload in their order, for paging; for None, the first one of all.

        namespace: limits the search to this namespace.
        """
        begin = 0 if key is None else bisect_right(self._keys, key)
        if namespace:
            begin = max(begin, bisect_left(self._keys, (namespace, "")))
        if begin == len(self._keys) or (namespace and self._keys[begin][0] != namespace):
            return None
        return self.policy_of(self._keys[begin])

    def _forget_name(self, key: WorkloadKey) -> None:
        name = self._names.pop(key, None)
        if name is None:
            return
        del self._keys[bisect_left(self._keys, key)]
        self._keys_by_name[name].remove(key)
        if not self._keys_by_name[name]:
            del self._keys_by_name[name]
