"""Without tokens only loopback addresses are served, unless somebody insists."""

from __future__ import annotations

import pytest

from headrace.access.exposure import is_loopback, is_loopback_name, judge_exposure
from headrace.errors import Usage

LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::1%lo"]
OTHERS = [
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "192.168.1.7",
    "fe80::1%eth0",
    "::ffff:10.0.0.1",
    "169.254.1.1",
    "nonsense",
    "",
]


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_is_served_without_a_word(address: str) -> None:
    assert is_loopback(address)
    for authenticated in (False, True):
        said = judge_exposure("x", [address], authenticated=authenticated, encrypted=False, insecure=False)
        assert said is None


@pytest.mark.parametrize("address", OTHERS)
def test_other_addresses_need_tokens_or_insecure(address: str) -> None:
    assert not is_loopback(address)
    for addresses in ([address], ["127.0.0.1", address]):
        with pytest.raises(Usage, match="asks nobody"):
            judge_exposure("x:1", addresses, authenticated=False, encrypted=True, insecure=False)
        said = judge_exposure("x:1", addresses, authenticated=False, encrypted=True, insecure=True)
        assert said is not None
        assert "x:1" in said
        assert "--insecure" in said


def test_host_of_no_address_is_refused() -> None:
    with pytest.raises(Usage):
        judge_exposure("x", [], authenticated=False, encrypted=False, insecure=False)


def test_tokens_in_clear_are_worth_a_word() -> None:
    assert judge_exposure("x", ["10.0.0.1"], authenticated=True, encrypted=True, insecure=False) is None
    said = judge_exposure("x", ["10.0.0.1"], authenticated=True, encrypted=False, insecure=False)
    assert said is not None
    assert "in clear" in said


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "localhost.", "127.0.0.1", "[::1]", "::1"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback_name(host)


@pytest.mark.parametrize(
    "host", ["localhost.example.com", "example.com", "127.0.0.1.example.com", "0", "2130706433", "127.1", ""]
)
def test_names_of_others(host: str) -> None:
    assert not is_loopback_name(host)
