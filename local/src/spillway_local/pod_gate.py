"""Asks a real API server by dry runs, for tests, which pods it admits at each level of Pod Security."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spillway.kubernetes.pod_security import ANY, ENFORCE_LABEL, LEVELS

_WHOLE: Final = 'jsonpath={@}{"\\n"}'
_WORDS: Final = re.compile(r'[Pp]ods? "([^"]+)" is (?:forbidden|invalid): (.*)')


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The result of dry runs.

    let_in: the admitted pods, as the API server would store them.
    refused: the API server's reason for each other pod.
    """

    let_in: dict[str, dict[str, Any]]
    refused: dict[str, str]


@dataclass(frozen=True, slots=True)
class PodGate:
    """One member with a namespace for each level, named after the level."""

    binary: Path
    kubeconfig: Path

    def make_namespaces(self) -> None:
        """Creates one namespace for each level. The namespace of `any` has no label."""
        for level in LEVELS:
            labels = {} if level == ANY else {ENFORCE_LABEL: level}
            metadata = {"name": level, "labels": labels}
            self._run_kubectl(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, "create"
            ).check_returncode()

    def try_pods(self, pods: Mapping[str, Mapping[str, Any]], level: str) -> DryRunResult:
        """Tries pods at a level by dry runs. pods: each under any key; the result uses the same keys.

        Of a pod's metadata only labels and annotations are sent.
        """
        called = {f"pod-{index}": name for index, name in enumerate(pods)}
        items = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": _renamed_metadata(pods[name], sent),
                "spec": pods[name]["spec"],
            }
            for sent, name in called.items()
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        # This is how services write. Otherwise kubectl checks the fields first, and sends no pod if one has unknown
        # fields.
        tries = ("create", "--validate=ignore", "--dry-run=server")
        done = self._run_kubectl(listed, *tries, "-o", _WHOLE, "--namespace", level)
        kept = [json.loads(line) for line in done.stdout.splitlines()]
        let_in = {called[pod["metadata"]["name"]]: pod for pod in kept}
        return DryRunResult(let_in, {called[sent]: words for sent, words in _WORDS.findall(done.stderr)})

    def _run_kubectl(self, given: Mapping[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (str(self.binary), "kubectl", *arguments, "-f", "-")
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            command, input=json.dumps(given), capture_output=True, text=True, check=False, env=environment
        )


def _renamed_metadata(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    kept = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    return {"name": name, **kept}
