"""From a node to a pod, and from use to a size: the functions that ARCHITECTURE.md names are called in its order."""

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import ApplyRequest
from spillway.kubernetes.objects import NODES
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until
from .test_autoscaling import CPU, declared_replicas, make_autoscaler, start_with_policy, wait_until_running

pytestmark = pytest.mark.looptime
ROOT = Path(__file__).parents[2]
FLEET = (MemberPlan("own-1", "own", (member_nodes.MemberNodes(2, "n", 4_000, 16 * GIB),), room=16),)
WEB = deployment("web", NAMESPACE, 2)
NODE_TO_POD, USE_TO_SIZE = "From a node to a pod.", "From use to a size."


def rows_of_table(heading: str) -> list[tuple[str, str]]:
    """Function and file of each row of the table below a heading of ARCHITECTURE.md."""
    _, _, text = (ROOT / "ARCHITECTURE.md").read_text().partition(f"**{heading}**")
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \|", text.split("\n\n")[1], flags=re.MULTILINE)
    assert rows, f"ARCHITECTURE.md has no table below {heading}"
    return rows


def function_of(name: str, file: str) -> FunctionType:
    """Returns the function of a row. Raises an error for a row with a wrong name or file."""
    folder = "spillway/" if (ROOT / "libs/spillway/src/spillway" / file).exists() else ""
    module = import_module(f"{folder}{file}".removesuffix(".py").replace("/", "."))
    found = attrgetter(name)(module)
    assert isinstance(found, FunctionType)
    return found


def first_function_out_of_order(wanted: Sequence[object], called: Iterable[object]) -> object | None:
    """The first that was not called after those before it; None when all were."""
    rest = iter(called)
    return next((one for one in wanted if one not in rest), None)


async def cordon_node(platform: InProcess, is_cordoned: bool) -> None:
    api = platform.member_api("own-1")
    for name in ("n-0", "n-1"):
        version = (await api.get(NODES, "", name))["metadata"]["resourceVersion"]
        await api.patch(NODES, "", name, {"spec": {"unschedulable": is_cordoned}}, resource_version=version)


async def test_a_node_that_takes_pods_again_leads_to_pods_by_the_functions_of_architecture_md(calls_of: Any) -> None:
    functions = [function_of(*row) for row in rows_of_table(NODE_TO_POD)]
    async with in_process_platform(FLEET, services=SERVICES) as platform:
        await join_members(platform)
        await cordon_node(platform, True)

        async def is_full() -> bool:
            return (await platform.planner().plan(ApplyRequest((WEB,)))).unplaced == 2

        await wait_until(is_full, "the planner has heard of the cordon")
        await platform.planner().apply(ApplyRequest((WEB,)))
        with calls_of(*functions) as calls:
            await cordon_node(platform, False)

            async def are_running() -> bool:
                return sum((await bound_pods_by_cluster(platform)).values()) == 2

            await wait_until(are_running, "two pods run")
    assert first_function_out_of_order([one.__code__ for one in functions], [call.code for call in calls]) is None


async def test_use_above_its_target_leads_to_a_size_by_the_functions_of_architecture_md(calls_of: Any) -> None:
    functions = [function_of(*row) for row in rows_of_table(USE_TO_SIZE)]
    async with in_process_platform(FLEET, services=(*SERVICES, "hpa-1")) as platform:
        await start_with_policy(platform, 2, make_autoscaler(CPU))
        await wait_until_running(platform, 2)
        with calls_of(*functions) as calls:
            platform.members["own-1"].set_load(NAMESPACE, "web", {"cpu": 1600})

            async def is_scaled() -> bool:
                return await declared_replicas(platform) > 2

            await wait_until(is_scaled, "it is scaled out", seconds=900)
    assert first_function_out_of_order([one.__code__ for one in functions], [call.code for call in calls]) is None


def test_a_function_that_is_called_too_early_or_not_at_all_is_told() -> None:
    first, second = ("A.take", "a.py"), ("decide", "b.py")
    assert first_function_out_of_order([first, second], [second, first, first, second]) is None
    assert first_function_out_of_order([first, second], [second, first]) == second
    assert first_function_out_of_order([first, second], [second]) == first
    names = chain.from_iterable(map(rows_of_table, (NODE_TO_POD, USE_TO_SIZE)))
    assert len(list(names)) > 20
    with pytest.raises(AttributeError):
        function_of("Collector.nothing", "snapshot/collector.py")
