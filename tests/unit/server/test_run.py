"""Where a server may listen."""

from __future__ import annotations

import pytest

from headrace.errors import PortInUse, Usage
from headrace.server.run import Address, ServeSettings, bind, check_exposure, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8470", Address("127.0.0.1", 8470)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "8470", ":8470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "h:-1", "::1:80", "h:x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Usage):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_needs_no_flag(host: str) -> None:
    check_exposure(Address(host, 1), ServeSettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_other_addresses_need_insecure(host: str) -> None:
    with pytest.raises(Usage):
        check_exposure(Address(host, 1), ServeSettings())
    check_exposure(Address(host, 1), ServeSettings(insecure=True))


def test_host_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(Usage):
        check_exposure(Address("no such host", 1), ServeSettings())


def test_bind_takes_a_free_port_and_says_when_one_is_taken() -> None:
    with bind(Address("127.0.0.1", 0)) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        assert port
        with pytest.raises(PortInUse, match=str(port)):
            bind(Address("127.0.0.1", port))


def test_address_that_is_not_of_this_machine_is_a_usage_error() -> None:
    with pytest.raises(Usage, match=r"192\.0\.2\.1"):
        bind(Address("192.0.2.1", 0))
