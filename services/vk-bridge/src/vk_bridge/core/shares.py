"""Decides how much of an owner one namespace of a pool may hold: at most as much as it leaves free (docs/adr/0029)."""

from collections import Counter
from dataclasses import dataclass

from spillway.places import leaves_as_much_free


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace of a pool. Its people share what it holds; the people of another namespace may be strangers."""

    pool: str
    namespace: str


class LogPlaces:
    """The logs that are being read, at most `most`. The first log of a tenant only needs a free place."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open = Counter[Tenant]()

    def refusal_text(self, tenant: Tenant) -> str:
        """Returns why the tenant may not read one more log now; empty: it may."""
        own, held = self._open[tenant], self._open.total()
        if held >= self.most:
            return f"{self.most} logs are being read already"
        if own and not leaves_as_much_free(own, held, 1, self.most):
            whose = f"namespace {tenant.namespace} of {tenant.pool}"
            return f"{own} logs of {whose} are being read already: at most as many as it leaves free of {self.most}"
        return ""

    def take_place(self, tenant: Tenant) -> None:
        self._open[tenant] += 1

    def give_back_place(self, tenant: Tenant) -> None:
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]
