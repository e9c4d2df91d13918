"""The marks of lending on nodes and pods, and the names made for lending. All writers and readers use this module.

docs/lending.md has the table of states. The taint's value on the owner's node is the register that decides.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED, Generation, Taint

PREFIX: Final = "spillway.io/"

# ── On the owner's node ─────────────────────────────────────────────────────────────────────────────────────────────

LENDING: Final = "spillway.io/lending"
"""Key of the taint, whose value is the state of the loan. Also the key of a label that only a lent node has: pool pods
select it."""
CHECKING: Final = "checking"
LENT: Final = "lent"
RECALLED: Final = "recalled"
LOAN: Final = "spillway.io/loan"
"""Annotation of both nodes: the loan's Generation."""
RECALL_CAUSE: Final = "spillway.io/recall-cause"
"""Annotation: why a node is recalled. The next instance that continues the recall reads it."""
POOL_CLUSTER: Final = "spillway.io/pool-cluster"
"""Annotation: the pool that has this loan's virtual node, even if another pool is declared later."""
FLEET: Final = "spillway.io/fleet"
"""Label of a marked node: the id of its fleet. The bridge of another fleet leaves the node alone."""
LEND: Final = "spillway.io/lend"
"""Label that people set. With the value `never` the node is not lent."""
NEVER: Final = "never"

# ── On the virtual node ─────────────────────────────────────────────────────────────────────────────────────────────

LENT_CLUSTER: Final = "spillway.io/lent-cluster"
LENT_NODE: Final = "spillway.io/lent-node"
"""Label with the node's name, cut to a label's length. The annotation with this key has the whole name."""
SUPPLY_CLASS: Final = "spillway.io/supply-class"
COST_PER_HOUR: Final = "spillway.io/cost-per-hour"
POOL_TAINT: Final = "spillway.io/lent"
"""Key of the taint, whose value is the supply class. Only pods that tolerate it run on the virtual node."""

# ── On the real pod ─────────────────────────────────────────────────────────────────────────────────────────────────

POOL: Final = "spillway.io/pool"
POOL_UID: Final = "spillway.io/pool-uid"
POOL_POD: Final = "spillway.io/pool-pod"
COPIES: Final = "spillway.io/copies"
"""Annotation: the pool's ConfigMaps and Secrets that the real pod refers to, as `Secret/key ConfigMap/settings`."""
COPY_VERSION: Final = "spillway.io/copy-version"
"""Annotation of a copy: the uid and resourceVersion of the original."""
COPY_BYTES: Final = "spillway.io/copy-bytes"
"""Annotation of a copy: the size of its content in bytes."""
GIVEN: Final = "spillway.io/given"
"""Annotation: the values of the pool pod's changeable fields that the real pod was last given."""
POD_NAMESPACE_PREFIX: Final = "spillway-lent-"

# ── On the pool pod ─────────────────────────────────────────────────────────────────────────────────────────────────

CREATED: Final = "spillway.io/Created"
"""Condition: a real pod of this pool pod once existed."""

NOT_UPDATED: Final = "spillway.io/NotUpdated"
"""A pod condition: a change to this pool pod has not reached its real pod. Its message is the reason."""

LABEL_CHARACTERS_MAX: Final = 63
_LOAN_TEXT = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})", re.ASCII)  # Numbers that fit an int64 of the wire.
_DIGEST_CHARACTERS = 10


def loan_state_from_taints(taints: Iterable[Taint]) -> int:
    """Returns NODE_OWNED, NODE_LENT or NODE_RECALLED, as in a row of capacity. An unknown value counts as recalled."""
    values = [taint.value for taint in taints if taint.key == LENDING]
    if not values:
        return NODE_OWNED
    return NODE_LENT if set(values) <= {CHECKING, LENT} else NODE_RECALLED


def virtual_node_name(cluster: str, node: str) -> str:
    """Returns the name of a virtual node: `cluster.node`. A name of over 63 characters is cut and ends with a hash.

    Two nodes never get the same name, because a cluster's name contains no dot.
    """
    return name_within_label_length(f"{cluster}.{node}")


def namespace_in_owner(namespace: str) -> str:
    """Returns the namespace in the owner where the real pods of a pool's namespace run."""
    return name_within_label_length(POD_NAMESPACE_PREFIX + namespace)


def object_name_in_owner(pool_id: str, name: str, *identity: str) -> str:
    """Returns the name that an object of a pool gets in the owner's cluster. Objects of two pools get different names.

    identity: identifies the object in its pool. For a pool pod: its uid. For a ConfigMap or Secret: namespace, kind,
    name.
    """
    return _name_with_digest(name, digest_of_parts(pool_id, *identity))


def name_within_label_length(name: str) -> str:
    """Returns the name, if it is short enough for a label's value; otherwise cut, with a hash of the whole name."""
    return name if len(name) <= LABEL_CHARACTERS_MAX else _name_with_digest(name, digest_of_parts(name))


def digest_of_parts(*parts: str) -> str:
    """Returns a digest of the parts in their order. A part that contains a separator does not count as two."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def loan_text(loan: Generation) -> str:
    return str(loan)


def read_loan(annotations: Mapping[str, str]) -> Generation | None:
    """Returns the loan that a node's annotations name; None if they name none, or if its numbers are too large."""
    found = _LOAN_TEXT.fullmatch(annotations.get(LOAN, ""))
    return Generation(int(found[1]), int(found[2])) if found else None


def _name_with_digest(name: str, found: str) -> str:
    room = LABEL_CHARACTERS_MAX - len(found) - 1
    kept = name[:room].rstrip("-._")
    return f"{kept}-{found}" if kept else found
