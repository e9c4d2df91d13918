"""Seeds that failed once, kept, with what each one taught. docs/simulation.md tells of the others, too.

A seed stands for the same script only as long as script.py draws the same: each lesson has a unit test of its own.
What was added to the scripts later is drawn from streams of its own; a kept seed runs with what there was in its day.
"""

from collections.abc import Callable

from spillway_simulation.brownfield_script import with_brownfield
from spillway_simulation.dependency_script import with_dependencies
from spillway_simulation.lending_script import with_lending
from spillway_simulation.repeat_script import with_freezes, with_frozen_writes, with_needs, with_repeats
from spillway_simulation.script import (
    Script,
    draw_first_script,
    with_large_fleet,
    with_reads,
    with_restarted_versions,
    with_retention,
    with_scaling,
)

KEPT_FIRST: dict[int, str] = {
    2034: "what a waiting workload took itself was back by the next look, showed no gain, and it waited for ever",
    5020: "a roll to a smaller template waited for room for a surge of the larger one",
    40: "replicas that came on top of a roll took the room of its surge: new pods waited for an old one, for ever",
    5363: "a template that was taken back while it waited for room waited for that room itself",
    474: "the same, and what was held for that roll kept others from free nodes",
    729: "a take-back that was carried out late ended what had bound meanwhile",
    1655: "a roll to a larger template began with room for its first exchange alone, and stood half done",
    857: "an unbound surge pod that was to leave while its template rolled never went",
    2553: "a roll began by the replicas that there were before the same Apply asked for fewer",
    2868: "a roll to a larger template began where it was not known yet what ran",
    2631: "a roll to a larger template took running replicas for which nobody had room",
    112: "a cluster whose nodes had changed said more room than is certain, and a roll stood half done for want of it",
    7105: "a planner fenced by one that woke had nothing to write, and answered from an old state as the active one",
    7127: "a template that rolled in a cluster whose last node was gone ended the planner",
}
"""Before there were policies in the scripts."""

KEPT_BROWNFIELD: dict[int, str] = {
    0: "a new part was written over an orphan of its name",
    9: "what was said of an orphan in a cluster that left was said for as long as its workload was declared",
    157: "what was adopted with no replicas in a cluster kept its template there for ever",
    20023: "none: the check took what a drain had moved for what still was where it had been adopted",
    20027: "none: the check took what is to go for what another manifest would change",
    41072: "pods that came and went before a take-over were missing for ever: their tombstone was taken before them",
    41081: "a late tombstone behind its successor's word was answered by nobody: disowning never ended",
    41094: "what a person had sent somewhere went home once others had left from beside it",
    41391: "a rollout that waited for room in any other cluster did not hear of one that joined",
}
"""Since clusters are given up, and members have something before anything is asked."""

KEPT_VERSIONS: dict[int, str] = {
    500564: "a propagator that had lost its turn made the planner forget a part that its successor had just created",
    41604: "watches from versions that a member had before it was restored said nothing, and nobody listed again",
}
"""Since versions of members begin again."""

KEPT_LENDING: dict[int, str] = {
    33: "where another's object had the name, what had been decided before stayed reserved",
    630049: "none: a part that was given up in a lost cluster is an orphan there, also where that never left",
    630086: "what waited for a ServiceAccount was said to wait for room alone, once others had the room",
    630098: "what pods of a returned node had referred to counted for ever: a copy of a Secret stayed in its owner",
    640016: "none: a template that waits for what its cluster lacks keeps its surge there",
    640023: "none: the check took a silent watch for constant capacity; and it was another story at each run",
    640025: "none: a part was placed where an orphan was not known yet, and listed no more once it was",
    660045: "none: the check at rest did not know of the surge of 640016",
    660278: "none: an adoption was taken back before it was carried out, and the orphan given back unmarked",
    660676: "none: pods that wait for a Secret which went are bound, and not ready",
    660704: "none: of a part given up only a ConfigMap was left, which is reported as an orphan",
    661661: "a cluster joined as the planner's turn was over: the answer was an error of ours",
    661665: "none: as 660045",
    700041: "left: hpa counts the pods of an orphan",
}
"""Since nodes are lent, planners are read, records are forgotten and things are missing."""

KEPT_REPEATS: dict[int, str] = {
    760003: "fewer replicas waited with the new template that was asked for with them: four ran, three were asked for",
    770565: "a roll that stood held room to grow for its new pods, too, and others waited beside it",
    770129: "none: pods that wait for a ConfigMap that they mount are bound, and not ready, as of a Secret",
    770360: "none: a roll that had begun had no room to go on, and the check took it for one that goes on",
    770811: "none: a node was recalled for pods, somebody cordoned it, and another one was recalled for the same pods",
    770894: "none: pods waited for less than the time between two looks of the check, and had a node recalled",
    780174: "none: what was missing was made and pods were bound, and the planner had not heard of it yet",
    803075: "values of one millisecond were decided on, and then a tombstone one millisecond before them",
    790150: "none: a workload was declared again after its deletion, and had a minute of its own for what is missing",
    800712: "a new template was given to a cluster that lacked what it names, as the template before it had named it",
    780116: "none: a pod came to run where watches said nothing, for versions had begun again, and was taken back",
    790300: "a larger template came while another one rolled; it stood, and held what its old pod lacked",
    851454: "a larger template came while a deleted pod was ending; its roll stood half done",
    855408: "a pool that was given up joined again as a node waited for requests in flight: its virtual node was open",
    840002: "none: a roll moved pods to other nodes, and a replica that was promised fitted on none any more",
    856637: "a collector woke up after its turn and told an age of before, as the new one had said nothing yet",
    856998: "a larger template was given to replicas that were never let in, without a look at the room",
    857063: "none: a pod was bound and gone between two looks of the check, and ended a pause",
    858180: "versions began again, and a watch went on behind what it had never told",
    800310: "none: a roll stood, as replicas that were to leave stay, and held what its old pod lacks",
    820033: "none: a move waited for a pod that waits for a Secret which was deleted after its template was there",
    822201: "a bridge whose turn was over said that a node is lent, where nobody had a turn to answer any more",
    771167: "a roll where the watches were silent: pods that no record showed were let go as if none had bound",
    771199: "a minimum where the Secret was missing kept a replica from a cluster of the tier that had it",
    771041: "a cluster left and joined again between two readings, and nobody said its capacity again",
    750017: "an hpa that was cut off, and not active any more, had nothing to write, and answered from what it knew",
    760138: "none: a roll that the cluster's own pods stopped holds what its old pod lacks, and others wait for it",
    863116: "what was read of a lent node that had vanished, while its return was acknowledged, was in use for ever",
    864834: "a status of an earlier version came first, and the one that ends the wait for a PriorityClass was no news",
    865032: "none: a take-back waited for the log, and the pause had begun when it was decided",
    865321: "none: a collector woke up after its cluster had left the fleet, and told an age of before",
    862820: "replicas that were to move stayed, and clusters that lack what they name were listed as waited for",
    760252: "none: a roll waited for longer than the check remembers templates, which took old pods for new ones",
}
"""Since users ask again with their keys, need what is lent, and somebody freezes what is about to wait."""

KEPT_FROZEN_WRITES: dict[int, str] = {
    884288: "none: a replica that had grown needed two nodes more, for what was on its way back took fewer of it",
    884808: "an hpa declared a policy before it read the workload; the next one had read it, and never decided on it",
    886043: "a need for lent nodes from before replicas had waited was said again once they had places",
    887174: "none: a size that follows what is idle fell ten times, as others took what its share left them",
}
"""Since a propagator freezes between its decision on a write and that write."""

DAYS: tuple[tuple[dict[int, str], tuple[Callable[[Script], Script], ...]], ...] = (
    (KEPT_FIRST, ()),
    (KEPT_BROWNFIELD, (with_scaling, with_brownfield)),
    (KEPT_VERSIONS, (with_restarted_versions,)),
    (KEPT_LENDING, (with_lending, with_reads, with_retention, with_dependencies, with_large_fleet)),
    (KEPT_REPEATS, (with_repeats, with_needs, with_freezes)),
    (KEPT_FROZEN_WRITES, (with_frozen_writes,)),
)
"""The additions to the scripts, in their order. Each line has the seeds that were kept before the next addition."""

KEPT = {seed: lesson for kept, _ in DAYS for seed, lesson in kept.items()}
LONG_SEEDS = frozenset(
    (
        640016,
        760138,
        760252,
        770811,
        771167,
        780174,
        790150,
        790300,
        800310,
        800712,
        803075,
        822201,
        840002,
        856637,
        858180,
        865321,
        886043,
        887174,
    )
)
"""The kept seeds that take more than 4 s of CPU each, two thirds of the time of all. `make test` leaves them out; each
lesson has a unit test of its own. `make simulate KEPT=all` runs them."""


def script_of(seed: int) -> Script:
    """The same seed, the same script."""
    script = draw_first_script(seed)
    for kept, additions in DAYS:
        for add in additions:
            script = add(script)
        if seed in kept:
            return script
    return script
