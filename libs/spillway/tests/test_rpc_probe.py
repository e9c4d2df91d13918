"""A look at one endpoint: each way in which it may be wrong is told apart."""

import asyncio
import datetime as dt
import hashlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spillway import api
from spillway.rpc.calls import PLANNER, SCALING
from spillway.rpc.probe import Identity, ProbeResult, probe_instance
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.settings import OperatorError
from spillway.version import VERSION

SECONDS = 5.0


class Planner:
    def __init__(self, stale: bool = False) -> None:
        self.stale = stale

    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply:
        return api.ListClustersReply((), self.stale)

    def active_instance_address(self) -> str:
        return "127.0.0.1:7400"


async def probe_planner(settings: dict[str, Any], identity: Identity, stale: bool = False) -> ProbeResult:
    filled = RpcSettings(**{"port": 0, "stop_seconds": 0.1} | settings)
    async with RpcServer(Planner(stale), filled) as server:  # type: ignore[arg-type]
        await server.set_serving(True)
        return await probe_instance(PLANNER, f"localhost:{server.address.rpartition(':')[2]}", identity, SECONDS)


def write_certificate(folder: Path, name: str, days: int = 1) -> dict[str, str]:
    """Signed by itself, for localhost, good for so many days from yesterday on."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + dt.timedelta(days=1 + days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = {"tls_certificate": folder / f"{name}.pem", "tls_key": folder / f"{name}.key"}
    paths["tls_certificate"].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths["tls_key"].write_bytes(key.private_bytes(*form))
    return {what: str(path) for what, path in paths.items()}


@pytest.fixture
def callers(tmp_path: Path) -> str:
    file = tmp_path / "callers.json"
    entries = [
        {"name": name, "token_sha256": hashlib.sha256(name.encode()).hexdigest(), "verbs": [verb]}
        for name, verb in (("reader", "read"), ("writer", "apply"))
    ]
    file.write_text(json.dumps({"callers": entries}))
    return str(file)


@pytest.mark.parametrize("stale", [False, True])
async def test_a_planner_that_answers_says_who_is_active_and_its_version(stale: bool) -> None:
    found = await probe_planner({}, Identity(), stale)
    assert found == ProbeResult(found.endpoint, "OK", "", True, "127.0.0.1:7400", VERSION, stale)


async def test_a_token_that_may_read_is_enough(callers: str) -> None:
    assert (await probe_planner({"callers": callers}, Identity("reader"))).code == "OK"


async def test_a_wrong_token_is_told_from_one_that_may_not_ask(callers: str) -> None:
    codes = [(await probe_planner({"callers": callers}, Identity(token))).code for token in ("stranger", "writer")]
    assert codes == ["UNAUTHENTICATED", "PERMISSION_DENIED"]


async def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = await probe_instance(PLANNER, f"127.0.0.1:{taken.getsockname()[1]}", Identity(), SECONDS)
    assert (found.code, found.text.partition(":")[0]) == ("UNAVAILABLE", "nothing listens there")


async def test_another_service_there() -> None:
    async with RpcServer(Planner(), RpcSettings(port=0, stop_seconds=0.1)) as server:  # type: ignore[arg-type]
        found = await probe_instance(SCALING, server.address, Identity(), SECONDS)
    assert found.code == "NOT_FOUND"  # The health service knows no such service.


async def test_one_that_takes_connections_and_says_nothing() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await probe_instance(PLANNER, f"127.0.0.1:{port}", Identity(), 0.3)
        server.close()
    assert found.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


TLS = [
    pytest.param("good", "good", "", id="its own CA"),
    pytest.param("good", "", "speaks TLS, and we do not", id="no CA"),
    pytest.param("good", "other", "not believed", id="another CA"),
    pytest.param("old", "old", "not believed: certificate has expired", id="expired"),
    pytest.param("", "good", "does not speak TLS", id="no TLS there"),
]


@pytest.mark.parametrize(("serves", "trusts", "says"), TLS)
async def test_what_is_wrong_with_tls_is_said(tmp_path: Path, serves: str, trusts: str, says: str) -> None:
    files = {name: write_certificate(tmp_path, name, days) for name, days in (("good", 9), ("other", 9), ("old", 0))}
    identity = Identity(ca=files[trusts]["tls_certificate"] if trusts else "")
    found = await probe_planner(files[serves] if serves else {}, identity)
    if not says:
        assert (found.code, found.certificate_ends is not None) == ("OK", True)
        ends = dt.datetime.fromtimestamp(found.certificate_ends or 0, dt.UTC)
        assert dt.timedelta(days=7) < ends - dt.datetime.now(dt.UTC) < dt.timedelta(days=9)
        return
    assert found.code == "UNAVAILABLE"
    assert says in found.text
    assert found.tls_differs


async def test_a_file_of_ours_that_is_not_there_is_named() -> None:
    with pytest.raises(OperatorError, match="nowhere"):
        await probe_instance(PLANNER, "127.0.0.1:1", Identity(ca="/nowhere"), SECONDS)
