"""What a seed says of dependencies: which templates name which Secret, ConfigMap or class, and where that is when."""

from dataclasses import replace
from random import Random

from spillway_simulation.script import CPU_CHOICES, Ask, Change, Dependencies, Script

OWN = "d0"
"""A workload that is there for this alone; its templates, all or the later ones, name something."""
KINDS = ("Secret", "Secret", "ConfigMap", "ServiceAccount", "PriorityClass")
STORIES = ("nowhere", "nowhere", "in some", "late", "deleted", "deleted and back")
AFTER_SECONDS = 30.0
"""So long after all else the last of it comes or goes: the wait for it is over by then, or another has begun."""


def with_dependencies(script: Script, always: bool = False) -> Script:
    """In a quarter of the seeds. Drawn from a stream of its own, so that the rest of the script stays what it was."""
    random = Random(f"{script.seed}/dependencies")
    if random.random() >= 1 / 4 and not always:
        return script
    things = tuple((random.choice(KINDS), f"key-{n + 1}") for n in range(random.choice((1, 1, 2))))
    span = script.faults_end
    asks = {**script.asks, OWN: _draw_own_asks(random, span)}
    named = [OWN, *(name for name in sorted(script.asks) if _may_name_objects(script, name) and random.random() < 0.4)]
    for name in named:
        thing = random.choice(things)
        since = random.choice((0, 0, 1)) if len(asks[name]) > 1 else 0
        asks[name] = tuple(replace(ask, needs=(thing,)) if n >= since else ask for n, ask in enumerate(asks[name]))
    changes = [
        change for thing in things for change in _draw_changes_of_object(random, script, thing, span + AFTER_SECONDS)
    ]
    later = tuple(sorted((one for one in changes if one.at > 0), key=lambda one: (one.at, one.cluster)))
    end = max([span, *(one.at for one in later)])
    told = Dependencies(tuple(one for one in changes if one.at <= 0), later)
    return replace(script, asks=asks, faults_end=end, dependencies=told)


def _may_name_objects(script: Script, name: str) -> bool:
    """What a policy sizes has checks of its own, which know of room alone; what is adopted has the template it had."""
    sized = {one.workload for one in script.scaled}
    found = {one.name for one in script.found}
    return name not in sized | found and script.asks[name][0].verb == "apply"


def _draw_own_asks(random: Random, span: float) -> tuple[Ask, ...]:
    count = random.randint(1, 5)
    verbs = ["apply", *random.choices(("scale", "scale", "apply", "delete", "migrate"), k=count - 1)]
    return tuple(
        Ask(
            verb=verb,
            wait=random.uniform(0, 2 * span / count),
            replicas=random.randint(0, 8),
            cpu=random.choice(CPU_CHOICES[:3]),
            policy=random.choice(("", "", "spread", "limited", "refuse")),
            configured=random.random() < 0.2,
        )
        for verb in verbs
    )


def _draw_changes_of_object(random: Random, script: Script, thing: tuple[str, str], end: float) -> list[Change]:
    """One thing's life in each member. Half of the stories end well: it is everywhere, for good."""
    story, changes = random.choice(STORIES), []
    ends_well = random.random() < 0.5
    for member in script.members:
        is_first = story.startswith("deleted") or (story == "in some" and random.random() < 0.5)
        if is_first:
            changes.append(Change(0.0, member.name, *thing, there=True))
        at = random.uniform(3, end)
        if story.startswith("deleted") and random.random() < 0.7:
            changes.append(Change(at, member.name, *thing, there=False))
            if story == "deleted and back" or ends_well:
                changes.append(Change(random.uniform(at, end), member.name, *thing, there=True))
        elif not is_first and (ends_well or (story != "nowhere" and random.random() < 0.5)):
            changes.append(Change(at, member.name, *thing, there=True))
    return changes
