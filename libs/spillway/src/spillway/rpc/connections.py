"""Decides which connections are accepted: limits for all, for one address, and for strangers, who are not known yet."""

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Final

ALL: Final = "connections"
ADDRESS: Final = "address"
STRANGERS: Final = "strangers"
_IPV6_PREFIX: Final = 64
"""The prefix length that counts as one address: one subscriber has a /64 with as many single addresses as they want."""


@dataclass(frozen=True, slots=True)
class ConnectionVerdict:
    """The decision about one more connection.

    reason: the limit that is reached; "" for none. closed: the stranger's connection to close for it. None with a
    reason refuses the new connection.
    """

    reason: str = ""
    closed: int | None = None


class ConnectionCounts:
    """Counts open connections. most: of all together. address_most: of one address. strangers_most: of strangers.

    A known connection is never closed for a new one, but a stranger's is: the oldest one of the address with the most
    strangers. So many strangers from one address lose only their own connections.
    """

    def __init__(self, most: int, address_most: int, strangers_most: int) -> None:
        self._most, self._address_most, self._strangers_most = most, address_most, strangers_most
        self._addresses = dict[int, str]()
        self._strangers = dict[int, str]()
        self._of_address = Counter[str]()
        self._strangers_of_address = Counter[str]()

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def verdict(self, address: str) -> ConnectionVerdict:
        """Decides about one more connection of this address. Remove the stranger first, then add the connection."""
        if self._of_address[address] >= self._address_most:
            return ConnectionVerdict(ADDRESS, self._oldest(address))
        if len(self._addresses) >= self._most:
            return ConnectionVerdict(ALL, self.oldest_stranger())
        if len(self._strangers) >= self._strangers_most:
            return ConnectionVerdict(STRANGERS, self.oldest_stranger())
        return ConnectionVerdict()

    def add(self, number: int, address: str) -> None:
        """Adds the connection of a stranger."""
        for numbers, counted in self._both():
            numbers[number] = address
            counted[address] += 1

    def mark_known(self, number: int) -> None:
        """Marks a connection as known. Has no effect on one that is known or gone."""
        _take(number, self._strangers, self._strangers_of_address)

    def remove(self, number: int) -> None:
        for numbers, counted in self._both():
            _take(number, numbers, counted)

    def is_stranger(self, number: int) -> bool:
        return number in self._strangers

    def oldest_stranger(self) -> int | None:
        """Returns the oldest stranger of the address with the most strangers; None without any."""
        return self._oldest(max(self._strangers_of_address, key=self._strangers_of_address.__getitem__, default=""))

    def _oldest(self, address: str) -> int | None:
        return next((number for number, other in self._strangers.items() if other == address), None)

    def _both(self) -> tuple[tuple[dict[int, str], Counter[str]], ...]:
        return (self._addresses, self._of_address), (self._strangers, self._strangers_of_address)


def _take(number: int, numbers: dict[int, str], counted: Counter[str]) -> None:
    address = numbers.pop(number, None)
    if address is not None:
        counted[address] -= 1
        if not counted[address]:
            del counted[address]


def place_of(host: str) -> str:
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
