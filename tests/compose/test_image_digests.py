"""The digests behind compose's images: where they are read, written and looked at; with an engine, that they count."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillway_local import image_digests
from spillway_local.image_digests import (
    NoDigest,
    Pin,
    named_images,
    pin_troubles,
    pins_file_text,
    pull_image_digest,
    read_pins,
)
from spillway_local.programs import Program, start_child
from spillway_local.tools import ensure_program

from .engine import Engine
from .stand_ins import KAFKA, KWOK, PYTHON, REDIS, ROOT

COMPOSE = ROOT / "compose"
DIGEST = "sha256:" + 64 * "a"
READY_SECONDS = 30.0


def test_every_image_that_is_not_ours_may_have_a_digest() -> None:
    named = named_images(COMPOSE)
    assert {named[f"{name}_DIGEST"] for name in ("KAFKA", "REDIS", "KWOK", "PYTHON")} == {KAFKA, REDIS, KWOK, PYTHON}
    lines = [line for file in COMPOSE.glob("*.yaml") for line in file.read_text().splitlines() if " image: " in line]
    assert all("_DIGEST:-}" in line or line.endswith(" spillway:local") for line in lines)


def test_what_is_pinned_is_what_compose_names() -> None:
    file = COMPOSE / ".env"
    if not file.exists():
        pytest.skip("no compose/.env: `make pin-images` writes it where an engine reaches the registries")
    assert pin_troubles(named_images(COMPOSE), read_pins(file.read_text())) == []


def test_one_variable_stands_for_one_image(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3${A_DIGEST} AS build\nFROM python:3${A_DIGEST}\n")
    (tmp_path / "one.yaml").write_text("services:\n  x:\n    image: redis:7${B_DIGEST:-}\n")
    assert named_images(tmp_path) == {"A_DIGEST": "python:3", "B_DIGEST": "redis:7"}
    (tmp_path / "two.yaml").write_text("services:\n  x:\n    image: redis:8${B_DIGEST:-}\n")
    with pytest.raises(ValueError, match=r"two\.yaml: B_DIGEST: 'redis:8': expected 'redis:7', as elsewhere"):
        named_images(tmp_path)


def test_what_is_written_is_read_again() -> None:
    pins = {"KAFKA_DIGEST": Pin(KAFKA, DIGEST), "KWOK_DIGEST": Pin(KWOK, DIGEST)}
    assert read_pins(pins_file_text(pins)) == pins


NAMED = {"REDIS_DIGEST": "redis:7"}
TROUBLES: dict[str, tuple[dict[str, Pin], list[str]]] = {
    "pinned": ({"REDIS_DIGEST": Pin("redis:7", DIGEST)}, []),
    "not pinned": ({}, ["REDIS_DIGEST: redis:7: no digest"]),
    "another tag": (
        {"REDIS_DIGEST": Pin("redis:6", DIGEST)},
        ["REDIS_DIGEST: redis:7: the digest is of redis:6, which is what would run"],
    ),
    "cut": (
        {"REDIS_DIGEST": Pin("redis:7", DIGEST[:-1])},
        [f"REDIS_DIGEST: {DIGEST[:-1]!r}: expected sha256: and 64 hexadecimal digits"],
    ),
    "named no more": (
        {"REDIS_DIGEST": Pin("redis:7", DIGEST), "OLD_DIGEST": Pin("old:1", DIGEST)},
        ["OLD_DIGEST: old:1: no image is named by it"],
    ),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_what_is_not_pinned_or_as_something_else_is_said(case: str) -> None:
    pins, said = TROUBLES[case]
    assert pin_troubles(NAMED, pins) == said


class FakeEngine:
    """Knows an image's digests by repository."""

    def __init__(self, *known: str) -> None:
        self.known, self.asked = known, list[tuple[str, ...]]()

    def __call__(self, *arguments: str) -> str:
        self.asked.append(arguments)
        return json.dumps(self.known or None) if arguments[0] == "image" else ""


@pytest.mark.parametrize("image", ["redis:7", "apache/kafka:4.3.1", "127.0.0.1:5000/redis:7"])
def test_the_digest_is_of_the_same_repository_as_it_was_pulled_from(image: str) -> None:
    repository = image.rpartition(":")[0]
    engine = FakeEngine(f"mirror/{repository}@sha256:{64 * 'b'}", f"{repository}@{DIGEST}")
    assert pull_image_digest(image, engine) == DIGEST
    assert engine.asked[0] == ("pull", "--quiet", image)


def test_what_was_built_here_has_no_digest() -> None:
    with pytest.raises(NoDigest, match=r"redis:7: the engine knows \[\]: expected redis@sha256"):
        pull_image_digest("redis:7", FakeEngine())


# ── With an engine and a registry of our own: make test-compose ─────────────────────────────────────────────────────


@contextmanager
def run_registry(folder: Path) -> Iterator[str]:
    """host:port of a docker-registry (Debian's package) that runs on loopback until the test ends."""
    program = ensure_program("docker-registry", ("docker-registry",), "leave `make test-compose` out.")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    (folder / "registry.yml").write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": place}}))
    command = (str(program), "serve", str(folder / "registry.yml"))
    child = start_child(Program("registry", command, folder), folder / "registry.log")
    try:
        child.wait_ready(lambda: _is_answering(place), READY_SECONDS)
        yield place
    finally:
        child.stop()


def _is_answering(place: str) -> bool:
    host, _, port = place.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.timeout(900)
def test_a_tag_that_is_moved_changes_nothing_of_what_is_pinned(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_registry(tmp_path) as place:
        image = f"{place}/shown:1"
        (tmp_path / "Dockerfile").write_text("")
        (tmp_path / "compose.yaml").write_text(
            f"services:\n  shown:\n    image: {image}${{SHOWN_DIGEST:-}}\n    command: [cat, /shown]\n"
        )
        push_image(engine, tmp_path, image, "first")
        for name, value in engine.docker_environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["image_digests", "--folder", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            image_digests.main()
        assert ended.value.code == 0
        push_image(engine, tmp_path, image, "second")
        assert output_of_pinned_image(engine, tmp_path, ".env").endswith("first")
        (tmp_path / "none.env").touch()
        assert output_of_pinned_image(engine, tmp_path, "none.env").endswith("second")


def push_image(engine: Engine, folder: Path, image: str, text: str) -> None:
    """An image that says a text; the engine keeps none of it, so that the next run asks the registry."""
    context = folder / "image"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(f"FROM {PYTHON}\nRUN echo {text} > /shown\n")
    engine.run_docker("build", "-q", "-t", image, str(context))
    engine.run_docker("push", "-q", image)
    engine.run_docker("rmi", "-f", image)


def output_of_pinned_image(engine: Engine, folder: Path, digests: str) -> str:
    files, name = (folder / "compose.yaml",), ("-p", "spillway-pinned")
    try:
        return engine.run_compose(files, *name, "run", "--rm", "-T", "shown", digests=folder / digests).strip()
    finally:
        engine.run_compose(files, *name, "down", digests=folder / digests)
