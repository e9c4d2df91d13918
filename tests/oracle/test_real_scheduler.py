"""What the oracle says a real kube-scheduler does, it does: committed cases on a real control plane."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.ports import PortBook, session_port
from spillway_local.programs import Stage, running_stages
from spillway_oracle.cases import Case
from spillway_oracle.committed import read_cases
from spillway_oracle.real_cluster import RealCluster, can_be_played
from spillway_oracle.verdicts import Truth

pytestmark = [pytest.mark.kube, pytest.mark.timeout(1800)]

CASES_PER_FEATURE = 8


def chosen_cases() -> list[tuple[Case, Truth]]:
    taken: Counter[str] = Counter()
    found = []
    for case, truth in read_cases():
        if can_be_played(case) and not truth.refused and truth.every and 0 < truth.most <= 20:
            taken[case.main_feature] += 1
            if taken[case.main_feature] <= CASES_PER_FEATURE:
                found.append((case, truth))
    return found


@pytest.fixture(scope="module")
def cluster(kube_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("scheduler")
    ports = PortBook(folder / "ports.json")
    ports.assign_port("etcd", session_port(count=2), count=2)
    ports.assign_port("member/real", session_port())
    members = KubeMembers(folder, folder / "credentials", (MemberSpec("real"),), ports, kube_binary)
    etcd, api_servers, _ = members.prepare_stages()
    (member,) = members.members()
    scheduler, *_ = member.controller_programs()
    with running_stages([etcd, api_servers, Stage("scheduler", (scheduler,))], folder / "logs"):
        yield RealCluster(member.access)


@pytest.mark.parametrize(
    ("case", "truth"), chosen_cases(), ids=[f"{case.main_feature}-{case.name}" for case, _ in chosen_cases()]
)
def test_the_scheduler_ends_where_the_oracle_says(cluster: RealCluster, case: Case, truth: Truth) -> None:
    """Between the least and the most replicas; where the order cannot matter, exactly so many."""
    bound = cluster.schedule_case(case, truth.most + 2, lambda bound: bound >= truth.least)
    assert truth.least <= bound <= truth.most
