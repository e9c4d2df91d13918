"""Numbers in sentences for people."""


def counted(count: int, noun: str = "replica") -> str:
    """1 replica, 2 replicas."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def waiting(count: int, whose: str) -> str:
    """1 replica of … waits, 2 replicas of … wait."""
    return f"{counted(count)} {whose} {'waits' if count == 1 else 'wait'}"
