"""The accounts in members: with the rights of deploy/rbac everything works, and each of them is asked for.

Without one, who looks is told of it: which cluster, which verb, which resource.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

import looptime  # noqa: F401 - the plugin makes minutes of waiting take milliseconds
import pytest
import structlog

from sim.cluster import SimCluster
from sim.core.kinds import KIND_BY_PLURAL
from sim.core.rights import Account
from sim.rest import SimTransport
from sim.settings import NodeSpec
from spillway.api import RequestError
from spillway.clusters.api import (
    Change,
    ClusterApi,
    ClusterApiSettings,
    ClusterUnreachable,
    FollowingFailed,
    LogOptions,
    Refused,
)
from spillway.clusters.rights import BRIDGE_OWNER, BRIDGE_POOL, PROPAGATOR, ROLES, SNAPSHOT, AccountRole, Right, Rule
from spillway.kubernetes.objects import AnyObject, Kind
from spillway_local.in_process import InProcess, in_process_platform

from .member_work import ALL_SERVICES, FLEET, OWNER, POOL, do_everything
from .what_is_told import Listener

pytestmark = pytest.mark.looptime

ROLES_BY_ACCOUNT: dict[tuple[str, str], AccountRole] = {
    **{("snapshot", name): SNAPSHOT for name in (OWNER, POOL)},
    **{("propagator", name): PROPAGATOR for name in (OWNER, POOL)},
    ("vk-bridge", OWNER): BRIDGE_OWNER,
    ("vk-bridge", POOL): BRIDGE_POOL,
}


def give_rights_to_accounts(platform: InProcess) -> None:
    for (service, member), role in ROLES_BY_ACCOUNT.items():
        platform.account(service, member).may = role.rights()


async def test_with_the_declared_rights_everything_works_and_each_of_them_is_needed() -> None:
    """Placing, adopting, scaling, lending and back; no right is declared that nobody asks for."""
    async with in_process_platform(FLEET, ()) as platform:
        give_rights_to_accounts(platform)
        for name in ALL_SERVICES:
            platform.start_instance(name)
        await do_everything(platform)
        asked: dict[AccountRole, set[Right]] = {}
        for account, role in ROLES_BY_ACCOUNT.items():
            found = (right_as_given(role, one) for one in platform.accounts[account].asked)
            asked.setdefault(role, set()).update(found)
        for role, rights in asked.items():
            assert rights == role.rights(), f"{role.name}: beyond what is declared, or declared and not needed"


def right_as_given(role: AccountRole, asked: Right) -> Right:
    """A right is given everywhere, or in the one namespace that it is asked for in."""
    return asked if asked in role.rights() else Right(asked.verb, asked.group, asked.resource)


# ── One right less, at the door ─────────────────────────────────────────────────────────────────────────────────────

EACH_RIGHT = {
    f"{role.name}: {one.verb} {one.resource}.{one.group}".rstrip("."): (role, one)
    for role in ROLES
    for one in sorted(role.rights(), key=lambda one: (one.group, one.resource, one.verb))
}


@pytest.mark.parametrize(("role", "missing"), EACH_RIGHT.values(), ids=EACH_RIGHT)
async def test_without_a_right_the_error_names_cluster_verb_and_resource(role: AccountRole, missing: Right) -> None:
    async with SimCluster("blue") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        account = Account("system:serviceaccount:spillway:x", role.rights() - {missing})
        api = ClusterApi(SimTransport(cluster, account=account), "blue", ClusterApiSettings())
        with pytest.raises((Refused, ClusterUnreachable)) as refused:
            await use_right(api, missing)
    text = str(refused.value)
    assert "cluster blue" in text
    assert f'User "system:serviceaccount:spillway:x" cannot {missing.verb} resource "{missing.resource}"' in text
    assert f'in API group "{missing.group}"' in text


async def use_right(api: ClusterApi, right: Right) -> None:
    """Makes the request of ClusterApi that needs this right."""
    plural, _, part = right.resource.partition("/")
    if right.group == "metrics.k8s.io":
        await (api.node_metrics(5.0) if plural == "nodes" else api.pod_metrics("default", 5.0))
        return
    served = KIND_BY_PLURAL[plural]
    kind = Kind(served.group, served.version, plural, AnyObject, namespaced=served.namespaced)
    namespace = right.namespace or ("default" if served.namespaced else "")
    metadata = {"name": "one", **({"namespace": namespace} if namespace else {})}
    manifest = {"apiVersion": served.api_version, "kind": served.name, "metadata": metadata}
    match right.verb:
        case "get" if part == "log":
            async with aclosing(api.container_log_chunks(namespace, "one", LogOptions())) as chunks:
                await anext(chunks)
        case "get":
            await api.get(kind, namespace, "one")
        case "list":
            await api.list(kind)
        case "watch":
            await raise_first_failure(api.follow_objects(kind))
        case "create" if plural == "leases":
            await api.renew_node_lease("one", "uid", "me", duration_seconds=40, renewed_at=datetime.now(UTC))
        case "create":
            await api.create(kind, manifest)
        case "patch":
            subresource: Any = part
            await api.patch(kind, namespace, "one", {}, resource_version="", subresource=subresource)
        case "delete":
            await api.delete(kind, namespace, "one", uid="uid")
        case "deletecollection":
            await api.delete_collection(kind, namespace, field_selector="spec.nodeName=one")


async def raise_first_failure(following: AsyncIterator[tuple[Change, ...]]) -> None:
    """Raises the first one."""
    async with aclosing(cast(Any, following)) as batches:
        async for batch in batches:
            for change in batch:
                if isinstance(change, FollowingFailed):
                    raise change.error


# ── One rule less, in the services ──────────────────────────────────────────────────────────────────────────────────

EACH_RULE = {
    f"{role.name}: {'+'.join(rule.verbs)} {'+'.join(rule.resources)}.{rule.group}".rstrip("."): (service, cluster, rule)
    for (service, cluster), role in ROLES_BY_ACCOUNT.items()
    if (service, cluster) in (("snapshot", OWNER), ("propagator", POOL)) or service == "vk-bridge"
    for rule in role.rules
}


@pytest.mark.parametrize(("service", "cluster", "missing"), EACH_RULE.values(), ids=EACH_RULE)
async def test_without_a_rule_somebody_is_told_of_cluster_verb_and_resource(
    service: str, cluster: str, missing: Rule
) -> None:
    """In a log line, in a record, or as the answer to what was asked."""
    wanted = [f'cannot {one.verb} resource "{one.resource}" in API group "{one.group}"' for one in missing.rights()]
    async with in_process_platform(FLEET, ()) as platform:
        give_rights_to_accounts(platform)
        account, listener = platform.account(service, cluster), Listener(platform.broker)
        account.may = frozenset(account.may or ()) - set(missing.rights())
        found = False
        with structlog.testing.capture_logs() as lines:
            for name in ALL_SERVICES:
                platform.start_instance(name)
            work = asyncio.create_task(do_everything(platform))
            while not (found or work.done()):
                await asyncio.sleep(1.0)
                texts = (*(repr(line) for line in lines), *listener.texts_of_new_records())
                found = any(are_rights_told(text, cluster, wanted) for text in texts)
                lines.clear()
            if found:
                work.cancel()
                await asyncio.wait((work,))
            else:
                with pytest.raises((RequestError, Refused)) as raised:
                    await work
                assert are_rights_told(str(raised.value), cluster, wanted)


def are_rights_told(text: str, cluster: str, wanted: Collection[str]) -> bool:
    """Quotes as Python's repr has them, too."""
    return cluster in text and any(one in text.replace("\\", "") for one in wanted)
