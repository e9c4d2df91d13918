"""A client of the in-memory door that speaks in objects."""

import json
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.rest import SimTransport

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Client:
    def __init__(self, cluster: SimCluster) -> None:
        self.transport = SimTransport(cluster)

    async def send_request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **params: str
    ) -> tuple[int, Any]:
        text = None if body is None else json.dumps(body).encode()
        response = await self.transport.request(method, path, params, text, content_type)
        return response.status, json.loads(response.body)

    async def create_deployment(self, manifest: dict[str, Any], namespace: str = "default") -> Any:
        status, found = await self.send_request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", manifest)
        assert status == 201, found
        return found

    async def create_pod(self, manifest: dict[str, Any], namespace: str = "default") -> tuple[int, Any]:
        return await self.send_request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)

    async def merge_patch(self, path: str, body: Any, **params: str) -> tuple[int, Any]:
        return await self.send_request("PATCH", path, body, MERGE, **params)

    async def apply_manifest(self, path: str, body: Any, manager: str = "spillway", **params: str) -> tuple[int, Any]:
        return await self.send_request("PATCH", path, body, APPLY, fieldManager=manager, **params)

    async def watch_events(self, path: str, **params: str) -> list[Any]:
        """All events until the stream ends."""
        lines = b""
        async for chunk in self.transport.stream(path, {"watch": "true", **params}):
            lines += chunk
        return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture
def client_of() -> type[Client]:
    return Client
