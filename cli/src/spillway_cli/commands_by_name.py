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
        "Delete a workload from every cluster; or a scale policy, whose workload then keeps its replicas.",
    ),
    "get": CommandEntry(
        "workload_commands",
        "Show one workload: its replicas, and the status that each cluster reports. Or show scale policies.",
    ),
    "list": CommandEntry("workload_commands", "List the workloads of all namespaces, or of one."),
    "plan": CommandEntry("workload_commands", "Show what apply would do now. Nothing is changed."),
    "capacity": CommandEntry(
        "workload_commands", "Show how many replicas of a workload each cluster can take, and what limits it."
    ),
    "watch": CommandEntry(
        "workload_commands",
        "Follow workloads as they change: a live table, a line for each change in a pipe, or JSON documents.",
    ),
    "autoscale": CommandEntry(
        "scaling_commands",
        "Scale a workload by the CPU use of its pods in all clusters together.",
    ),
    "explain": CommandEntry(
        "explain_commands",
        "Explain why replicas are in their clusters, why others wait, and what would help. Nothing is changed.",
    ),
    "replay": CommandEntry(
        "whatif_commands",
        "Compute the division of a recorded decision again, from its record alone, and compare both byte by byte.",
    ),
    "export": CommandEntry("whatif_commands", "Write the state of the fleet to a file, for `simulate --state`."),
    "simulate": CommandEntry(
        "whatif_commands",
        "Show where replicas would go, which would wait, and which workloads would be refused. Nothing is changed.",
    ),
    "adopt": CommandEntry(
        "brownfield_commands",
        "Take over a Deployment that runs already, in one cluster or in several. Nothing is scaled, no pod restarts.",
    ),
    "disown": CommandEntry(
        "brownfield_commands",
        "Stop managing a workload: Spillway's labels are removed, its objects and pods stay as they are.",
    ),
    "orphans": CommandEntry(
        "brownfield_commands",
        "List objects that have this fleet's label but are in no placement. Spillway leaves them as they are.",
    ),
    "status": CommandEntry(
        "cluster_commands",
        "Show the planner, brakes, each cluster's state and age, the totals of all workloads, and local processes.",
    ),
    "freeze": CommandEntry(
        "brake_commands",
        "Stop moves of replicas in the fleet, a cluster or a workload; apply, scale and delete still work.",
    ),
    "unfreeze": CommandEntry("brake_commands", "Release a brake that freeze set."),
    "brakes": CommandEntry(
        "brake_commands", "Show the brakes and the open confirmations, and how many replicas each of them holds back."
    ),
    "confirm": CommandEntry(
        "brake_commands", "Allow a cause to move more replicas of the fleet than its limit, until the cause is over."
    ),
    "lent": CommandEntry(
        "lending_commands",
        "Show the lent cores, and each lent or recalled node with its pods, its times and the cause of its recall.",
    ),
    "recall": CommandEntry(
        "lending_commands",
        "Recall lent nodes of a cluster, by name or all of them. Neither brakes nor the budget delay the recall.",
    ),
    "events": CommandEntry(
        "log_commands",
        "Show the records of a topic, decoded, one a line. It shows only new records, or all with --from-start.",
    ),
    "topics": CommandEntry(
        "log_commands",
        "Create missing topics, report differences, and create the fleet on a new log. It can be run again.",
    ),
    "doctor": CommandEntry(
        "doctor_commands",
        "Check services, log, store and clusters, and say how to fix each fault. Exit code 1 if a check failed.",
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
        "Run the demo and check its result in the API of each demo cluster.",
    ),
    "config": CommandEntry("own_commands", "Show every setting, its value, and where the value comes from."),
    "version": CommandEntry("own_commands", "Show the version."),
    "cluster": CommandGroup(
        "The clusters of the fleet.",
        {
            "join": CommandEntry(
                "cluster_commands",
                "Add a cluster to the fleet, or change its properties; then check that its credential works.",
            ),
            "list": CommandEntry(
                "cluster_commands",
                "List the clusters with their state, the age of their last report, and their use of CPU and memory.",
            ),
            "nodes": CommandEntry(
                "cluster_commands",
                "List the nodes of a cluster by their names: state, how full each is, "
                "which are lent or stand for lent ones.",
            ),
            "cordon": CommandEntry(
                "cluster_commands", "Place no new replicas in a cluster; the replicas that it has stay."
            ),
            "uncordon": CommandEntry(
                "cluster_commands",
                "Make a cluster active again: end its cordon, drain or leave, while it is still in the fleet.",
            ),
            "drain": CommandEntry(
                "cluster_commands",
                "Move the replicas of a cluster to other clusters; each one leaves once its replacement is available.",
            ),
            "leave": CommandEntry(
                "cluster_commands",
                "Remove a cluster from the fleet: its replicas move to other clusters, and it leaves once it has none.",
            ),
        },
    ),
    "fleet": CommandGroup(
        "The fleet as a whole.",
        {
            "recover": CommandEntry(
                "fleet_commands",
                "Take over all objects that have a former fleet's label, as they run, after its log was lost.",
            ),
        },
    ),
    "migrate": CommandGroup(
        "Move replicas to another cluster.",
        {
            "workload": CommandEntry(
                "migrate_commands",
                "Move replicas of a workload, all or none; each one leaves once its replacement is available.",
            ),
        },
    ),
    "idle": CommandGroup(
        "Nodes without work.",
        {
            "report": CommandEntry(
                "lending_commands",
                "Show nodes that were idle for at least half of the time, with the probable reason and a suggestion.",
            ),
        },
    ),
    "lending": CommandGroup(
        "The lending of idle nodes to other clusters: docs/lending.md.",
        {
            "declare": CommandEntry(
                "lending_rule_commands",
                "Declare how a cluster lends its idle nodes, and to which pool; this replaces a former declaration.",
            ),
            "list": CommandEntry(
                "lending_rule_commands", "Show which clusters lend, to which pools, and how much of each is lent now."
            ),
            "get": CommandEntry(
                "lending_rule_commands", "Show the lending of one cluster: its rules, its numbers, and who declared it."
            ),
            "pause": CommandEntry(
                "lending_rule_commands",
                "Stop new loans of one cluster or of all until they are resumed; nodes that are lent stay lent.",
            ),
            "resume": CommandEntry("lending_rule_commands", "Allow new loans again after a pause."),
            "withdraw": CommandEntry(
                "lending_rule_commands",
                "Recall all that a cluster has lent, then forget what it declared; "
                "`spillway lent` shows what is away still.",
            ),
        },
    ),
}
