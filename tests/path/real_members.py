"""The services in one process, on clusters that are reached as a deployment reaches them, in real time."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from spillway.clusters.api import ClusterApi, ClusterApiSettings, HttpTransport
from spillway.clusters.credentials import Credentials, load_endpoint
from spillway.events import ClusterJoined
from spillway_local.in_process import InProcess


@dataclass(slots=True)
class OnRealMembers(InProcess):
    """kubeconfigs: of administrators, by cluster. accounts: folder of <service>/<cluster>.kubeconfig; None: those."""

    kubeconfigs: dict[str, Path] = field(default_factory=dict)
    accounts: Path | None = None

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def connect(self, service: str, joined: ClusterJoined) -> ClusterApi:
        own = self.accounts and self.accounts / service / f"{joined.credential}.kubeconfig"
        return open_member_api(own or self.kubeconfigs[joined.credential], joined.cluster, "spillway")

    def member_api(self, name: str) -> ClusterApi:
        if name not in self.apis:
            self.apis[name] = open_member_api(self.kubeconfigs[name], name, "kubectl")
        return self.apis[name]


def open_member_api(kubeconfig: Path, cluster: str, manager: str) -> ClusterApi:
    settings = ClusterApiSettings(field_manager=manager)
    read = partial(load_endpoint, kubeconfig.parent, kubeconfig.stem)
    return ClusterApi(HttpTransport(Credentials(read), cluster, settings), cluster, settings)
