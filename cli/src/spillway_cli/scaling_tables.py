"""Renders scale policies for people: kubectl's table, and why a workload has its number of replicas."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from spillway.api_scaling import ExplainedMetric, ExplainPolicyReply, PodsInCluster, PolicyReply
from spillway.texts import counted_noun
from spillway_cli.fitting_table import Table
from spillway_cli.output import duration_text, make_table, wall_time_text

UNKNOWN = "<unknown>"
NONE = "<none>"
WORDS_BY_REASON = {
    "ScaleUpStabilized": "within the stabilization window metrics asked for fewer replicas; the smallest number counts",
    "ScaleDownStabilized": "within the stabilization window metrics asked for more replicas; the largest number counts",
    "ScaleUpLimit": "the behavior's policies allow no faster growth",
    "ScaleDownLimit": "the behavior's policies allow no faster reduction",
    "TooManyReplicas": "the policy's maximum allows no more replicas",
    "TooFewReplicas": "the policy's minimum allows no fewer replicas",
    "ScalerCooldown": "the cooldown after the last active trigger is not over",
}
"""Texts for Kubernetes' and KEDA's reasons why the decided number differs from the requested one."""


def policies_table(replies: Iterable[PolicyReply], now_ms: int, wide: bool = False) -> Table:
    columns = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
    more = ("NAMESPACE", "KIND", "DESIRED") if wide else ()
    rows = [_policy_row(reply, now_ms, wide) for reply in replies]
    return make_table((*columns, *more), rows, right=("MINPODS", "MAXPODS", "REPLICAS", "AGE", "DESIRED"))


def _policy_row(reply: PolicyReply, now_ms: int, wide: bool) -> tuple[object, ...]:
    age = duration_text(max(0, now_ms - reply.declared_ms))
    bounds = _replicas_or_unknown(reply.replicas_min), _replicas_or_unknown(reply.replicas_max)
    row = (
        reply.policy,
        f"workload/{reply.name}",
        reply.targets or NONE,
        *bounds,
        _replicas_or_unknown(reply.replicas),
        age,
    )
    return (*row, reply.namespace, reply.kind, _replicas_or_unknown(reply.replicas_desired)) if wide else row


def _replicas_or_unknown(replicas: int) -> object:
    return UNKNOWN if replicas < 0 else replicas


def render_policy_result(reply: PolicyReply, done: str) -> RenderableType:
    """Returns a line on the result for a policy, and a warning for each part of it that has no effect."""
    line = Text(f"{reply.kind} {reply.namespace}/{reply.policy}", style="bold")
    line.append(f" {done}: {reply.namespace}/{reply.name}, {replica_bounds_text(reply)}", style="not bold")
    if reply.replicas < 0:
        line.append("; there is no such workload yet", style="yellow")
    else:
        line.append(f"; it has {counted_noun(reply.replicas, 'replica')}", style="not bold")
    return Group(line, *(Text(f"warning: {warning}", style="yellow") for warning in reply.warnings))


def replica_bounds_text(reply: PolicyReply) -> str:
    if reply.replicas_max < 0:
        return "between bounds that are not known"
    return f"{reply.replicas_min} to {counted_noun(reply.replicas_max, 'replica')}"


# ── Why this number ─────────────────────────────────────────────────────────────────────────────────────────────────


def render_policy_explanation(reply: ExplainPolicyReply) -> RenderableType:
    """Renders the number, then its reasons: what each metric asks for, which rules apply, when it may change next."""
    policy = reply.policy
    title = Text(f"{policy.kind} {policy.namespace}/{policy.policy}", style="bold")
    title.append(f"  scales {policy.namespace}/{policy.name}, {replica_bounds_text(policy)}", style="not bold")
    parts: list[RenderableType] = [title, *_verdict_lines(reply), *_render_metrics(reply.metrics), *_rule_lines(reply)]
    if reply.due_ms:
        parts += [
            Text(""),
            Text(f"Without new values the number may change {wall_time_text(reply.due_ms)}: {reply.due_why}"),
        ]
    parts += _render_pods(reply.pods)
    parts += _render_conditions(reply)
    if policy.stale:
        parts += [
            Text(""),
            Text("the hpa instance that answered is not the active one: the answer may be old", style="yellow"),
        ]
    return Group(*parts)


def _verdict_lines(reply: ExplainPolicyReply) -> Iterator[Text]:
    policy = reply.policy
    if policy.replicas < 0:
        yield Text(f"there is no workload {policy.namespace}/{policy.name} yet: nothing is scaled", style="yellow")
    elif not reply.decided_ms:
        yield Text(f"{counted_noun(policy.replicas, 'replica')}; nothing was decided yet")
    else:
        changed = (
            f", unchanged since {wall_time_text(reply.changed_ms).removeprefix('on ')}" if reply.changed_ms else ""
        )
        wanted = policy.replicas_desired
        behind = f"; {wanted} were decided and are not declared yet" if wanted not in (-1, policy.replicas) else ""
        yield Text(f"{counted_noun(policy.replicas, 'replica')}{changed}{behind}")
    if reply.reason:
        yield Text(reply.reason)
    for warning in policy.warnings:
        yield Text(f"warning: {warning}", style="yellow")


def _render_metrics(metrics: tuple[ExplainedMetric, ...]) -> Iterator[RenderableType]:
    if not metrics:
        return
    columns = ("METRIC", "SOURCE", "VALUE", "TARGET", "ASKS FOR", "AGE", "")
    rows = [
        (
            metric.metric,
            metric.source,
            metric.value or UNKNOWN,
            metric.target,
            "nothing" if metric.replicas < 0 else metric.replicas,
            "" if metric.age_ms < 0 else duration_text(metric.age_ms),
            "; ".join(filter(None, (metric.trouble, "active" if metric.active else "", metric.detail))),
        )
        for metric in metrics
    ]
    yield Text("")
    yield make_table(columns, rows, right=("VALUE", "TARGET", "ASKS FOR", "AGE"))


def _rule_lines(reply: ExplainPolicyReply) -> Iterator[Text]:
    """Yields a line for each rule that changed the number, from the requested number to the decided one."""
    if not reply.rules:
        return
    asked = f"{reply.asked_by} asks for {reply.asked}" if reply.asked >= 0 else "no metric asks for any number"
    yield Text("")
    yield Text(f"How it was decided: {asked}", style="bold")
    for rule in reply.rules:
        yield Text(f"  {rule.before} → {rule.after}  {rule.rule}: {WORDS_BY_REASON.get(rule.why, rule.why)}")


def _render_pods(pods: tuple[PodsInCluster, ...]) -> Iterator[RenderableType]:
    if not pods:
        return
    rows = [
        (
            entry.cluster,
            entry.pods,
            entry.ready,
            entry.sampled,
            duration_text(entry.age_ms),
            "; ".join(filter(None, ("lost: counted as it was last seen" if entry.lost else "", entry.trouble))),
        )
        for entry in pods
    ]
    yield Text("")
    yield make_table(
        ("CLUSTER", "PODS", "READY", "SAMPLED", "AGE", ""), rows, right=("PODS", "READY", "SAMPLED", "AGE")
    )


def _render_conditions(reply: ExplainPolicyReply) -> Iterator[RenderableType]:
    if not reply.conditions:
        return
    rows = [
        (entry.type, entry.status, entry.reason, entry.message or WORDS_BY_REASON.get(entry.reason, ""))
        for entry in reply.conditions
    ]
    yield Text("")
    yield make_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows)
