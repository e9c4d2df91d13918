"""The module and the help line of each command, so that listing the commands imports no module.

cli/tests/test_commands_by_name.py checks that these texts are those of the modules.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Verb(NamedTuple):
    """A command. module: its module in spillway_cli. help: the first paragraph of its docstring."""

    module: str
    help: str


class Part(NamedTuple):
    """A group of commands, such as `spillway cluster`."""

    help: str
    verbs: Mapping[str, Verb]


NAME_BY_FORMER_NAME: Final = {"release": "disown"}
"""Former names of commands, which are refused, and the present names.

A former name is not accepted, because that word has another meaning now.
"""
COMMANDS: Final[Mapping[str, Verb | Part]] = {
    "apply": Verb(
        "workload_commands", "Declare a workload: from manifests (-f), or in the short form (NAME --image --replicas)."
    ),
    "scale": Verb("workload_commands", "Change the number of replicas."),
    "delete": Verb(
        "workload_commands",
        "Remove a workload from every cluster; or a scale policy, whose workload keeps the replicas that it has.",
    ),
    "get": Verb(
        "workload_commands",
        "Show one workload: what was asked for, where it is, what each cluster shows of it. Or scale policies.",
    ),
    "list": Verb("workload_commands", "List the workloads of all namespaces, or of one."),
    "plan": Verb("workload_commands", "Show what apply would do now. Nothing is kept."),
    "capacity": Verb(
        "workload_commands", "Show how many replicas of a workload each cluster can take, and what limits it."
    ),
    "watch": Verb(
        "workload_commands",
        "Follow workloads as they change: a live table; into a pipe a line a change; or one JSON document a line.",
    ),
    "autoscale": Verb(
        "scaling_commands",
        "Let the CPU that its pods use say how many replicas a workload has, in all clusters together.",
    ),
    "explain": Verb(
        "explain_commands",
        "Say why replicas are where they are, what keeps others out, and what would change it. Nothing is changed.",
    ),
    "replay": Verb(
        "whatif_commands",
        "Divide the replicas of a recorded decision again, from the record alone, and compare to the last byte.",
    ),
    "export": Verb("whatif_commands", "Write the state of the fleet to a file, for `simulate --state`."),
    "simulate": Verb(
        "whatif_commands",
        "Show where everything would go, what would wait and what would be refused. Nothing is changed.",
    ),
    "adopt": Verb(
        "brownfield_commands",
        "Take over a Deployment that runs already, in one cluster or in several. Nothing is scaled, no pod restarts.",
    ),
    "disown": Verb("brownfield_commands", "Give a workload back: our labels go, objects and pods stay as they are."),
    "orphans": Verb(
        "brownfield_commands",
        "List objects that bear this fleet's label and that no placement lists. They are left as they are.",
    ),
    "status": Verb(
        "cluster_commands",
        "Show whether the planner answers, brakes, the clusters with state and age, the workloads in sum, processes.",
    ),
    "freeze": Verb(
        "brake_commands",
        "Keep replicas of the fleet, a cluster or a workload where they are; apply, scale and delete go on.",
    ),
    "unfreeze": Verb("brake_commands", "Release a brake that freeze set."),
    "brakes": Verb(
        "brake_commands", "Show what is frozen, which confirmations wait, and how many replicas each holds back."
    ),
    "confirm": Verb("brake_commands", "Let a cause move more of the fleet than its bound, until the cause is over."),
    "lent": Verb(
        "lending_commands",
        "Show how many cores are lent, and which nodes are or are on their way back, with pods, times, and for whom.",
    ),
    "recall": Verb(
        "lending_commands", "Take lent nodes back, by name or all of a cluster; it waits for no freeze and no budget."
    ),
    "events": Verb(
        "log_commands",
        "Tail a topic of the log, decoded: a line a record, or one JSON document a line. From now on, or --from-start.",
    ),
    "topics": Verb(
        "log_commands",
        "Create the topics that are missing, say what differs, and form the fleet. May be run any number of times.",
    ),
    "doctor": Verb(
        "doctor_commands",
        "Check services, log, store and clusters: what is wrong, and what mends it. Exit code 1 when a check failed.",
    ),
    "up": Verb(
        "local_commands",
        "Start Kafka, Redis, the services and member clusters on this machine, and wait until they are ready.",
    ),
    "down": Verb("local_commands", "Stop what `spillway up` started. Data and logs stay."),
    "processes": Verb("local_commands", "Show the processes that `spillway up` started, and where their logs are."),
    "demo": Verb(
        "local_commands",
        "Tell the main story and verify it from the members' own APIs: clusters report, a release is split own-first.",
    ),
    "config": Verb("own_commands", "Show every setting, its value, and where the value comes from."),
    "version": Verb("own_commands", "Show the version."),
    "cluster": Part(
        "The clusters of the fleet.",
        {
            "join": Verb(
                "cluster_commands",
                "Add a cluster to the fleet, or change what is known of it; then see that its credential lets us in.",
            ),
            "list": Verb("cluster_commands", "List the clusters: state, age of what is known, how full they are."),
            "nodes": Verb(
                "cluster_commands",
                "List the nodes of a cluster by their names: state, how full each is, "
                "which are lent or stand for lent ones.",
            ),
            "cordon": Verb("cluster_commands", "Place nothing new in a cluster; what is there stays."),
            "uncordon": Verb(
                "cluster_commands",
                "Make a cluster active again: end its cordon, drain or leave, while it is still in the fleet.",
            ),
            "drain": Verb(
                "cluster_commands",
                "Move what runs in a cluster elsewhere; each replica goes once the one that replaces it is available.",
            ),
            "leave": Verb(
                "cluster_commands",
                "Take a cluster out of the fleet: it hands over what it has, and leaves when nothing is left.",
            ),
        },
    ),
    "fleet": Part(
        "The fleet as a whole.",
        {
            "recover": Verb(
                "fleet_commands",
                "After the log was lost: take over, as it runs, everything that bears the former fleet's label.",
            ),
        },
    ),
    "migrate": Part(
        "Move what runs to another cluster.",
        {
            "workload": Verb(
                "migrate_commands",
                "Move replicas of a workload; each goes once the one that replaces it is available. All or none.",
            ),
        },
    ),
    "idle": Part(
        "Nodes that nobody uses.",
        {
            "report": Verb(
                "lending_commands",
                "Show nodes that were idle half of the time or more, why they probably were, and what could be done.",
            ),
        },
    ),
    "lending": Part(
        "How clusters lend their idle nodes: docs/lending.md.",
        {
            "declare": Verb(
                "lending_rule_commands",
                "Declare how a cluster lends its idle nodes, and to which pool; this replaces a former declaration.",
            ),
            "list": Verb(
                "lending_rule_commands", "Show which clusters lend, to which pools, and how much of each is lent now."
            ),
            "get": Verb(
                "lending_rule_commands", "Show how one cluster lends: its rules, its numbers, and who said so."
            ),
            "pause": Verb(
                "lending_rule_commands",
                "Lend nothing new, of one cluster or of all, until resumed; what is lent stays.",
            ),
            "resume": Verb("lending_rule_commands", "Lend again what was paused."),
            "withdraw": Verb(
                "lending_rule_commands",
                "Recall all that a cluster has lent, then forget what it declared; "
                "`spillway lent` shows what is away still.",
            ),
        },
    ),
}
