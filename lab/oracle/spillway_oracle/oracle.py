"""Runs the oracle as a process and asks it by JSON lines through pipes. Its state stays until the next load."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from spillway.kubernetes.objects import Manifest

from .binary import ensure_oracle

FIRST, LAST, RANDOM, SCORE, SAMPLED, EXTREMES = "first", "last", "random", "score", "sampled", "extremes"


class OracleFailed(RuntimeError):
    """Raised with the oracle's message when it ended or could not do a request."""


@dataclass(frozen=True, slots=True)
class Place:
    """Replicas of one pod template, placed one after the other until one finds no node.

    mode: the choice among fitting nodes. FIRST or LAST by name, RANDOM by the seed, SCORE the best by the scheduler's
    scores (of equals one by the seed), SAMPLED the best of as many nodes as the scheduler itself looks for. EXTREMES
    tries every sequence of choices and keeps nothing.
    keep: the replicas stay for later requests. name: pods are called name-0, name-1, ….
    sequence: return the node of each in order. pod: return the pod as the API server would store it.
    """

    namespace: str
    template: Manifest
    replicas: int
    mode: str = FIRST
    seed: int = 0
    name: str = ""
    keep: bool = False
    sequence: bool = False
    pod: bool = False
    states_max: int = 0

    def json_object(self) -> Manifest:
        return {
            "namespace": self.namespace,
            "template": self.template,
            "replicas": self.replicas,
            "mode": self.mode,
            "seed": self.seed,
            "name": self.name,
            "keep": self.keep,
            "sequence": self.sequence,
            "pod": self.pod,
            "statesMax": self.states_max,
        }


class Refusal(msgspec.Struct, frozen=True):
    plugin: str
    reasons: tuple[str, ...] | None = ()


class Placed(msgspec.Struct, frozen=True):
    """The result of a Place. nodes: replicas by node.

    refused: by node, why the first replica without a node did not fit there; empty if all fitted.
    least, most: of EXTREMES, the fewest and the most replicas at the end of any sequence of choices.
    error: why nothing could be placed, usually the API server's refusal of the pod.
    """

    count: int = 0
    nodes: Mapping[str, int] = {}
    refused: Mapping[str, Refusal] = {}
    sequence: tuple[str, ...] = ()
    pod: dict[str, Any] | None = None
    least: int | None = None
    most: int | None = None
    error: str = ""


class Answer(msgspec.Struct, frozen=True):
    placed: tuple[Placed, ...] = ()
    admitted: tuple[dict[str, Any], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. The oracle does its parts in this order.

    load: lists of objects by name (nodes, pods, namespaces, volumes, claims, storageClasses).
    assume: pods to bind to the nodes that they name, even if they do not fit. remove: namespace/name of removed pods.
    admit: pods whose stored form to return.
    """

    load: Mapping[str, Any] | None = None
    assume: Sequence[Manifest] = ()
    remove: Sequence[str] = ()
    place: Sequence[Place] = ()
    admit: Sequence[Manifest] = ()

    def json_object(self) -> Manifest:
        return {
            "load": self.load,
            "assume": self.assume,
            "remove": self.remove,
            "place": [entry.json_object() for entry in self.place],
            "admit": self.admit,
        }


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Answer)


@dataclass(slots=True)
class Oracle:
    """The running oracle, as a context manager. It builds the program first if it is missing."""

    program: Path = field(default_factory=ensure_oracle)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen((str(self.program),), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def send_request(self, request: Request) -> Answer:
        """Returns the answer to a request. Raises OracleFailed when the whole request failed."""
        self._write_request(request)
        return self._read_answer()

    def send_requests(self, requests: Sequence[Request], ahead: int = 8) -> Iterator[Answer]:
        """Yields answers in order. Sends `ahead` requests before the caller takes earlier answers.

        ahead is small, so that neither side waits for the other with a full pipe.
        """
        for index in range(len(requests) + ahead):
            if index < len(requests):
                self._write_request(requests[index])
            if index >= ahead:
                yield self._read_answer()

    def _write_request(self, request: Request) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_ENCODER.encode(request.json_object()) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise OracleFailed(f"{self.program} has ended") from None

    def _read_answer(self) -> Answer:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OracleFailed(f"{self.program} ended with {self._process.wait()}")
        answer = _DECODER.decode(line)
        if answer.error:
            raise OracleFailed(answer.error)
        return answer


def main() -> None:
    """Asks the oracle the requests on standard input, one a line, in the format of the program itself."""
    subprocess.run((str(ensure_oracle()),), stdin=sys.stdin, check=True)


if __name__ == "__main__":
    main()
