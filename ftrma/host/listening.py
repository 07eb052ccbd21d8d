"""Addresses and ports at which the processes of a job listen: ``--bind``.

The supervisor listens on its own host and an agent on each node, so a network or an interface has a
meaning on all of them. An address is one of the supervisor's host; agents elsewhere use the address
by which their node reaches it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ANY = range(1)  # port 0: any free port
LINK_LOCAL = 0x20  # scope of an address in /proc/net/if_inet6, which says nothing without the link
SIOCGIFADDR = 0x8915  # netdevice(7)
Table = Sequence[tuple[str, str]]  # interface and address, IPv4 first


@dataclass(frozen=True)
class Bind:
    """A place to listen at.

    Attributes:
        where: an address, a network or an interface; "" for all addresses.
        ports: one of them is taken.
    """

    where: str = ""
    ports: range = ANY

    @classmethod
    def parse(cls, name: str, text: str) -> Bind:
        """Read ``WHERE[:PORT[-PORT]]``; an IPv6 address before ports stands in brackets.

        Args:
            name: the name under which the text was given.

        Raises:
            ValueError: with name, text and remedy.
        """
        if text.count(":") > 1 and not _wrong(text):  # IPv6, and no port
            return cls(text)
        found = re.fullmatch(r"(?:\[(.*)\]|([^:\[\]]*))(?::(\d+)(?:-(\d+))?)?", text)
        if not found:
            raise ValueError(f"{name} {text}: {EXPECTED}")
        six, where, first, last = found.groups()
        where = where if six is None else six
        ports = range(int(first), int(last or first) + 1) if first else ANY
        if _wrong(where) or (first and not 0 < ports.start < ports.stop <= 65536):
            raise ValueError(f"{name} {text}: {EXPECTED}")
        return cls(where, ports)

    @property
    def everywhere(self) -> bool:
        """Say whether it means all addresses, or all of IPv4."""
        return self.where in ("", "0.0.0.0", "::")

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        where = f"[{self.where}]" if ":" in self.where else self.where
        return where if self.ports == ANY else f"{where}:{self.ports[0]}-{self.ports[-1]}"

    def here(self, table: Table, near: str = "") -> str:
        """Return the address of this host that is meant, "" for all. Pure.

        Args:
            table: `own_addresses()`.
            near: the address that replaces a given one on this host; "" if none does.

        Raises:
            ValueError: there is no such address; the text names those that exist.
        """
        if self.everywhere:
            return self.where
        if "/" in self.where:
            network = ipaddress.ip_network(self.where, strict=False)
            found = [a for _, a in table if ipaddress.ip_address(a) in network]
        elif _is_address(self.where):
            found = [near or self.where]
        else:
            found = [a for interface, a in table if interface == self.where]
        if not found:
            raise ValueError(f"{socket.gethostname()} has no {self.where}; it has {named(table)}")
        return found[0]


EXPECTED = (
    "expected an address, a network or an interface, and maybe ports, such as 10.0.0.1, "
    "10.0.0.0/16, ib0, ib0:5000-5100 or [fd00::1]:5000-5100"
)


def _is_address(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _wrong(where: str) -> bool:
    """Say whether a text is neither an address, a network, an interface nor empty."""
    try:
        if "/" in where:
            ipaddress.ip_network(where, strict=False)
        elif re.fullmatch(r"[\d.]+|.*:.*", where):
            ipaddress.ip_address(where)
    except ValueError:
        return True
    return not re.fullmatch(r"[\w.@:/-]*", where)


def named(table: Table) -> str:
    """Return a table of addresses in words."""
    return ", ".join(f"{interface} {address}" for interface, address in table)


def own_addresses() -> list[tuple[str, str]]:
    """Return all interfaces of this host with their addresses: IPv4 first, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
                found.append((name, socket.inet_ntoa(answer[20:24])))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            packed, _, _, scope, _, name = line.split()
            if int(scope, 16) != LINK_LOCAL:
                found.append((name, str(ipaddress.IPv6Address(bytes.fromhex(packed)))))
    return sorted(found, key=lambda pair: ipaddress.ip_address(pair[1]).is_loopback)


def reachable(table: Table) -> tuple[str, ...]:
    """Return addresses by which others may reach a host, the likely ones first, and 127.0.0.1.
    Pure."""
    own = [address for _, address in table if not ipaddress.ip_address(address).is_loopback]
    return (*own, "127.0.0.1")


def listen(address: str, ports: range) -> socket.socket:
    """Listen at an address, "" for all, at the first of the ports that is free.

    Raises:
        OSError: no port is free; `strerror` describes the error.
    """
    both = address in ("", "::") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
    for port in ports:
        try:
            return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN,
                                        dualstack_ipv6=both)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                where = f"{address or 'all addresses'}, {_span(ports)}"
                why = os.strerror(error.errno or 0)
                raise OSError(error.errno, f"cannot listen at {where}: {why}") from None
    raise AssertionError("no port")


def _span(ports: range) -> str:
    return "any port" if ports == ANY else f"ports {ports[0]} to {ports[-1]}"


def check(bind: Bind, name: str) -> None:
    """Refuse a place that this host cannot listen at.

    Raises:
        ValueError: with name, text and remedy.
    """
    try:
        listen(bind.here(own_addresses()), bind.ports).close()
    except OSError as error:
        raise ValueError(
            f"{name} {bind}: {error.strerror}; this host has {named(own_addresses())}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{name} {bind}: {error}") from None
