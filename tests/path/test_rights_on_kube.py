"""deploy/rbac on real API servers with RBAC: by these accounts everything works, and less is refused by name."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import vk_bridge.settings
from spillway.clusters.api import ClusterApi, ClusterUnreachable, Refused
from spillway.clusters.rights import BRIDGE_OWNER, BRIDGE_POOL, PROPAGATOR, SNAPSHOT, AccountRole, Right
from spillway.local_bus import LocalBroker
from spillway.store import MemoryStore
from spillway_local.kube_binary import ensure_kube_binary
from spillway_local.member_credentials import MemberAccess, read_kubeconfig, write_kubeconfig
from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.programs import running_stages
from spillway_local.pytest_infra import session_ports

from .member_work import ALL_SERVICES, FLEET, OWNER, POOL, do_everything
from .real_members import OnRealMembers, open_member_api
from .test_rights import use_right

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("SPILLWAY_KUBE") != "1", reason="minutes on control planes: `make test-kube`"),
]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120.0
FILES_BY_CLUSTER = {
    OWNER: ("namespace", "snapshot", "propagator", "vk-bridge-owner"),
    POOL: ("namespace", "snapshot", "propagator", "vk-bridge-pool"),
}
QUICK = vk_bridge.settings.VkBridgeSettings(copies_seconds=1.0, copy_unused_seconds=3.0)
MISSING = {
    "watch pods": (SNAPSHOT, OWNER, Right("watch", "", "pods")),
    "patch deployments": (PROPAGATOR, OWNER, Right("patch", "apps", "deployments")),
    "create pods": (BRIDGE_OWNER, OWNER, Right("create", "", "pods")),
    "patch nodes/status": (BRIDGE_POOL, POOL, Right("patch", "", "nodes/status")),
    "create leases": (BRIDGE_POOL, POOL, Right("create", "coordination.k8s.io", "leases", "kube-node-lease")),
}


@pytest.fixture(scope="module")
def kubeconfigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Of administrators of two control planes that ask RBAC, where deploy/rbac was applied."""
    folder = tmp_path_factory.mktemp("rbac")
    specs = tuple(MemberSpec(plan.name, plan.nodes, rbac=True) for plan in FLEET)
    members = KubeMembers(
        folder, folder / "credentials", specs, session_ports(folder, FILES_BY_CLUSTER), ensure_kube_binary()
    )
    with running_stages(members.prepare_stages(), folder / "logs"):
        found = {member.name: member.kubeconfig for member in members.members()}
        for name, files in FILES_BY_CLUSTER.items():
            for file in files:
                run_kubectl(found[name], "apply", "-f", str(ROOT / "deploy" / "rbac" / f"{file}.yaml"))
        yield found


@pytest.fixture(scope="module")
def accounts(kubeconfigs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """<service>/<cluster>.kubeconfig with a token of the service's account, made as deploy/rbac/README.md says."""
    folder = tmp_path_factory.mktemp("accounts")
    for name, admin in kubeconfigs.items():
        access = read_kubeconfig(admin)
        for service in ("snapshot", "propagator", "vk-bridge"):
            token = run_kubectl(admin, "create", "token", f"spillway-{service}", "--namespace", "spillway").strip()
            path = folder / service / f"{name}.kubeconfig"
            write_kubeconfig(path, name, MemberAccess(access.server, token, access.ca_pem))
    return folder


def run_kubectl(kubeconfig: Path, *arguments: str) -> str:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = (str(ensure_kube_binary()), "kubectl", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=kubeconfig.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_by_the_accounts_of_deploy_rbac_everything_works(kubeconfigs: dict[str, Path], accounts: Path) -> None:
    """A placement, its pods told, adopting, a node lent with pods on it and its return."""
    members: Any = dict.fromkeys(kubeconfigs)
    platform = OnRealMembers(
        LocalBroker(), MemoryStore(), members, bridge_settings=QUICK, kubeconfigs=kubeconfigs, accounts=accounts
    )
    try:
        for name in ALL_SERVICES:
            platform.start_instance(name)
        await do_everything(platform, patience=PATIENCE_SECONDS)
    finally:
        for name in list(platform.running):
            await platform.stop_instance(name)
        for api in platform.apis.values():
            await api.close()


@pytest.mark.parametrize(("role", "cluster", "missing"), MISSING.values(), ids=MISSING)
async def test_a_real_api_server_refuses_what_is_taken_away_by_name(
    kubeconfigs: dict[str, Path], accounts: Path, tmp_path: Path, role: AccountRole, cluster: str, missing: Right
) -> None:
    admin, api = (
        kubeconfigs[cluster],
        open_member_api(accounts / role.service / f"{cluster}.kubeconfig", cluster, "spillway"),
    )
    place = ("role", "--namespace", missing.namespace) if missing.namespace else ("clusterrole",)
    given = json.loads(run_kubectl(admin, "get", *place, f"spillway-{role.name}", "-o", "json"))
    for rule in given["rules"]:
        if missing.group in rule["apiGroups"] and missing.resource in rule["resources"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != missing.verb]
    given["rules"] = [rule for rule in given["rules"] if rule["verbs"]]
    less = tmp_path / "less.json"
    less.write_text(json.dumps(given))
    try:
        run_kubectl(admin, "replace", "-f", str(less))
        text = await refusal_text(api, missing)
        user = f'User "system:serviceaccount:spillway:spillway-{role.service}"'
        assert f"cluster {cluster}" in text
        assert f'{user} cannot {missing.verb} resource "{missing.resource}" in API group "{missing.group}"' in text
    finally:
        run_kubectl(admin, "apply", "-f", str(ROOT / "deploy" / "rbac" / f"{role.name}.yaml"))
        await api.close()


async def refusal_text(api: ClusterApi, missing: Right) -> str:
    """What is said once the API server knows of it."""
    async with asyncio.timeout(30):
        while True:
            with suppress(TimeoutError):
                try:
                    async with asyncio.timeout(3):
                        await use_right(api, missing)
                except (Refused, ClusterUnreachable) as error:
                    if "forbidden" in str(error).lower():
                        return str(error)
            await asyncio.sleep(0.2)
