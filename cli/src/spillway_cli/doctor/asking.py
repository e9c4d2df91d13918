"""Collects from an installation the facts that the doctor checks, and passes each to the module that judges it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from spillway import api
from spillway.api import RequestError
from spillway.api_lending import LentNode, ListLendingRequest, ListLentRequest
from spillway.api_scaling import ExplainPolicyReply, ExplainPolicyRequest, ListPoliciesRequest, PolicyReply
from spillway.bus import BusUnavailable
from spillway.kafka.access import load_kafka_access
from spillway.kafka.inspection import inspect_log
from spillway.kafka.settings import KafkaSettings
from spillway.kafka.topics import TopicSettings
from spillway.rpc.calls import LENDING, PLANNER, SCALING, RpcService
from spillway.rpc.client import LendingClient, PlannerClient, ScalingClient
from spillway.rpc.probe import Identity, ProbeResult, probe_instance
from spillway.settings import OperatorError
from spillway.store import RedisStore, StoreSettings, StoreUnavailable
from spillway.version import VERSION
from spillway_cli.config import Config, health_ports_hint, start_hint
from spillway_cli.doctor import cluster_visits, fleet, log, services
from spillway_cli.doctor.checks import Check, failed_check, skipped_check, warning_check
from spillway_cli.doctor.pages import read_health_pages
from spillway_cli.log_commands import kafka_settings
from spillway_cli.reading import list_all_workloads
from spillway_cli.session import connection_options

T = TypeVar("T")

PAGE_SIZE = 200
POLICIES_MAX = 500
"""The most scale policies to look at."""
AT_ONCE_MAX = 16
"""The most calls that run at the same time."""


@dataclass(frozen=True, slots=True)
class Examination:
    """One examination of an installation. seconds: how long one answer may take."""

    config: Config
    seconds: float

    async def run_checks(self) -> list[Check]:
        """Returns all checks in the order of the report: services, processes, log and store, fleet."""
        config = self.config
        instances = (
            (PLANNER, config.endpoints),
            (SCALING, config.scaling_endpoints),
            (LENDING, config.lending_endpoints),
        )
        probed, pages, (of_log, ours, is_log_there) = await asyncio.gather(
            asyncio.gather(*(self._probe_endpoints(service, endpoints) for service, endpoints in instances)),
            asyncio.gather(*(asyncio.to_thread(read_health_pages, address, self.seconds) for address in config.health)),
            self._check_log_and_store(),
        )
        if not is_log_there and services.is_everything_silent((one for found in probed for one in found), pages):
            return [services.nothing_runs_check(config.endpoints, start_hint(config, "endpoints"))]
        checks: list[Check] = []
        version_by_process = {page.name: page.version for page in pages if page.version}
        for (service, _), found in zip(instances, probed, strict=True):
            checks += [services.check_endpoint(service.who, one) for one in found]
            checks += [check for one in found for check in services.check_certificate(service.who, one, time.time())]
            checks.append(services.check_active_instance(service.who, found))
            version_by_process |= {f"{service.who} {one.endpoint}": one.version for one in found if one.version}
        checks.append(services.check_versions(VERSION, version_by_process))
        checks += [check for page in pages for check in services.check_health_pages(page)]
        if not pages:
            checks.append(skipped_check("processes", "no health port is named", health_ports_hint()))
        checks += of_log
        planners, scalers, lenders = (tuple(one.endpoint for one in found if one.code == "OK") for found in probed)
        visits: Sequence[cluster_visits.Visit] = ()
        if planners:
            of_fleet, visits = await self._check_fleet(planners)
            checks += of_fleet
        if scalers:
            checks += await self._check_scaling(scalers)
        if lenders:
            checks += await self._check_lending(lenders, visits, ours)
        return checks

    async def _probe_endpoints(self, service: RpcService, endpoints: Sequence[str]) -> Sequence[ProbeResult]:
        config = self.config
        identity = Identity(config.token, config.ca, config.certificate, config.key)
        return await asyncio.gather(
            *(probe_instance(service, endpoint, identity, self.seconds) for endpoint in endpoints)
        )

    async def _check_log_and_store(self) -> tuple[list[Check], str, bool]:
        """Returns the checks, the fleet id of the log ("" if unknown), and whether the log or the store answers."""
        settings = kafka_settings(KafkaSettings, self.config)
        fleet_id = self.config.fleet
        try:
            access = load_kafka_access(settings.bootstrap, settings.security)
            found = await inspect_log(access, settings.topic_prefix, self.seconds)
        except OperatorError as error:
            hint = "SPILLWAY_KAFKA_SECURITY_PROTOCOL, …_SASL_…, …_SSL_… say who we are; docs/security.md has the rights"
            checks, is_there = [failed_check("Kafka", str(error), hint)], True
        except BusUnavailable as error:
            hint = "are the brokers up? SPILLWAY_KAFKA names them; services go on by themselves once they are back"
            checks, is_there = [failed_check("Kafka", str(error), hint)], False
        else:
            is_there = True
            checks = log.check_log(found, fleet_id, TopicSettings(topic_prefix=settings.topic_prefix))
            fleet_id = found.fleet
        of_store = await self._check_store(fleet_id)
        return [*checks, of_store], fleet_id, is_there or of_store.outcome in ("ok", "warning")

    async def _check_store(self, fleet_id: str) -> Check:
        if not self.config.redis:
            return skipped_check("Redis", "no address is named", "SPILLWAY_REDIS=redis://host:port/0")
        try:
            async with RedisStore(StoreSettings(self.config.redis, self.seconds), fleet_id) as store:
                return log.check_store(await store.inspect_redis(), fleet_id)
        except (StoreUnavailable, OperatorError) as error:
            hint = "history and explaining past decisions need it, nothing else: start it, and it is filled again"
            return failed_check("Redis", str(error), hint)

    # ── Calls to the services: only endpoints that have answered are called, so that none waits for one that hangs ──

    async def _check_fleet(self, endpoints: Sequence[str]) -> tuple[list[Check], Sequence[cluster_visits.Visit]]:
        """Returns the checks, and the results of the visits to clusters."""
        visits: list[cluster_visits.Visit] = []

        async def check_clusters_and_visits(found: api.ListClustersReply) -> list[Check]:
            visits.extend(await self._visit_clusters(found.clusters))
            checks = fleet.check_clusters(found.clusters)
            if not self.config.credentials:
                hint = "SPILLWAY_CREDENTIALS: the folder of snapshot's kubeconfigs, and service=folder of the others'"
                checks.append(skipped_check("credentials", "no folder is named", hint))
            return [*checks, *(check for visit in visits for check in cluster_visits.check_visit(visit, time.time()))]

        async with PlannerClient(endpoints, **connection_options(self.config)) as client:
            checks = [
                *await _checks_of_answer(
                    "clusters", client.list_clusters(api.ListClustersRequest()), check_clusters_and_visits
                ),
                *await _checks_of_answer(
                    "brakes", client.list_brakes(api.ListBrakesRequest()), _as_async_judge(fleet.check_brakes)
                ),
                *await _checks_of_answer(
                    "workloads", list_all_workloads(client, ""), _as_async_judge(fleet.check_workloads)
                ),
                *await _checks_of_answer(
                    "orphans", client.list_orphans(api.ListOrphansRequest("")), _as_async_judge(fleet.check_orphans)
                ),
            ]
        return checks, visits

    async def _visit_clusters(self, clusters: Sequence[api.ClusterReply]) -> Sequence[cluster_visits.Visit]:
        limit = asyncio.Semaphore(AT_ONCE_MAX)

        async def visit_within_limit(service: str, folder: Path, cluster: api.ClusterReply) -> cluster_visits.Visit:
            async with limit:
                return await cluster_visits.visit_cluster(
                    folder, cluster.cluster, cluster.credential, self.seconds, service
                )

        folders = [cluster_visits.parse_credentials_entry(entry) for entry in self.config.credentials]
        return await asyncio.gather(
            *(
                visit_within_limit(service, folder, cluster)
                for service, folder in folders
                for cluster in clusters
                if cluster_visits.is_credential_needed(service, folder, cluster.credential)
            )
        )

    async def _check_scaling(self, endpoints: Sequence[str]) -> list[Check]:
        async with ScalingClient(endpoints, **connection_options(self.config)) as client:
            return await _checks_of_answer(
                "scale policies", _explain_all_policies(client), _as_async_judge(fleet.check_policies)
            )

    async def _check_lending(
        self, endpoints: Sequence[str], visits: Sequence[cluster_visits.Visit], ours: str
    ) -> list[Check]:
        async with LendingClient(endpoints, **connection_options(self.config)) as client:

            async def check_loans_and_rights(lent: Sequence[LentNode]) -> list[Check]:
                declared = (await client.list_lending(ListLendingRequest())).clusters
                lending = fleet.check_lending(declared, lent, int(1000 * time.time()))
                rights = fleet.check_bridge_rights(visits, declared)
                return [*lending, *rights, *fleet.check_lending_marks(visits, declared, ours)]

            return await _checks_of_answer("lending", _list_all_lent_nodes(client), check_loans_and_rights)


async def _checks_of_answer(
    name: str, answer: Awaitable[T], judge: Callable[[T], Awaitable[list[Check]]]
) -> list[Check]:
    """Returns the checks made from an answer. If the call is forbidden or fails, returns one check that says so."""
    try:
        return await judge(await answer)
    except RequestError as error:
        if error.code == "PERMISSION_DENIED":
            hint = "give this caller the verb `read` in namespace `*` in the callers file"
            return [skipped_check(name, error.text, hint)]
        return [
            warning_check(
                name, f"{error.code}: {error.text}", "fix the failed checks of services above, then look again"
            )
        ]


def _as_async_judge(judge: Callable[[T], list[Check]]) -> Callable[[T], Awaitable[list[Check]]]:
    async def judge_answer(answer: T) -> list[Check]:
        return judge(answer)

    return judge_answer


async def _explain_all_policies(client: ScalingClient) -> list[ExplainPolicyReply]:
    """Returns the explanations of all scale policies. Policies that were deleted meanwhile are left out."""
    listed: list[PolicyReply] = []
    token = ""
    while len(listed) < POLICIES_MAX:
        reply = await client.list_policies(ListPoliciesRequest("", PAGE_SIZE, token))
        listed += reply.policies
        token = reply.next_page_token
        if not token:
            break
    limit = asyncio.Semaphore(AT_ONCE_MAX)

    async def explain_unless_deleted(policy: PolicyReply) -> ExplainPolicyReply | None:
        request = ExplainPolicyRequest(policy.namespace, policy=policy.policy, kind=policy.kind)
        async with limit:
            try:
                return await client.explain_policy(request)
            except RequestError as error:
                if error.code == "NOT_FOUND":
                    return None
                raise

    answers = await asyncio.gather(*map(explain_unless_deleted, listed[:POLICIES_MAX]))
    return [answer for answer in answers if answer is not None]


async def _list_all_lent_nodes(client: LendingClient) -> list[LentNode]:
    found: list[LentNode] = []
    token = ""
    while True:
        reply = await client.list_lent(ListLentRequest(page_size=PAGE_SIZE, page_token=token))
        found += reply.nodes
        token = reply.next_page_token
        if not token:
            return found
