"""A draft of the state: a request is decided on a copy of the few workloads that it is about. Pure.

So the state does not change until the records of the request's events have been built (docs/adr/0037).
"""

import heapq
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import TypeVar

from hpa.core.heard.heard_record import WorkloadKey
from hpa.core.policies import Policies
from hpa.core.scaled import ScaledWorkload
from hpa.core.state import HpaState

T = TypeVar("T")


class Draft:
    """A copy of the state for some workloads, on which one request is decided.

    state: like the origin, but with these workloads only. Decisions on it do not change the origin, with one exception:
    both share `positions`. That is safe, because the positions of written states are in the log in any case.
    """

    def __init__(self, origin: HpaState, keys: Iterable[WorkloadKey]) -> None:
        self._keys = tuple(keys)
        self.state = state = copy(origin)
        state.policies = Policies()
        state.scaled, state.refused = state.policies.scaled, state.policies.refused
        for policy in (origin.policies.policy_of(key) for key in self._keys):
            if policy is not None:
                apart = replace(policy, unseen=list(policy.unseen)) if isinstance(policy, ScaledWorkload) else policy
                state.policies.put_policy(apart)
        state.inputs = {key: inputs.copy() for key, inputs in self._select_workloads(origin.inputs).items()}
        state.decided, state.states = self._select_workloads(origin.decided), self._select_workloads(origin.states)
        state.changed = self._select_workloads(origin.changed)
        state.dropped, state.failed, state.dues = {}, [], []
        state.failing = {one for one in origin.failing if one[0] in self._keys}

    def apply_to(self, origin: HpaState) -> None:
        """Copies these workloads from the draft into the origin. The origin must not have changed since the draft."""
        state = self.state
        for key in self._keys:
            policy = state.policies.policy_of(key)
            if policy is None:
                origin.policies.remove_policy(key)
            else:
                origin.policies.put_policy(policy)
        self._replace_workloads(state.inputs, origin.inputs)
        self._replace_workloads(state.decided, origin.decided)
        self._replace_workloads(state.states, origin.states)
        self._replace_workloads(state.changed, origin.changed)
        for due in state.dues:
            heapq.heappush(origin.dues, due)
        for why, count in state.dropped.items():
            origin.dropped[why] = origin.dropped.get(why, 0) + count
        origin.failed += state.failed
        origin.failing |= state.failing

    def _select_workloads(self, known: dict[WorkloadKey, T]) -> dict[WorkloadKey, T]:
        return {key: known[key] for key in self._keys if key in known}

    def _replace_workloads(self, known: dict[WorkloadKey, T], into: dict[WorkloadKey, T]) -> None:
        for key in self._keys:
            into.pop(key, None)
        into.update(known)
