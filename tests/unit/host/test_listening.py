"""``--bind``: what it means, on the host of the supervisor and on others."""

from __future__ import annotations

import socket

import pytest

from ftrma.fabric import link
from ftrma.host.listening import Bind, check, listen, named, own_addresses, reachable

TABLE = [("ib0", "10.1.0.7"), ("eth0", "192.0.2.2"), ("ib0", "fd00:1::7"), ("lo", "127.0.0.1"),
         ("lo", "::1")]


@pytest.mark.parametrize("text, bind", [
    ("", Bind()),
    ("10.0.0.1", Bind("10.0.0.1")),
    ("10.0.0.1:5000", Bind("10.0.0.1", range(5000, 5001))),
    ("10.0.0.0/16:5000-5100", Bind("10.0.0.0/16", range(5000, 5101))),
    ("ib0:65535", Bind("ib0", range(65535, 65536))),
    (":5000-5001", Bind("", range(5000, 5002))),
    ("fd00::1", Bind("fd00::1")),
    ("fd00::/64", Bind("fd00::/64")),
    ("[fd00::1]:5000-5100", Bind("fd00::1", range(5000, 5101))),
])
def test_it_is_read_and_written(text: str, bind: Bind) -> None:
    """Law: parse(str(b)) is b."""
    assert Bind.parse("--bind", text) == bind == Bind.parse("--bind", str(bind))


@pytest.mark.parametrize("text", [
    "10.0.0", "10.0.0.256", "10.0.0.0/33", "ib0:0", "ib0:70000", "ib0:9-3", "ib0:-3", "a b", "[::1",
    "fd00::1:5000-5100", "ib0:http", "fd00:::1", "$(id)",
])
def test_nonsense_is_refused(text: str) -> None:
    """Law: with name, text and examples."""
    with pytest.raises(ValueError, match=r"expected an address.*ib0:5000-5100") as raised:
        Bind.parse("--bind", text)
    assert str(raised.value).startswith(f"--bind {text}: ")


@pytest.mark.parametrize("where, near, found", [
    ("", "", ""), ("0.0.0.0", "192.0.2.2", "0.0.0.0"), ("ib0", "", "10.1.0.7"),
    ("10.1.0.0/16", "", "10.1.0.7"), ("fd00:1::/64", "192.0.2.2", "fd00:1::7"),
    # An address is the supervisor's: elsewhere it is that of the way to it.
    ("10.1.0.7", "", "10.1.0.7"), ("10.1.0.1", "10.1.0.7", "10.1.0.7"),
])
def test_what_it_means_on_a_host(where: str, near: str, found: str) -> None:
    """Law: an address of the host, the first that fits."""
    assert Bind(where).here(TABLE, near) == found


@pytest.mark.parametrize("where", ["eth1", "10.2.0.0/16", "fd00:2::/64"])
def test_a_host_without_it_says_what_it_has(where: str) -> None:
    """Law of its name."""
    with pytest.raises(ValueError) as raised:
        Bind(where).here(TABLE, "192.0.2.2")
    assert f"has no {where}; it has ib0 10.1.0.7, eth0 192.0.2.2" in str(raised.value)


def test_own_addresses_are_there() -> None:
    """Law: each can be listened at; loopback comes last, and is there for others on this host."""
    table = own_addresses()
    for _, address in table:
        listen(address, range(1)).close()
    assert ("lo", "127.0.0.1") in table and named(table)
    assert reachable(TABLE) == ("10.1.0.7", "192.0.2.2", "fd00:1::7", "127.0.0.1")


def test_the_first_free_port_is_taken() -> None:
    """Law: none else; with none free there is an error, which `check` puts in words."""
    with listen("127.0.0.1", range(1)) as first:
        port = first.getsockname()[1]
        ports = range(port, min(port + 20, 65536))
        with listen("127.0.0.1", ports) as second:
            assert second.getsockname()[1] in ports[1:]
        with pytest.raises(OSError):
            listen("127.0.0.1", ports[:1])
        told = f"--bind 127.0.0.1:{port}-{port}: cannot listen at 127.0.0.1, ports {port} to {port}"
        with pytest.raises(ValueError, match=told):
            check(Bind("127.0.0.1", ports[:1]), "--bind")


@pytest.mark.parametrize(("like", "first"), [
    ("", "192.0.2.7"), ("10.1.0.9", "10.1.2.3"), ("10.2.0.9", "10.2.2.3"), ("fd00::9", "fd00::3"),
    ("192.0.2.1", "192.0.2.7")])
def test_the_network_that_has_worked_comes_first(like: str, first: str) -> None:
    """Law: of several addresses that of a network by which a connection was made is tried first,
    and all are tried."""
    addresses = ("192.0.2.7", "10.1.2.3", "10.2.2.3", "fd00::3")
    found = link.likely_first(addresses, like)
    assert found[0] == first and sorted(found) == sorted(addresses)


def test_all_addresses_are_those_of_both_kinds() -> None:
    """Law: who comes by IPv4 or by IPv6 is let in."""
    with listen("", range(1)) as listener:
        port = listener.getsockname()[1]
        for _, address in own_addresses():
            if ":" not in address or socket.has_dualstack_ipv6():
                socket.create_connection((address, port), 5).close()
