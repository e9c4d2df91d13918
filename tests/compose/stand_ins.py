"""Images under the official tags that compose.yaml names, made from Debian's packages where no registry is reachable.

They are Debian 12 with the same programs in the same places; README.md in compose/ says what differs.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spillway_local.containers import KAFKA_IMAGE, REDIS_IMAGE
from spillway_local.kafka_server import ensure_kafka_jars
from spillway_local.kube_binary import ensure_kube_binary
from spillway_local.tools import ensure_program, print_message, run_tool

from .engine import Engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMPOSE_FILE = ROOT / "compose" / "compose.yaml"
THREE_BROKERS = ROOT / "compose" / "three-brokers.yaml"
OBSERVABILITY = ROOT / "compose" / "observability.yaml"
PYTHON, KAFKA, REDIS, KWOK = (
    "python:3.11-slim-bookworm",
    KAFKA_IMAGE,
    REDIS_IMAGE,
    "registry.k8s.io/kwok/cluster:v0.8.0-k8s.v1.36.1",
)
SPILLWAY = "spillway:local"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_TRUST = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")


def image_without_digest(image: str) -> str:
    """An image as a file of compose/ names it, without the digest that compose/.env may put behind it."""
    return re.sub(r"\$\{[A-Z]+_DIGEST:-\}$", "", image)


@dataclass(frozen=True, slots=True)
class StandIns:
    """Builds them in an engine, from a folder of its own; the engine keeps what did not change."""

    engine: Engine
    folder: Path

    def build_all_images(self) -> None:
        """All of them, and our own image by compose/Dockerfile, in the order in which one needs the other."""
        self._build_python_image()
        self._build_image_of_package(REDIS, "redis", "redis-server", "WORKDIR /data\n", {})
        jars = ensure_kafka_jars()
        self._build_image_of_package(
            KAFKA, "kafka", "default-jre-headless", _KAFKA, {"libs": jars, "kafka_run.py": HERE}
        )
        print_message(f"building {SPILLWAY} with compose/Dockerfile")
        self.engine.run_docker("build", "-q", "-t", SPILLWAY, "-f", str(ROOT / "compose" / "Dockerfile"), str(ROOT))
        binary = ensure_kube_binary()
        self._build_image(KWOK, "kwok", _KWOK, {"kube": binary.parent, "kwok_run.py": HERE})

    def _build_python_image(self) -> None:
        if self.engine.run_docker("images", "-q", PYTHON).strip():
            return
        print_message(f"a stand-in for {PYTHON}: Debian 12 by debootstrap")
        debootstrap = ensure_program("debootstrap", ("debootstrap",), "use an engine that reaches a registry.")
        files = self.folder / "debian"
        shutil.rmtree(files, ignore_errors=True)
        included = "python3,python3-venv,ca-certificates"
        run_tool((str(debootstrap), "--variant=minbase", f"--include={included}", "bookworm", str(files)), self.folder)
        # What this machine trusts: its way to the registries of packages may have a certificate of its own.
        shutil.copyfile(_CERTIFICATES, files / _CERTIFICATES.lstrip("/"))
        (files / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        changes = [part for name in _TRUST for part in ("--change", f"ENV {name}={_CERTIFICATES}")]
        archive = self.folder / "debian.tar"
        run_tool(("tar", "-C", str(files), "-cf", str(archive), "."), self.folder)
        self.engine.run_docker("import", *changes, str(archive), PYTHON)
        archive.unlink()

    def _build_image_of_package(self, tag: str, name: str, package: str, rest: str, files: Mapping[str, Path]) -> None:
        install = f"apt-get update -q && apt-get install -y -q --no-install-recommends {package}"
        self._build_image(tag, name, f"FROM {PYTHON}\nRUN {install}\n{rest}", files)

    def _build_image(self, tag: str, name: str, dockerfile: str, files: Mapping[str, Path]) -> None:
        print_message(f"a stand-in for {tag}")
        context = self.folder / name
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        (context / "Dockerfile").write_text(dockerfile)
        for target, source in files.items():
            if (source / target).is_file():
                shutil.copyfile(source / target, context / target)
            else:
                shutil.copytree(source, context / target)
        self.engine.run_docker("build", "-q", "-t", tag, str(context))


_KAFKA = """\
RUN useradd --uid 1000 appuser && install -d -o appuser /var/lib/kafka /var/lib/kafka/data /opt/kafka/config
COPY libs /opt/kafka/libs
COPY kafka_run.py /etc/kafka/docker/run
USER appuser
CMD ["python3", "/etc/kafka/docker/run"]
"""

_KWOK = f"""\
FROM {SPILLWAY}
USER root
COPY kube /kube
COPY kwok_run.py /kwok_run.py
WORKDIR /root
ENTRYPOINT ["/opt/spillway/bin/python", "/kwok_run.py"]
"""
