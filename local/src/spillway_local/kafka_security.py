"""Describes a secured Kafka node: TLS, users with SCRAM, and an authorizer that allows nothing by default."""

import datetime as dt
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillway_local.member_credentials import write_secret
from spillway_local.ports import LOOPBACK

BROKER, ADMINISTRATOR = "kafka", "admin"
"""Users with all rights: the node itself, and the administrator who grants rights to others."""
_SCRAM = "SCRAM-SHA-512"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_VALID_DAYS = 3650


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA in a folder of its own, created once, and the certificates that it signs."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def ensure_files(self) -> None:
        if not self.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            write_secret(self.folder / "ca.key", _private_key_pem(key))
            write_secret(
                self.certificate, _signed_certificate(key, key, "spillway-local-kafka-ca", "spillway-local-kafka-ca")
            )

    def issue_certificate(self, name: str) -> tuple[Path, Path]:
        """Returns certificate and key of a server on loopback or of a client, created once."""
        self.ensure_files()
        certificate, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if not certificate.exists():
            signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
            assert isinstance(signer, ec.EllipticCurvePrivateKey)
            key = ec.generate_private_key(ec.SECP256R1())
            write_secret(key_file, _private_key_pem(key))
            write_secret(certificate, _signed_certificate(key, signer, name, "spillway-local-kafka-ca"))
        return certificate, key_file


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """The security of one node.

    users: the users besides the node's own two; their passwords are files in the folder.
    """

    folder: Path
    users: tuple[str, ...] = ()

    @property
    def authority(self) -> Authority:
        return Authority(self.folder)

    def password_file(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def client_environment(self, user: str) -> dict[str, str]:
        """Returns the variables with which a service connects as this user."""
        return {
            "SPILLWAY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "SPILLWAY_KAFKA_SASL_MECHANISM": _SCRAM,
            "SPILLWAY_KAFKA_SASL_USERNAME": user,
            "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(self.password_file(user)),
            "SPILLWAY_KAFKA_SSL_CA_FILE": str(self.authority.certificate),
        }

    def ensure_files(self) -> None:
        """Creates certificates and passwords. Existing ones from a former run are kept."""
        certificate, key = self.authority.issue_certificate(BROKER)
        write_secret(self._keystore_file, key.read_text() + certificate.read_text())
        for user in self._all_users():
            if not self.password_file(user).exists():
                write_secret(self.password_file(user), secrets.token_urlsafe(24) + "\n")

    def write_command_config(self) -> Path:
        """Writes the properties file with which Kafka's own commands connect as the administrator."""
        word = self.password_file(ADMINISTRATOR).read_text().strip()
        file = self.folder / "admin.properties"
        lines = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _SCRAM,
            "sasl.jaas.config": f'{_LOGIN} required username="{ADMINISTRATOR}" password="{word}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }
        write_secret(file, "".join(f"{name}={value}\n" for name, value in lines.items()))
        return file

    def settings(self, port: int) -> Mapping[str, str]:
        """Returns the node's changed settings, after `ensure_files`. Nodes must show a certificate; clients may."""
        password = self.password_file(BROKER).read_text().strip()
        return {
            "listeners": f"CLIENTS://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{port + 1}",
            "advertised.listeners": f"CLIENTS://{LOOPBACK}:{port}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": _SCRAM,
            "sasl.mechanism.inter.broker.protocol": _SCRAM,
            f"listener.name.clients.{_SCRAM.lower()}.sasl.jaas.config": (
                f'{_LOGIN} required username="{BROKER}" password="{password}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.clients.ssl.client.auth": "requested",
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMINISTRATOR};User:CN={BROKER}",
        }

    def storage_format_arguments(self) -> list[str]:
        """Returns the storage tool's arguments for the users that the node knows at its first start."""
        entries = ((user, self.password_file(user).read_text().strip()) for user in self._all_users())
        return [
            word
            for user, password in entries
            for word in ("--add-scram", f"{_SCRAM}=[name={user},password={password}]")
        ]

    @property
    def _keystore_file(self) -> Path:
        return self.folder / "broker.pem"

    def _all_users(self) -> tuple[str, ...]:
        return (BROKER, ADMINISTRATOR, *self.users)


def _private_key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Returns a key as PKCS #8, the form that Kafka reads."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def _signed_certificate(
    key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, name: str, issuer: str
) -> str:
    """Returns a certificate for `key`, signed by `signer`. If both are the same key, it is the CA's own certificate."""
    is_ca = key is signer
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_x509_name(name))
        .issuer_name(_x509_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not is_ca:
        hosts = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _x509_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
