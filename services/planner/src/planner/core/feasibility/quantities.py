"""Writes amounts as Kubernetes quantities."""


def quantity_text(resource: str, amount: int) -> str:
    """Returns the amount as a Kubernetes quantity to four digits: milli-CPU as cores or m, bytes as Gi, Mi or Ki."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage"):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount >= size:
                return f"{amount / size:.4g}{unit}"
    return str(amount)
