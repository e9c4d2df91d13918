"""Creates a member's certificate, keys, token and kubeconfig once, so that a restart finds the same ones."""

import base64
import datetime as dt
import ipaddress
import json
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillway_local.ports import LOOPBACK

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The common name in the client certificate that kubeadm gives an API server for kubelets."""
_VALID_DAYS = 3650


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """The access of an administrator to one member's API."""

    server: str
    token: str = field(repr=False)
    ca_pem: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_pem)


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The files that a member's API server reads."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "apiserver.crt"

    @property
    def certificate_key(self) -> Path:
        return self.folder / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "sa.key"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def ensure_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ensure_certificate(self.certificate, self.certificate_key, "spillway-local-member")
        if not self.service_account_key.exists():
            write_secret(self.service_account_key, _private_pem(ec.generate_private_key(ec.SECP256R1())))
        if not self.tokens.exists():
            write_secret(self.tokens, f'{secrets.token_urlsafe(24)},admin,admin,"system:masters"\n')

    def access(self, port: int) -> MemberAccess:
        token = self.tokens.read_text().split(",", 1)[0]
        return MemberAccess(f"https://{LOOPBACK}:{port}", token, self.certificate.read_text())


@dataclass(frozen=True, slots=True)
class KubeletClientFiles:
    """The certificate by which kubelets know a member's API server; it is its own authority."""

    folder: Path
    member: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.member}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.member}.key"

    def ensure_files(self) -> None:
        ensure_certificate(self.certificate, self.key, KUBELET_CLIENT, serves=False)


def ensure_certificate(
    certificate: Path, key_file: Path, name: str, *, serves: bool = True, hosts: Sequence[str] = ("localhost",)
) -> None:
    """Creates a self-signed certificate once.

    serves: it is for a server on 127.0.0.1 and hosts; otherwise for a client.
    """
    if not certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        write_secret(key_file, _private_pem(key))
        write_secret(certificate, _self_signed_certificate(key, name, hosts, serves=serves))


def read_kubeconfig(file: Path) -> MemberAccess:
    content = json.loads(file.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    ca_pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return MemberAccess(cluster["server"], user["token"], ca_pem)


def write_kubeconfig(file: Path, name: str, access: MemberAccess) -> None:
    """Writes a kubeconfig as JSON, which is YAML too, so that every client reads it. CA and token may be absent."""
    cluster = {"server": access.server}
    if access.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca_pem.encode()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": access.token} if access.token else {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    write_secret(file, json.dumps(content, indent=2) + "\n")


def write_secret(file: Path, content: str) -> None:
    """Replaces the file in one step, readable only by its owner."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text(content)
    fresh.replace(file)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def _self_signed_certificate(
    key: ec.EllipticCurvePrivateKey, common_name: str, hosts: Sequence[str], *, serves: bool
) -> str:
    """Returns a certificate that is its own authority, so that the other side can verify it fully."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
    now = dt.datetime.now(dt.UTC)
    names = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), *map(x509.DNSName, hosts)]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
