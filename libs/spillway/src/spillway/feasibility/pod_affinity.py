"""Decides which nodes other pods exclude, and how replicas exclude each other: pod (anti-)affinity, topology spread.

Models the kube-scheduler's filters InterPodAffinity and PodTopologySpread (v1.36). Running pods decide each node on
their own. The limits of the replicas on each other are left to topology.py, as ceilings and groups.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from spillway.feasibility.node_match import Bools, NodeFilters, filter_by_labels, filter_by_taints
from spillway.feasibility.nodes import NO_DOMAIN, ClusterNodes
from spillway.feasibility.topology import Ceiling
from spillway.kubernetes.pod_shape import matches_labels
from spillway.model import HOSTNAME_LABEL, Int64s, PodTerm, Shape, Spread

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def topology_suffix(key: str) -> str:
    return "" if key == HOSTNAME_LABEL else f" over {key}"


def filter_by_other_pods(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> Int64s | None:
    """Excludes the nodes that running pods bar. A node is out for the first reason in the scheduler's order.

    Returns groups [rows] when the shape must be near its own replicas and none runs yet: the first replica picks one
    group for all. Otherwise returns None.
    """
    groups = _filter_near(shape, nodes, verdict) if shape.near else None
    for term in shape.apart:
        barred = _nodes_sharing_domain(_tables_matching_term(term, shape, nodes), term.topology_key_or_hostname, nodes)
        verdict.exclude_nodes(barred, f"anti-affinity{topology_suffix(term.topology_key_or_hostname)}")
    for key, barred in _barred_by_existing(shape, nodes):
        verdict.exclude_nodes(barred, f"anti-affinity of pods that run{topology_suffix(key)}")
    if unknown := _unknown_pod_tables(shape, nodes):
        verdict.exclude_nodes(
            nodes.pods.pod_counts_of_tables(unknown, len(nodes.block)) > 0, "pods with more labels than are known"
        )
    return groups


def _unknown_pod_tables(shape: Shape, nodes: ClusterNodes) -> list[int]:
    """Returns the tables of pods with unknown labels that the shape's terms may match."""
    if not nodes.pods.tables_with_unknown_labels:
        return []
    namespaces = {shape.namespace} if shape.spread else set()
    for term in (*shape.apart, *shape.near):
        found = namespaces_of(term, shape.namespace, nodes)
        if found is None:
            return nodes.pods.tables_with_unknown_labels
        namespaces.update(found)
    return [
        index for index in nodes.pods.tables_with_unknown_labels if nodes.pods.tables[index].namespace in namespaces
    ]


def anti_affinity_ceilings(shape: Shape, nodes: ClusterNodes) -> Iterator[tuple[str, Ceiling]]:
    """Yields the ceilings from the replicas' anti-affinity. A limit of one replica a node needs no ceiling."""
    for key in dict.fromkeys(
        term.topology_key_or_hostname for term in shape.apart if _is_selecting_own_replicas(term, shape, nodes)
    ):
        if key != HOSTNAME_LABEL or not has_unique_hostnames(nodes):
            domains = nodes.domain_ids(key)
            size = int(domains.max(initial=NO_DOMAIN)) + 1
            yield f"anti-affinity{topology_suffix(key)}", Ceiling(domains, np.zeros(size, np.int64), 1, None)


def has_unique_hostnames(nodes: ClusterNodes) -> bool:
    """Returns whether each node has a hostname that no other node has."""
    hosts = nodes.domain_ids(HOSTNAME_LABEL)
    return bool(((hosts == np.arange(len(hosts))) | ~nodes.live_mask).all())


def is_one_replica_per_node(shape: Shape, nodes: ClusterNodes) -> bool:
    """Returns whether each node takes at most one replica: by host ports, or by anti-affinity of the replicas."""
    if shape.host_ports:
        return True
    own = any(
        term.topology_key_or_hostname == HOSTNAME_LABEL and _is_selecting_own_replicas(term, shape, nodes)
        for term in shape.apart
    )
    return own and has_unique_hostnames(nodes)


def filter_by_spread(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> Iterator[tuple[str, Ceiling]]:
    """Excludes the nodes that the spread constraints bar. Yields a ceiling if a constraint counts the replicas.

    The constraints apply one after the other, as in the scheduler.
    """
    keyed = nodes.live_mask
    for spread in shape.spread:
        keyed = keyed & (nodes.domain_ids(spread.topology_key_or_hostname) != NO_DOMAIN)
    counting: dict[tuple[bool, bool], Bools] = {}  # Constraints that honor the same count the same nodes.
    for spread in shape.spread:
        verdict.exclude_nodes(
            nodes.domain_ids(spread.topology_key_or_hostname) == NO_DOMAIN,
            f"no label {spread.topology_key_or_hostname}, over which it spreads",
        )
        if not spread.selector.requirements:
            continue  # The scheduler counts no pod then, so the skew is always 0.
        honors = (spread.honor_affinity, spread.honor_taints)
        if honors not in counting:
            counting[honors] = _counting_nodes(spread, shape, nodes, keyed)
        ceiling = _ceiling_of_spread(spread, shape, nodes, counting[honors])
        if spread.others_only:
            height = ceiling.lowest_height
            full = ceiling.present > height
            verdict.exclude_nodes(
                np.append(full, False)[ceiling.domains], f"spread over {spread.topology_key_or_hostname}"
            )
        else:
            yield f"spread over {spread.topology_key_or_hostname}", ceiling


def _counting_nodes(spread: Spread, shape: Shape, nodes: ClusterNodes, keyed: Bools) -> Bools:
    """Returns [rows]: the nodes whose pods a constraint counts. It depends only on honor_affinity and honor_taints."""
    verdict = NodeFilters(keyed)
    if spread.honor_affinity:
        filter_by_labels(shape, nodes, verdict)
    if spread.honor_taints:
        filter_by_taints(shape, nodes, verdict)
    return verdict.open


def _ceiling_of_spread(spread: Spread, shape: Shape, nodes: ClusterNodes, counting: Bools) -> Ceiling:
    """Returns the ceiling of a spread constraint. counting: the nodes whose pods it counts."""
    requirements = spread.selector.requirements
    tables = nodes.pods.tables_matching(
        (shape.namespace,),
        lambda table: not table.terminating and matches_labels(requirements, dict(table.labels)),
    )
    domains = nodes.domain_ids(spread.topology_key_or_hostname)
    size = int(domains.max(initial=NO_DOMAIN)) + 1
    counted = np.bincount(domains[counting], minlength=size) > 0
    pods = nodes.pods.pod_counts_of_tables(tables, len(domains))
    present = np.bincount(domains[counting], pods[counting], minlength=size).astype(np.int64)
    # Below minDomains, the scheduler takes the emptiest domain as having no pod: the ceiling is then the skew alone.
    few = int(np.count_nonzero(counted)) < spread.min_domains
    return Ceiling(domains, present, spread.max_skew, None if few else counted)


def _tables_matching_term(term: PodTerm, shape: Shape, nodes: ClusterNodes) -> list[int]:
    """Returns the tables of pods that a term of the shape matches."""
    requirements = term.selector.requirements
    return nodes.pods.tables_matching(
        namespaces_of(term, shape.namespace, nodes), lambda table: matches_labels(requirements, dict(table.labels))
    )


def namespaces_of(term: PodTerm, own: str, nodes: ClusterNodes) -> Iterable[str] | None:
    """Returns the namespaces in which a term looks for pods; None for all.

    A namespace selector that matches a namespace without labels matches all namespaces. The scheduler does the same,
    because it tests other pods without the labels of their namespaces.
    """
    if term.namespace_selector is None:
        return term.namespaces or (own,)
    requirements = term.namespace_selector.requirements
    if matches_labels(requirements, {}):
        return None
    found = [name for name in nodes.pods.namespaces if matches_labels(requirements, namespace_labels(name, nodes))]
    return dict.fromkeys((*term.namespaces, *found))


def _is_selecting_own_replicas(term: PodTerm, shape: Shape, nodes: ClusterNodes) -> bool:
    """Returns whether a term of a shape matches the shape's own replicas."""
    if not term.own or term.namespace_selector is None or shape.namespace in term.namespaces:
        return term.own
    requirements = term.namespace_selector.requirements
    return matches_labels(requirements, {}) or matches_labels(requirements, namespace_labels(shape.namespace, nodes))


def namespace_labels(name: str, nodes: ClusterNodes) -> Mapping[str, str]:
    return {**nodes.namespaces.get(name, {}), NAMESPACE_LABEL: name}


def _nodes_sharing_domain(tables: Sequence[int], key: str, nodes: ClusterNodes) -> Bools:
    """Returns [rows]: whether the node's domain has pods of these tables."""
    domains = nodes.domain_ids(key)
    taken = np.zeros(int(domains.max(initial=NO_DOMAIN)) + 2, np.bool_)
    taken[domains[nodes.pods.pod_counts_of_tables(tables, len(domains)) > 0]] = True
    taken[NO_DOMAIN] = False  # NO_DOMAIN is −1, so this is the last entry, that of nodes without a domain.
    barred: Bools = taken[domains]
    return barred


def _barred_by_existing(shape: Shape, nodes: ClusterNodes) -> Iterator[tuple[str, Bools]]:
    """Yields, for each topology key, the nodes excluded by running pods whose anti-affinity matches the replicas."""
    tables_by_key: dict[str, list[int]] = {}
    for bearer, term, tables in nodes.pods.anti_affinity_terms_about(shape.namespace):
        if is_selecting_shape(term, bearer, shape, nodes):
            tables_by_key.setdefault(term.topology_key_or_hostname, []).extend(tables)
    for key, found in sorted(tables_by_key.items()):
        yield key, _nodes_sharing_domain(found, key, nodes)


def is_selecting_shape(term: PodTerm, bearer: str, shape: Shape, nodes: ClusterNodes) -> bool:
    """Returns whether a term of a pod in the namespace `bearer` matches the replicas of a shape."""
    named = term.namespaces or (() if term.namespace_selector is not None else (bearer,))
    selected = term.namespace_selector is not None and matches_labels(
        term.namespace_selector.requirements, namespace_labels(shape.namespace, nodes)
    )
    if shape.namespace not in named and not selected:
        return False
    return matches_labels(term.selector.requirements, dict(shape.traits.labels))


def _filter_near(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> Int64s | None:
    """Excludes nodes by pod affinity: each term needs, in the node's domain, a pod that all terms match.

    If no such pod runs and the replicas match all terms themselves, the first replica is exempt. Then it returns the
    groups of nodes that share all domains, as filter_by_other_pods does.
    """
    domains = [nodes.domain_ids(term.topology_key_or_hostname) for term in shape.near]
    keyed = np.logical_and.reduce([found != NO_DOMAIN for found in domains])
    verdict.exclude_nodes(~keyed, "affinity: no such label")
    tables = set(_tables_matching_term(shape.near[0], shape, nodes))
    for term in shape.near[1:]:
        tables &= set(_tables_matching_term(term, shape, nodes))
    pods = nodes.pods.pod_counts_of_tables(tables, len(nodes.block)) > 0
    if any((pods & (found != NO_DOMAIN)).any() for found in domains):
        for term in shape.near:
            verdict.exclude_nodes(
                ~_nodes_sharing_domain(list(tables), term.topology_key_or_hostname, nodes),
                f"affinity{topology_suffix(term.topology_key_or_hostname)}",
            )
        return None
    if not all(_is_selecting_own_replicas(term, shape, nodes) for term in shape.near):
        verdict.exclude_nodes(nodes.live_mask, "affinity: no such pod runs")
        return None
    _, groups = np.unique(np.stack(domains), axis=1, return_inverse=True)
    return np.where(keyed, groups.reshape(-1), NO_DOMAIN)
