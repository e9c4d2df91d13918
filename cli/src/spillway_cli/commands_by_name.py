"""The module and the help line of each command, so that listing the commands imports no module.

cli/tests/test_commands_by_name.py checks that these texts are those of the modules.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class CommandEntry(NamedTuple):
    """A command. module: its module in spillway_cli. help: the first paragraph of its docstring."""

    module: str
    help: str


class CommandGroup(NamedTuple):
    """A group of commands, such as `spillway cluster`."""

    help: str
    verbs: Mapping[str, CommandEntry]


NAME_BY_FORMER_NAME: Final = {"release": "disown"}
"""Former names of commands, which are refused, and the present names.

A former name is not accepted, because that word has another meaning now.
"""
COMMANDS: Final[Mapping[str, CommandEntry | CommandGroup]] = {
    "apply": CommandEntry(
        "workload_commands", "Declare a workload: from manifests (-f), or in the short form (NAME --image --replicas)."
    ),
    "scale": CommandEntry("workload_commands", "Change the number of replicas."),
    "delete": CommandEntry(
        "workload_commands",
        "Remove a workload from every cluster; or a scale policy, whose workload keeps the replicas that it has.",
    ),
    "get": CommandEntry(
        "workload_commands",
        "Show one workload: what was asked for, where it is, what each cluster shows of it. Or scale policies.",
    ),
    "list": CommandEntry("workload_commands", "List the workloads of all namespaces, or of one."),
    "plan": CommandEntry("workload_commands", "Show what apply would do now. Nothing is kept."),
    "capacity": CommandEntry(
        "workload_commands", "Show how many replicas of a workload each cluster can take, and what limits it."
    ),
    "watch": CommandEntry(
        "workload_commands",
        "Follow workloads as they change: a live table; into a pipe a line a change; or one JSON document a line.",
    ),
    "autoscale": CommandEntry(
        "scaling_commands",
        "Let the CPU that its pods use say how many replicas a workload has, in all clusters together.",
    ),
    "explain": CommandEntry(
        "explain_commands",
        "Say why replicas are where they are, what keeps others out, and what would change it. Nothing is changed.",
    ),
    "replay": CommandEntry(
        "whatif_commands",
        "Divide the replicas of a recorded decision again, from the record alone, and compare to the last byte.",
    ),
    "export": CommandEntry("whatif_commands", "Write the state of the fleet to a file, for `simulate --state`."),
    "simulate": CommandEntry(
        "whatif_commands",
        "Show where everything would go, what would wait and what would be refused. Nothing is changed.",
    ),
    "adopt": CommandEntry(
        "brownfield_commands",
        "Take over a Deployment that runs already, in one cluster or in several. Nothing is scaled, no pod restarts.",
    ),
    "disown": CommandEntry(
        "brownfield_commands", "Give a workload back: our labels go, objects and pods stay as they are."
    ),
    "orphans": CommandEntry(
        "brownfield_commands",
        "List objects that bear this fleet's label and that no placement lists. They are left as they are.",
    ),
    "status": CommandEntry(
        "cluster_commands",
        "Show whether the planner answers, brakes, the clusters with state and age, the workloads in sum, processes.",
    ),
    "freeze": CommandEntry(
        "brake_commands",
        "Keep replicas of the fleet, a cluster or a workload where they are; apply, scale and delete go on.",
    ),
    "unfreeze": CommandEntry("brake_commands", "Release a brake that freeze set."),
    "brakes": CommandEntry(
        "brake_commands", "Show what is frozen, which confirmations wait, and how many replicas each holds back."
    ),
    "confirm": CommandEntry(
        "brake_commands", "Let a cause move more of the fleet than its bound, until the cause is over."
    ),
    "lent": CommandEntry(
        "lending_commands",
        "Show how many cores are lent, and which nodes are or are on their way back, with pods, times, and for whom.",
    ),
    "recall": CommandEntry(
        "lending_commands", "Take lent nodes back, by name or all of a cluster; it waits for no freeze and no budget."
    ),
    "events": CommandEntry(
        "log_commands",
        "Tail a topic of the log, decoded: a line a record, or one JSON document a line. From now on, or --from-start.",
    ),
    "topics": CommandEntry(
        "log_commands",
        "Create the topics that are missing, say what differs, and form the fleet. May be run any number of times.",
    ),
    "doctor": CommandEntry(
        "doctor_commands",
        "Check services, log, store and clusters: what is wrong, and what mends it. Exit code 1 when a check failed.",
    ),
    "up": CommandEntry(
        "local_commands",
        "Start Kafka, Redis, the services and member clusters on this machine, and wait until they are ready.",
    ),
    "down": CommandEntry("local_commands", "Stop what `spillway up` started. Data and logs stay."),
    "processes": CommandEntry(
        "local_commands", "Show the processes that `spillway up` started, and where their logs are."
    ),
    "demo": CommandEntry(
        "local_commands",
        "Tell the main story and verify it from the members' own APIs: clusters report, a release is split own-first.",
    ),
    "config": CommandEntry("own_commands", "Show every setting, its value, and where the value comes from."),
    "version": CommandEntry("own_commands", "Show the version."),
    "cluster": CommandGroup(
        "The clusters of the fleet.",
        {
            "join": CommandEntry(
                "cluster_commands",
                "Add a cluster to the fleet, or change what is known of it; then see that its credential lets us in.",
            ),
            "list": CommandEntry(
                "cluster_commands", "List the clusters: state, age of what is known, how full they are."
            ),
            "nodes": CommandEntry(
                "cluster_commands",
                "List the nodes of a cluster by their names: state, how full each is, "
                "which are lent or stand for lent ones.",
            ),
            "cordon": CommandEntry("cluster_commands", "Place nothing new in a cluster; what is there stays."),
            "uncordon": CommandEntry(
                "cluster_commands",
                "Make a cluster active again: end its cordon, drain or leave, while it is still in the fleet.",
            ),
            "drain": CommandEntry(
                "cluster_commands",
                "Move what runs in a cluster elsewhere; each replica goes once the one that replaces it is available.",
            ),
            "leave": CommandEntry(
                "cluster_commands",
                "Take a cluster out of the fleet: it hands over what it has, and leaves when nothing is left.",
            ),
        },
    ),
    "fleet": CommandGroup(
        "The fleet as a whole.",
        {
            "recover": CommandEntry(
                "fleet_commands",
                "Take over everything that bears the former fleet's label, as it runs, after the log was lost.",
            ),
        },
    ),
    "migrate": CommandGroup(
        "Move what runs to another cluster.",
        {
            "workload": CommandEntry(
                "migrate_commands",
                "Move replicas of a workload; each goes once the one that replaces it is available. All or none.",
            ),
        },
    ),
    "idle": CommandGroup(
        "Nodes that nobody uses.",
        {
            "report": CommandEntry(
                "lending_commands",
                "Show nodes that were idle half of the time or more, why they probably were, and what could be done.",
            ),
        },
    ),
    "lending": CommandGroup(
        "How clusters lend their idle nodes: docs/lending.md.",
        {
            "declare": CommandEntry(
                "lending_rule_commands",
                "Declare how a cluster lends its idle nodes, and to which pool; this replaces a former declaration.",
            ),
            "list": CommandEntry(
                "lending_rule_commands", "Show which clusters lend, to which pools, and how much of each is lent now."
            ),
            "get": CommandEntry(
                "lending_rule_commands", "Show how one cluster lends: its rules, its numbers, and who said so."
            ),
            "pause": CommandEntry(
                "lending_rule_commands",
                "Lend nothing new, of one cluster or of all, until resumed; what is lent stays.",
            ),
            "resume": CommandEntry("lending_rule_commands", "Lend again what was paused."),
            "withdraw": CommandEntry(
                "lending_rule_commands",
                "Recall all that a cluster has lent, then forget what it declared; "
                "`spillway lent` shows what is away still.",
            ),
        },
    ),
}
