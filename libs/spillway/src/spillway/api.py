"""The messages of the planner's gRPC API as values. Each call is described in proto/spillway/v1/planner.proto.

The module of a value is imported when the name is first used, because importing all of them would slow each command.
"""

import importlib
from typing import TYPE_CHECKING, Any

from spillway.api_errors import RequestError, invalid_argument_error

if TYPE_CHECKING:
    from spillway.api_brakes import *  # noqa: F403 - the names below, for type checkers
    from spillway.api_changes import *  # noqa: F403 - the names below, for type checkers
    from spillway.api_clusters import *  # noqa: F403 - the names below, for type checkers
    from spillway.api_questions import *  # noqa: F403 - the names below, for type checkers
    from spillway.api_workloads import *  # noqa: F403 - the names below, for type checkers

__all__ = ["RequestError", "invalid_argument_error"]

_MODULES = {
    "api_brakes": (
        "Brake",
        "ConfirmRequest",
        "Confirmation",
        "FreezeRequest",
        "ListBrakesReply",
        "ListBrakesRequest",
        "UnfreezeRequest",
    ),
    "api_changes": (
        "AdoptRequest",
        "ApplyRequest",
        "BatchAnswer",
        "BatchItem",
        "CapacityReply",
        "CapacityRequest",
        "DeleteRequest",
        "DisownRequest",
        "ListOrphansReply",
        "ListOrphansRequest",
        "MigrateRequest",
        "Orphan",
        "PlanBatchReply",
        "PlanBatchRequest",
        "RecoverFleetReply",
        "RecoverFleetRequest",
        "RecoveredWorkload",
        "ScaleRequest",
    ),
    "api_clusters": (
        "ClusterMovesReply",
        "ClusterReply",
        "JoinClusterRequest",
        "LeaveClusterRequest",
        "ListClustersReply",
        "ListClustersRequest",
        "ListNodesReply",
        "ListNodesRequest",
        "ListedNode",
        "SetClusterPhaseRequest",
        "WorkloadLeft",
    ),
    "api_questions": (
        "ExplainReply",
        "ExplainRequest",
        "ExplainedChange",
        "ExplainedCluster",
        "ExplainedNode",
        "ExportReply",
        "ExportRequest",
        "ExportedCount",
        "ExportedEvent",
        "HeldBack",
        "NodeFilter",
        "NodeReason",
    ),
    "api_workloads": (
        "ClusterStatus",
        "GetRequest",
        "ListReply",
        "ListRequest",
        "PlacedPart",
        "PlacementReply",
        "WatchReply",
        "WatchRequest",
        "WorkloadReply",
    ),
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"spillway.{_MODULE_BY_NAME[name]}"), name)
    globals()[name] = value  # So this function runs once for each name.
    return value
