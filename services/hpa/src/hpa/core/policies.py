"""Every declared policy, found by its workload, by its own name, and in the order of workloads. Pure.

Whoever asks for one, or for a page, looks at that one and at that page alone, however many others there are.
"""

from bisect import bisect_left, bisect_right, insort

from hpa.core.heard.heard import WorkloadKey
from hpa.core.scaled import Refused, Scaled

PolicyName = tuple[str, str]
"""Namespace, the policy's own name; a policy of each kind may have it."""


class Policies:
    """scaled, refused: by workload, which is in one of them at the most; only put and remove change them."""

    def __init__(self) -> None:
        self.scaled: dict[WorkloadKey, Scaled] = {}
        self.refused: dict[WorkloadKey, Refused] = {}
        self._keys: list[WorkloadKey] = []
        self._names: dict[WorkloadKey, PolicyName] = {}
        self._keys_by_name: dict[PolicyName, list[WorkloadKey]] = {}

    def get(self, key: WorkloadKey) -> Scaled | Refused | None:
        """The policy of a workload."""
        return self.scaled.get(key) or self.refused.get(key)

    def put(self, one: Scaled | Refused) -> None:
        """In the place of its workload's policy so far. Call it also where another object was declared in one."""
        key = one.key
        if self.get(key) is not one:
            self.remove(key)
        if isinstance(one, Scaled):
            self.scaled[key] = one
        else:
            self.refused[key] = one
        self._forget_name(key)
        self._names[key] = name = key[0], one.declared.policy
        self._keys_by_name.setdefault(name, []).append(key)
        insort(self._keys, key)

    def remove(self, key: WorkloadKey) -> Scaled | Refused | None:
        """What was there."""
        self._forget_name(key)
        return self.scaled.pop(key, None) or self.refused.pop(key, None)

    def named(self, namespace: str, policy: str, kind: str = "") -> list[Scaled | Refused]:
        """Those of that name of their own. kind: empty means any."""
        found = [self.get(key) for key in self._keys_by_name.get((namespace, policy), ())]
        return [one for one in found if one is not None and kind in ("", one.declared.kind)]

    def after(self, key: WorkloadKey | None, namespace: str = "") -> Scaled | Refused | None:
        """The first behind a workload, which need not be there; None: the first of all. namespace: of it alone."""
        begin = 0 if key is None else bisect_right(self._keys, key)
        if namespace:
            begin = max(begin, bisect_left(self._keys, (namespace, "")))
        if begin == len(self._keys) or (namespace and self._keys[begin][0] != namespace):
            return None
        return self.get(self._keys[begin])

    def _forget_name(self, key: WorkloadKey) -> None:
        name = self._names.pop(key, None)
        if name is None:
            return
        del self._keys[bisect_left(self._keys, key)]
        self._keys_by_name[name].remove(key)
        if not self._keys_by_name[name]:
            del self._keys_by_name[name]
