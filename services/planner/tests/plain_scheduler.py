"""The kube-scheduler's filters between pods, one pod and one node at a time, as its documentation puts them.

Requests, pod anti-affinity, pod affinity and topology spread alone; every node counts for a spread that has its labels.
"""

from collections.abc import Iterator
from dataclasses import replace

from spillway.kubernetes.pod_shape import matches_labels
from spillway.model import NodeRow, PodTable, PodTerm, Shape


def pod_table_of(shape: Shape) -> PodTable:
    return PodTable(shape.namespace, shape.traits.labels, shape.apart)


def open_node_indices(shape: Shape, rows: list[NodeRow]) -> list[int]:
    """The nodes that one more replica may be bound to."""
    return [
        index
        for index, row in enumerate(rows)
        if _has_room_on_node(shape, row)
        and _respects_anti_affinity(shape, rows, row)
        and _respects_affinity(shape, rows, row)
        and _respects_spread(shape, rows, row)
    ]


def bind_replica(shape: Shape, rows: list[NodeRow], index: int) -> list[NodeRow]:
    row, table = rows[index], pod_table_of(shape)
    requested = dict(row.requested)
    for name, amount in shape.requests:
        requested[name] = requested.get(name, 0) + amount
    pods = dict(row.pods)
    pods[table] = pods.get(table, 0) + 1
    return [*rows[:index], replace(row, requested=requested, pods=tuple(pods.items())), *rows[index + 1 :]]


def possible_placed_counts(shape: Shape, rows: list[NodeRow]) -> set[int]:
    """The replicas that are placed when no more can be, for every choice of nodes."""
    found, seen, waiting = set[int](), set[tuple[int, ...]](), [(rows, (0,) * len(rows))]
    while waiting:
        state, placed = waiting.pop()
        if placed in seen:
            continue
        seen.add(placed)
        choices = open_node_indices(shape, state)
        if not choices:
            found.add(sum(placed))
        for index in choices:
            more = tuple(count + (at == index) for at, count in enumerate(placed))
            waiting.append((bind_replica(shape, state, index), more))
    return found


def _has_room_on_node(shape: Shape, row: NodeRow) -> bool:
    return all(row.allocatable.get(name, 0) - row.requested.get(name, 0) >= amount for name, amount in shape.requests)


def _pods_around(rows: list[NodeRow], key: str, row: NodeRow) -> Iterator[PodTable]:
    """Of all nodes in the same domain as this one."""
    value = dict(row.labels).get(key)
    for other in rows:
        if value is not None and dict(other.labels).get(key) == value:
            yield from (table for table, _ in other.pods)


def _term_selects_pod(term: PodTerm, bearer: str, pod: PodTable) -> bool:
    return pod.namespace in (term.namespaces or (bearer,)) and matches_labels(
        term.selector.requirements, dict(pod.labels)
    )


def _respects_anti_affinity(shape: Shape, rows: list[NodeRow], row: NodeRow) -> bool:
    own = pod_table_of(shape)
    for term in shape.apart:
        if any(
            _term_selects_pod(term, shape.namespace, pod)
            for pod in _pods_around(rows, term.topology_key_or_hostname, row)
        ):
            return False
    keys = {term.topology_key_or_hostname for other in rows for pod, _ in other.pods for term in pod.apart}
    return not any(
        term.topology_key_or_hostname == key and _term_selects_pod(term, pod.namespace, own)
        for key in keys
        for pod in _pods_around(rows, key, row)
        for term in pod.apart
    )


def _respects_affinity(shape: Shape, rows: list[NodeRow], row: NodeRow) -> bool:
    def all_terms_select(pod: PodTable) -> bool:
        return all(_term_selects_pod(term, shape.namespace, pod) for term in shape.near)

    if any(term.topology_key_or_hostname not in dict(row.labels) for term in shape.near):
        return False
    if all(
        any(all_terms_select(pod) for pod in _pods_around(rows, term.topology_key_or_hostname, row))
        for term in shape.near
    ):
        return True
    somewhere = any(
        all_terms_select(pod) and any(term.topology_key_or_hostname in dict(other.labels) for term in shape.near)
        for other in rows
        for pod, _ in other.pods
    )
    return not somewhere and all_terms_select(pod_table_of(shape))


def _respects_spread(shape: Shape, rows: list[NodeRow], row: NodeRow) -> bool:
    counting = [
        other for other in rows if all(spread.topology_key_or_hostname in dict(other.labels) for spread in shape.spread)
    ]
    if shape.spread and row not in counting:
        return False
    for spread in shape.spread:
        if not spread.selector.requirements:
            continue
        found = {dict(other.labels)[spread.topology_key_or_hostname]: 0 for other in counting}
        for other in counting:
            for pod, count in other.pods:
                if pod.namespace == shape.namespace and matches_labels(spread.selector.requirements, dict(pod.labels)):
                    found[dict(other.labels)[spread.topology_key_or_hostname]] += count
        least = 0 if len(found) < spread.min_domains else min(found.values())
        if (
            found[dict(row.labels)[spread.topology_key_or_hostname]] + (not spread.others_only) - least
            > spread.max_skew
        ):
            return False
    return True
