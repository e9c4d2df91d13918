"""Where a cluster's API is and how we are known there, read from a named kubeconfig file."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Kubernetes API and our credentials for it; secrets are kept out of its repr."""

    server: str
    ca: bytes | None = None  # PEM; None is the system's own trust store
    token: str | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)  # PEM
    client_key: bytes | None = field(default=None, repr=False)  # PEM
    insecure: bool = False
    tls_server_name: str | None = None
