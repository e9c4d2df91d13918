"""Decides which connections are accepted, and which are closed for others.

There are limits for all, for one address, for one caller, and for strangers, who are not known yet.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

ALL: Final = "connections"
ADDRESS: Final = "address"
STRANGERS: Final = "strangers"
CALLER: Final = "caller"
_IPV6_PREFIX: Final = 64
"""The prefix length that counts as one address: one subscriber has a /64 with as many single addresses as they want."""


@dataclass(frozen=True, slots=True)
class ConnectionVerdict:
    """The decision about one more connection.

    reason: the limit that is reached; "" for none. closed: the connection to close for it. None with a reason refuses
    the new connection.
    """

    reason: str = ""
    closed: int | None = None


@dataclass(slots=True)
class _KnownConnection:
    """A connection on which a known caller has called. caller: the first one; "" if it counts for no caller.

    running: calls that have not ended. called_at: when the last call began or ended, in seconds.
    """

    caller: str
    called_at: float
    running: int = 0


class ConnectionCounts:
    """Counts open connections, and chooses the connection that is closed for a new one.

    most, address_most, strangers_most, caller_most: the most connections of all clients, of one address, of strangers
    and of one caller. idle_seconds: a known connection without a call for that long can be closed for another.
    A stranger's connection is closed for a new one: the oldest one of the address with the most strangers. So many
    strangers from one address lose only their own connections. Without a stranger an idle known one is closed. A known
    connection that is not idle is closed only for another one of its own caller.
    """

    def __init__(
        self,
        most: int,
        address_most: int,
        strangers_most: int,
        caller_most: float = math.inf,
        idle_seconds: float = math.inf,
    ) -> None:
        self._most, self._address_most, self._strangers_most = most, address_most, strangers_most
        self._caller_most, self._idle_seconds = caller_most, idle_seconds
        self._addresses = dict[int, str]()
        self._strangers = dict[int, str]()
        self._of_address = Counter[str]()
        self._strangers_of_address = Counter[str]()
        self._known = dict[int, _KnownConnection]()
        """The known connections by number, in the order of their last calls."""
        self._of_caller = Counter[str]()

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def stranger_count(self) -> int:
        return len(self._strangers)

    def verdict_on_connection(self, address: str, now: float) -> ConnectionVerdict:
        """Decides about one more connection of this address.

        The caller must first remove the connection that the verdict closes, then add the new one. now: in seconds, by
        the same clock for all methods.
        """
        if self._of_address[address] >= self._address_most:
            closed = self._oldest_stranger_of(address)
            return ConnectionVerdict(ADDRESS, self._oldest_idle_connection(now, address) if closed is None else closed)
        if len(self._addresses) >= self._most:
            closed = self.oldest_stranger()
            return ConnectionVerdict(ALL, self._oldest_idle_connection(now) if closed is None else closed)
        if len(self._strangers) >= self._strangers_most:
            return ConnectionVerdict(STRANGERS, self.oldest_stranger())
        return ConnectionVerdict()

    def add_stranger(self, number: int, address: str) -> None:
        """Adds the connection of a stranger."""
        for numbers, counted in self._address_tables():
            numbers[number] = address
            counted[address] += 1

    def mark_known(self, number: int, now: float, caller: str = "") -> None:
        """Marks a connection as known, with the first caller that is given. Has no effect on one that is gone."""
        if number not in self._addresses:
            return
        _remove_number(number, self._strangers, self._strangers_of_address)
        known = self._known.pop(number, None) or _KnownConnection("", now)
        if caller and not known.caller:
            known.caller = caller
            self._of_caller[caller] += 1
        known.called_at = now
        self._known[number] = known

    def begin_call(self, number: int, caller: str, now: float) -> int | None:
        """Counts a running call of a known caller. Returns the connection to close because its caller has too many.

        It is the caller's connection without a running call whose last call is longest ago. If calls run on all of its
        connections, it is the connection of this call. Returns None while the caller is within its limit.
        """
        if number not in self._addresses:
            return None
        self.mark_known(number, now, caller)
        known = self._known[number]
        known.running += 1
        if self._of_caller[known.caller] <= self._caller_most:
            return None
        return next((other for other, one in self._connections_without_calls() if one.caller == known.caller), number)

    def end_call(self, number: int, now: float) -> None:
        """Counts a call of `begin_call` as ended. Has no effect on a connection that is gone."""
        known = self._known.pop(number, None)
        if known is not None:
            known.running -= 1
            known.called_at = now
            self._known[number] = known

    def remove_connection(self, number: int) -> None:
        for numbers, counted in self._address_tables():
            _remove_number(number, numbers, counted)
        known = self._known.pop(number, None)
        if known is not None and known.caller:
            _subtract_one(self._of_caller, known.caller)

    def is_stranger(self, number: int) -> bool:
        return number in self._strangers

    def caller_of(self, number: int) -> str:
        """Returns the caller for whom a connection counts; "" for a stranger's, and for one that counts for nobody."""
        known = self._known.get(number)
        return known.caller if known is not None else ""

    def oldest_stranger(self) -> int | None:
        """Returns the oldest stranger's connection of the address with the most strangers; None without strangers."""
        return self._oldest_stranger_of(
            max(self._strangers_of_address, key=self._strangers_of_address.__getitem__, default="")
        )

    def _oldest_stranger_of(self, address: str) -> int | None:
        return next((number for number, other in self._strangers.items() if other == address), None)

    def _oldest_idle_connection(self, now: float, address: str = "") -> int | None:
        """Returns the known connection without a running call whose last call is longest ago; None if none is idle.

        A connection is idle if its last call was at least idle_seconds ago.
        address: only connections of this address; empty: of all.
        """
        for number, known in self._connections_without_calls():
            # The order is that of the last calls. If this connection is not idle, no later one is.
            if now - known.called_at < self._idle_seconds:
                return None
            if not address or self._addresses[number] == address:
                return number
        return None

    def _connections_without_calls(self) -> Iterator[tuple[int, _KnownConnection]]:
        return ((number, known) for number, known in self._known.items() if not known.running)

    def _address_tables(self) -> tuple[tuple[dict[int, str], Counter[str]], ...]:
        return (self._addresses, self._of_address), (self._strangers, self._strangers_of_address)


def _remove_number(number: int, numbers: dict[int, str], counted: Counter[str]) -> None:
    address = numbers.pop(number, None)
    if address is not None:
        _subtract_one(counted, address)


def _subtract_one(counted: Counter[str], name: str) -> None:
    """Subtracts one, and removes the name at 0."""
    counted[name] -= 1
    if not counted[name]:
        del counted[name]


def network_of_host(host: str) -> str:
    """Returns the network that connections of a host count for: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
