"""The verbs of our services with their types, for servers and for clients. It does not depend on gRPC."""

from __future__ import annotations  # Otherwise the use of one value would import all of them.

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from spillway import api, api_lending, api_scaling


class PlannerApi(Protocol):
    """The calls that a planner answers. Each is described in proto/spillway/v1/planner.proto.

    RequestError goes to the caller with its code and text. BusUnavailable and OutcomeUnknown become UNAVAILABLE. Any
    other exception is our bug: the caller gets INTERNAL, and the error is logged.
    A call is cancelled at its deadline and when its caller goes away.
    """

    async def apply(self, request: api.ApplyRequest) -> api.PlacementReply: ...
    async def scale(self, request: api.ScaleRequest) -> api.PlacementReply: ...
    async def delete(self, request: api.DeleteRequest) -> api.PlacementReply: ...
    async def migrate(self, request: api.MigrateRequest) -> api.PlacementReply: ...
    async def get(self, request: api.GetRequest) -> api.WorkloadReply: ...
    async def list(self, request: api.ListRequest) -> api.ListReply: ...
    async def plan(self, request: api.ApplyRequest) -> api.PlacementReply: ...
    async def plan_batch(self, request: api.PlanBatchRequest) -> api.PlanBatchReply: ...
    async def explain(self, request: api.ExplainRequest) -> api.ExplainReply: ...
    async def capacity(self, request: api.CapacityRequest) -> api.CapacityReply: ...
    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply: ...
    async def disown(self, request: api.DisownRequest) -> api.PlacementReply: ...
    async def list_orphans(self, request: api.ListOrphansRequest) -> api.ListOrphansReply: ...
    async def recover_fleet(self, request: api.RecoverFleetRequest) -> api.RecoverFleetReply: ...
    async def join_cluster(self, request: api.JoinClusterRequest) -> api.ClusterReply: ...
    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply: ...
    async def list_nodes(self, request: api.ListNodesRequest) -> api.ListNodesReply: ...
    async def set_cluster_phase(self, request: api.SetClusterPhaseRequest) -> api.ClusterMovesReply: ...
    async def leave_cluster(self, request: api.LeaveClusterRequest) -> api.ClusterMovesReply: ...
    async def freeze(self, request: api.FreezeRequest) -> api.Brake: ...
    async def unfreeze(self, request: api.UnfreezeRequest) -> api.Brake: ...
    async def confirm(self, request: api.ConfirmRequest) -> api.Confirmation: ...
    async def list_brakes(self, request: api.ListBrakesRequest) -> api.ListBrakesReply: ...

    def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        """Yields changes until the caller goes away."""
        ...

    def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        """Yields the whole state, then ends."""
        ...

    def active_instance_address(self) -> str:
        """Returns host:port of the active planner's gRPC; empty when it is not known."""
        ...


class ClientVerbs:
    """The verbs of a client of the planner. seconds: the longest time of the call; None: the client's own."""

    async def _call_verb(self, verb: str, request: Any, seconds: float | None) -> Any:
        raise NotImplementedError

    async def apply(self, request: api.ApplyRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("apply", request, seconds))

    async def scale(self, request: api.ScaleRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("scale", request, seconds))

    async def delete(self, request: api.DeleteRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("delete", request, seconds))

    async def migrate(self, request: api.MigrateRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("migrate", request, seconds))

    async def get(self, request: api.GetRequest, seconds: float | None = None) -> api.WorkloadReply:
        return cast("api.WorkloadReply", await self._call_verb("get", request, seconds))

    async def list(self, request: api.ListRequest, seconds: float | None = None) -> api.ListReply:
        return cast("api.ListReply", await self._call_verb("list", request, seconds))

    async def plan(self, request: api.ApplyRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("plan", request, seconds))

    async def plan_batch(self, request: api.PlanBatchRequest, seconds: float | None = None) -> api.PlanBatchReply:
        return cast("api.PlanBatchReply", await self._call_verb("plan_batch", request, seconds))

    async def explain(self, request: api.ExplainRequest, seconds: float | None = None) -> api.ExplainReply:
        return cast("api.ExplainReply", await self._call_verb("explain", request, seconds))

    async def capacity(self, request: api.CapacityRequest, seconds: float | None = None) -> api.CapacityReply:
        return cast("api.CapacityReply", await self._call_verb("capacity", request, seconds))

    async def adopt(self, request: api.AdoptRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("adopt", request, seconds))

    async def disown(self, request: api.DisownRequest, seconds: float | None = None) -> api.PlacementReply:
        return cast("api.PlacementReply", await self._call_verb("disown", request, seconds))

    async def list_orphans(self, request: api.ListOrphansRequest, seconds: float | None = None) -> api.ListOrphansReply:
        return cast("api.ListOrphansReply", await self._call_verb("list_orphans", request, seconds))

    async def recover_fleet(
        self, request: api.RecoverFleetRequest, seconds: float | None = None
    ) -> api.RecoverFleetReply:
        return cast("api.RecoverFleetReply", await self._call_verb("recover_fleet", request, seconds))

    async def join_cluster(self, request: api.JoinClusterRequest, seconds: float | None = None) -> api.ClusterReply:
        return cast("api.ClusterReply", await self._call_verb("join_cluster", request, seconds))

    async def list_clusters(
        self, request: api.ListClustersRequest, seconds: float | None = None
    ) -> api.ListClustersReply:
        return cast("api.ListClustersReply", await self._call_verb("list_clusters", request, seconds))

    async def list_nodes(self, request: api.ListNodesRequest, seconds: float | None = None) -> api.ListNodesReply:
        return cast("api.ListNodesReply", await self._call_verb("list_nodes", request, seconds))

    async def set_cluster_phase(
        self, request: api.SetClusterPhaseRequest, seconds: float | None = None
    ) -> api.ClusterMovesReply:
        return cast("api.ClusterMovesReply", await self._call_verb("set_cluster_phase", request, seconds))

    async def leave_cluster(
        self, request: api.LeaveClusterRequest, seconds: float | None = None
    ) -> api.ClusterMovesReply:
        return cast("api.ClusterMovesReply", await self._call_verb("leave_cluster", request, seconds))

    async def freeze(self, request: api.FreezeRequest, seconds: float | None = None) -> api.Brake:
        return cast("api.Brake", await self._call_verb("freeze", request, seconds))

    async def unfreeze(self, request: api.UnfreezeRequest, seconds: float | None = None) -> api.Brake:
        return cast("api.Brake", await self._call_verb("unfreeze", request, seconds))

    async def confirm(self, request: api.ConfirmRequest, seconds: float | None = None) -> api.Confirmation:
        return cast("api.Confirmation", await self._call_verb("confirm", request, seconds))

    async def list_brakes(self, request: api.ListBrakesRequest, seconds: float | None = None) -> api.ListBrakesReply:
        return cast("api.ListBrakesReply", await self._call_verb("list_brakes", request, seconds))


class ScalingApi(Protocol):
    """The calls that hpa answers, described in spillway/v1/scaling.proto. Errors: as in PlannerApi."""

    async def declare_policy(self, request: api_scaling.DeclarePolicyRequest) -> api_scaling.PolicyReply: ...
    async def delete_policy(self, request: api_scaling.DeletePolicyRequest) -> api_scaling.PolicyReply: ...
    async def get_policy(self, request: api_scaling.GetPolicyRequest) -> api_scaling.PolicyReply: ...
    async def list_policies(self, request: api_scaling.ListPoliciesRequest) -> api_scaling.ListPoliciesReply: ...
    async def explain_policy(self, request: api_scaling.ExplainPolicyRequest) -> api_scaling.ExplainPolicyReply: ...
    async def report(self, request: api_scaling.ReportRequest) -> api_scaling.ReportReply: ...

    def active_instance_address(self) -> str:
        """Returns host:port of the active instance's gRPC; empty when it is not known."""
        ...


class ScalingVerbs:
    """The verbs of a client of hpa. seconds: the longest time of the call; None: the client's own."""

    async def _call_verb(self, verb: str, request: Any, seconds: float | None) -> Any:
        raise NotImplementedError

    async def declare_policy(
        self, request: api_scaling.DeclarePolicyRequest, seconds: float | None = None
    ) -> api_scaling.PolicyReply:
        return cast("api_scaling.PolicyReply", await self._call_verb("declare_policy", request, seconds))

    async def delete_policy(
        self, request: api_scaling.DeletePolicyRequest, seconds: float | None = None
    ) -> api_scaling.PolicyReply:
        return cast("api_scaling.PolicyReply", await self._call_verb("delete_policy", request, seconds))

    async def get_policy(
        self, request: api_scaling.GetPolicyRequest, seconds: float | None = None
    ) -> api_scaling.PolicyReply:
        return cast("api_scaling.PolicyReply", await self._call_verb("get_policy", request, seconds))

    async def list_policies(
        self, request: api_scaling.ListPoliciesRequest, seconds: float | None = None
    ) -> api_scaling.ListPoliciesReply:
        return cast("api_scaling.ListPoliciesReply", await self._call_verb("list_policies", request, seconds))

    async def explain_policy(
        self, request: api_scaling.ExplainPolicyRequest, seconds: float | None = None
    ) -> api_scaling.ExplainPolicyReply:
        return cast("api_scaling.ExplainPolicyReply", await self._call_verb("explain_policy", request, seconds))

    async def report(self, request: api_scaling.ReportRequest, seconds: float | None = None) -> api_scaling.ReportReply:
        return cast("api_scaling.ReportReply", await self._call_verb("report", request, seconds))


class LendingApi(Protocol):
    """The calls that a descheduler answers, described in lending.proto. Errors: as in PlannerApi."""

    async def declare_lending(self, request: api_lending.DeclareLendingRequest) -> api_lending.LendingReply: ...
    async def withdraw_lending(self, request: api_lending.WithdrawLendingRequest) -> api_lending.LendingReply: ...
    async def list_lending(self, request: api_lending.ListLendingRequest) -> api_lending.LendingReply: ...
    async def pause_lending(self, request: api_lending.PauseLendingRequest) -> api_lending.LendingReply: ...
    async def resume_lending(self, request: api_lending.ResumeLendingRequest) -> api_lending.LendingReply: ...
    async def list_lent(self, request: api_lending.ListLentRequest) -> api_lending.ListLentReply: ...
    async def recall(self, request: api_lending.RecallRequest) -> api_lending.RecallReply: ...
    async def idle_report(self, request: api_lending.IdleReportRequest) -> api_lending.IdleReportReply: ...

    def active_instance_address(self) -> str:
        """Returns host:port of the active instance's gRPC; empty when it is not known."""
        ...


class LendingVerbs:
    """The verbs of a client of the descheduler. seconds: the longest time of the call; None: the client's own."""

    async def _call_verb(self, verb: str, request: Any, seconds: float | None) -> Any:
        raise NotImplementedError

    async def declare_lending(
        self, request: api_lending.DeclareLendingRequest, seconds: float | None = None
    ) -> api_lending.LendingReply:
        return cast("api_lending.LendingReply", await self._call_verb("declare_lending", request, seconds))

    async def withdraw_lending(
        self, request: api_lending.WithdrawLendingRequest, seconds: float | None = None
    ) -> api_lending.LendingReply:
        return cast("api_lending.LendingReply", await self._call_verb("withdraw_lending", request, seconds))

    async def list_lending(
        self, request: api_lending.ListLendingRequest, seconds: float | None = None
    ) -> api_lending.LendingReply:
        return cast("api_lending.LendingReply", await self._call_verb("list_lending", request, seconds))

    async def pause_lending(
        self, request: api_lending.PauseLendingRequest, seconds: float | None = None
    ) -> api_lending.LendingReply:
        return cast("api_lending.LendingReply", await self._call_verb("pause_lending", request, seconds))

    async def resume_lending(
        self, request: api_lending.ResumeLendingRequest, seconds: float | None = None
    ) -> api_lending.LendingReply:
        return cast("api_lending.LendingReply", await self._call_verb("resume_lending", request, seconds))

    async def list_lent(
        self, request: api_lending.ListLentRequest, seconds: float | None = None
    ) -> api_lending.ListLentReply:
        return cast("api_lending.ListLentReply", await self._call_verb("list_lent", request, seconds))

    async def recall(self, request: api_lending.RecallRequest, seconds: float | None = None) -> api_lending.RecallReply:
        return cast("api_lending.RecallReply", await self._call_verb("recall", request, seconds))

    async def idle_report(
        self, request: api_lending.IdleReportRequest, seconds: float | None = None
    ) -> api_lending.IdleReportReply:
        return cast("api_lending.IdleReportReply", await self._call_verb("idle_report", request, seconds))
