"""Names of feeds, agents and tenants: what is taken, what is refused by its member, and the key prefix made of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.entries.feed import NAME_CHARS_MAX, check_agent_id, check_feed_id, check_tenant, key_prefix
from headrace.errors import InvalidRequest


@pytest.mark.parametrize("name", ["vmapi::vm", "a", "A-b_c.d~e+f@g:h", "...", "x" * NAME_CHARS_MAX])
def test_feed_names(name: str) -> None:
    assert check_feed_id(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "a%b", "a\n", "\n", "ä", "a\x00", "x" * (NAME_CHARS_MAX + 1), ".", ".."]
)
def test_no_feed_names(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check_feed_id(name)
    assert refusal.value.members == {"member": "change-feed-id"}


@pytest.mark.parametrize("name", ["eu-west-1", "acme", "a.b_c-d", "..", "x" * NAME_CHARS_MAX])
def test_tenants_and_regions(name: str) -> None:
    assert check_tenant(name) == name


@pytest.mark.parametrize("name", ["", "a:b", "a b", "a~b", "ä", "a\n", "x" * (NAME_CHARS_MAX + 1)])
def test_no_tenants_and_regions(name: str) -> None:
    with pytest.raises(InvalidRequest, match="tenant-id"):
        check_tenant(name)
    with pytest.raises(InvalidRequest, match="region"):
        check_tenant(name, "region")


@pytest.mark.parametrize("name", ["agent-1", "host/4711", "!~", "x" * NAME_CHARS_MAX])
def test_agents(name: str) -> None:
    assert check_agent_id(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a\t", "\x7f", "é", "x" * (NAME_CHARS_MAX + 1), ".", ".."])
def test_no_agents(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check_agent_id(name, "listener-id")
    assert refusal.value.members == {"member": "listener-id"}


@pytest.mark.parametrize(
    "check", [check_feed_id, check_tenant, check_agent_id], ids=["feed", "tenant", "agent"]
)
def test_refusal_never_repeats_a_long_name_whole(check: Callable[[str], str]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check(" " * 100_000)
    assert len(refusal.value.detail) < 200


def test_key_prefix() -> None:
    assert key_prefix("sa-east-1", "acme", "vmapi::vm") == "sa-east-1:acme:vmapi::vm:"
