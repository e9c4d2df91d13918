"""The Job controller: runs a number of pods at a time until enough have succeeded, or too many failed.

A pod's annotations say how long it runs and how it ends (pods.RUN_SECONDS, pods.ENDS_AS). Not modelled: indexed
completions, back-off between failures, finalizers of pods, deadlines, ttlSecondsAfterFinished, pod failure policies.
"""

from typing import Any

from sim.core.kinds import Key, Object
from sim.core.owners import Owners
from sim.core.pods import is_active, is_ready, scale_in_victims


class Jobs(Owners):
    plural = "jobs"

    def reconcile_owner(self, key: Key, found: Object, limit: int) -> int:
        if _has_condition(found, "Complete") or _has_condition(found, "Failed"):
            return 0
        pods, spec = self.pods_of(found), found["spec"]
        active = [pod for pod in pods if is_active(pod)]
        succeeded, failed = _count_pods_in_phase(pods, "Succeeded"), _count_pods_in_phase(pods, "Failed")
        end = _end_condition(spec, len(active), succeeded, failed)
        # The active pods of a Job that has ended or is suspended are deleted.
        wanted = 0 if end or spec["suspend"] else _wanted_active_pods(spec, len(active), succeeded)
        writes = self._scale_pods(key, found, active, wanted, limit)
        self._write_status(key, succeeded, failed, end)
        return writes

    def _scale_pods(self, key: Key, found: Object, active: list[Object], wanted: int, limit: int) -> int:
        if wanted < len(active):
            for pod in scale_in_victims(active, len(active) - wanted):
                self._garbage.delete_pod(pod)
            return len(active) - wanted
        for made in range(wanted - len(active)):
            if made >= limit:
                self.dirty[key] = None
                return made
            name = self._world.unused_name("pods", key[0], f"{key[1]}-")
            if not self.make_pod(found, name, {"job-name": key[1]}):
                return made
        return wanted - len(active)

    def _write_status(self, key: Key, succeeded: int, failed: int, end: str) -> None:
        found = self._world.store.tables[self.plural][key]
        active = [pod for pod in self.pods_of(found) if is_active(pod)]
        before = found.get("status") or {}
        counts = {
            "active": len(active),
            "succeeded": succeeded,
            "failed": failed,
        }
        status: dict[str, Any] = {name: count for name, count in counts.items() if count}
        status["ready"] = sum(1 for pod in active if is_ready(pod))
        status["startTime"] = before.get("startTime", self._world.timestamp())
        kind = end or ("Suspended" if found["spec"]["suspend"] else "")
        if kind == "Complete":
            status["completionTime"] = self._world.timestamp()
        if kind:
            same = [one for one in before.get("conditions") or () if one["type"] == kind]
            new = {"type": kind, "status": "True", "lastTransitionTime": self._world.timestamp()}
            status["conditions"] = same or [new]
        self._world.put_status(self.plural, found, status)


def _wanted_active_pods(spec: dict[str, Any], active: int, succeeded: int) -> int:
    """Returns the number of active pods wanted.

    Without completions the pods share a queue of work: once one has succeeded, no more are made.
    """
    completions = spec.get("completions")
    if completions is None:
        return active if succeeded else int(spec["parallelism"])
    return min(int(spec["parallelism"]), max(0, int(completions) - succeeded))


def _end_condition(spec: dict[str, Any], active: int, succeeded: int, failed: int) -> str:
    if failed > spec["backoffLimit"]:
        return "Failed"
    completions = spec.get("completions")
    if completions is None:
        return "Complete" if succeeded and not active else ""
    return "Complete" if succeeded >= completions else ""


def _count_pods_in_phase(pods: list[Object], phase: str) -> int:
    return sum(1 for pod in pods if pod["status"].get("phase") == phase)


def _has_condition(found: Object, kind: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
