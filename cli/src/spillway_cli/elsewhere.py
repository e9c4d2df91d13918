"""Finds other namespaces with an object of this name, if the given namespace has none and the caller may list them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from spillway.api import ListRequest, RequestError
from spillway.rpc.client import PlannerClient, ScalingClient
from spillway.texts import first_names_text

PAGE_SIZE: Final = 200
PAGES_MAX: Final = 10
"""The most pages that are searched. Objects on later pages of a larger fleet are ignored."""
NAMED_MAX: Final = 5
"""The most namespaces that a text names."""

Page = tuple[Iterable[tuple[str, str]], str]
"""(namespace, name) of each object, and the token of the next page; an empty token: it was the last page."""


@asynccontextmanager
async def workload_namespace_hint(client: PlannerClient, namespace: str, name: str) -> AsyncIterator[None]:
    """Wraps calls for one workload: adds to NOT_FOUND the other namespaces that have a workload of this name."""
    async with _namespace_hint(_workload_page_reader(client), namespace, name):
        yield


@asynccontextmanager
async def policy_namespace_hint(client: ScalingClient, namespace: str, name: str) -> AsyncIterator[None]:
    """Wraps calls for one scale policy: adds to NOT_FOUND the other namespaces that have a policy of this name."""
    async with _namespace_hint(_policy_page_reader(client), namespace, name):
        yield


async def namespaces_with_workloads_text(client: PlannerClient, namespace: str) -> str:
    """Returns a text on which namespaces have workloads; empty if that is not known."""
    return _found_in_text((await _names_by_namespace(_workload_page_reader(client))).keys() - {namespace})


async def namespaces_with_policies_text(client: ScalingClient, namespace: str) -> str:
    """Returns a text on which namespaces have scale policies; empty if that is not known."""
    return _found_in_text((await _names_by_namespace(_policy_page_reader(client))).keys() - {namespace})


def _workload_page_reader(client: PlannerClient) -> Callable[[str], Awaitable[Page]]:
    async def read_workload_page(token: str) -> Page:
        reply = await client.list(ListRequest("", PAGE_SIZE, token))
        found = ((one.placement.namespace, one.placement.name) for one in reply.workloads)
        return found, reply.next_page_token

    return read_workload_page


def _policy_page_reader(client: ScalingClient) -> Callable[[str], Awaitable[Page]]:
    from spillway.api_scaling import ListPoliciesRequest

    async def read_policy_page(token: str) -> Page:
        reply = await client.list_policies(ListPoliciesRequest("", PAGE_SIZE, token))
        return ((one.namespace, one.policy) for one in reply.policies), reply.next_page_token

    return read_policy_page


@asynccontextmanager
async def _namespace_hint(page: Callable[[str], Awaitable[Page]], namespace: str, name: str) -> AsyncIterator[None]:
    try:
        yield
    except RequestError as error:
        if error.code != "NOT_FOUND":
            raise
        names = await _names_by_namespace(page)
        spaces = [] if name in names.get(namespace, ()) else [one for one, there in names.items() if name in there]
        if not spaces:
            raise
        verb = "has" if len(spaces) == 1 else "have"
        text = f"{error.text}; {first_names_text(spaces, NAMED_MAX)} {verb} one of that name: -n NAMESPACE"
        raise error.with_text(text) from None


async def _names_by_namespace(page: Callable[[str], Awaitable[Page]]) -> Mapping[str, set[str]]:
    """Returns the names in each namespace; empty if the caller may not list all namespaces, or nobody answers."""
    found: dict[str, set[str]] = {}
    token = ""
    try:
        for _ in range(PAGES_MAX):
            entries, token = await page(token)
            for namespace, name in entries:
                found.setdefault(namespace, set()).add(name)
            if not token:
                break
    except RequestError:
        return {}
    return found


def _found_in_text(namespaces: Iterable[str]) -> str:
    named = first_names_text(namespaces, NAMED_MAX)
    return f"; there are some in {named}" if named else ""
