"""Grants: what claims allow, what they do not, and that no filter allows more."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.access.grants import EVERYTHING, Grant, Role, grant_of, require
from headrace.access.patterns import PATTERNS_MAX, matches
from headrace.errors import Forbidden, InvalidRequest

FEEDS = st.text(alphabet="ab:", min_size=1, max_size=8)
PATTERNS = st.text(alphabet="ab:*", min_size=1, max_size=8)
TENANTS = st.sampled_from(["t1", "t2", "t3"])
GRANTS = st.builds(
    Grant,
    roles=st.frozensets(st.sampled_from(list(Role))),
    feeds=st.none() | st.lists(PATTERNS, max_size=3).map(tuple),
    tenant=st.none() | TENANTS,
)


@given(PATTERNS, FEEDS)
def test_pattern_matches_as_its_regular_expression_does(pattern: str, feed: str) -> None:
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), feed) is not None
    assert matches(pattern, feed) == expected


def test_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 99 + "*b", "a" * 200)


def test_only_the_star_is_special() -> None:
    assert matches("vmapi::*", "vmapi::vm")
    assert not matches("vmapi::*", "VMAPI::vm")
    assert not matches("vmapi.*", "vmapi::vm")
    assert matches("*", "x")
    assert not matches("ab*ba", "aba")


def test_roles_open_what_they_are_for_and_nothing_else() -> None:
    publisher = grant_of({"roles": ["publisher"], "feeds": ["vmapi::*"]}, None)
    assert publisher.may_publish("vmapi::vm")
    assert not publisher.may_publish("cnapi::server")
    assert not publisher.may_listen("vmapi::vm")
    assert not publisher.may_replicate("t1", "vmapi::vm")
    assert not publisher.may_administer()
    listener = grant_of({"roles": ["listener"], "feeds": ["vmapi::*"]}, None)
    assert listener.may_listen("vmapi::vm")
    assert not listener.may_publish("vmapi::vm")
    replication = grant_of({"role": "replication", "tenant": "t1"}, None)
    assert replication.may_replicate("t1", "any")
    assert not replication.may_replicate("t2", "any")
    assert not replication.may_listen("any", "t1")
    admin = grant_of({"role": "admin"}, None)
    assert admin.may_administer()
    assert admin.may_publish("x")
    assert admin.may_listen("x")
    assert admin.may_replicate("t2", "x")


def test_what_is_missing_allows_nothing() -> None:
    given: list[dict[str, Any]] = [
        {},
        {"roles": []},
        {"roles": ["offline_access"], "feeds": ["*"]},
        {"roles": ["Admin", "admin "]},
    ]
    for claims in given:
        grant = grant_of(claims, None)
        assert not grant.roles
        assert not grant.may_see("a", "t1")
    assert not grant_of({"roles": ["publisher", "listener"]}, None).may_see("a", "t1")
    assert not grant_of({"roles": ["publisher", "listener"], "feeds": []}, None).may_see("a", "t1")
    assert not grant_of({"role": "replication"}, None).may_replicate("t1", "a")


def test_tenant_of_a_token_binds_its_feeds_too() -> None:
    grant = grant_of({"roles": ["publisher", "listener"], "feeds": ["*"], "tenant": "t1"}, None)
    assert grant.may_publish("a", "t1")
    assert grant.may_listen("a", "t1")
    for tenant in ("t2", None):
        assert not grant.may_publish("a", tenant)
        assert not grant.may_listen("a", tenant)


@pytest.mark.parametrize(
    "claims",
    [
        {"roles": "admin"},
        {"roles": [1]},
        {"roles": {"admin": True}},
        {"roles": ["a"] * 101},
        {"role": ["admin"]},
        {"role": True},
        {"feeds": "*"},
        {"feeds": [None]},
        {"feeds": ["a b"]},
        {"feeds": [""]},
        {"feeds": ["x" * 201]},
        {"feeds": ["x"] * (PATTERNS_MAX + 1)},
        {"tenant": ""},
        {"tenant": "a:b"},
        {"tenant": 7},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 201},
    ],
    ids=lambda claims: str(claims)[:40],
)
def test_malformed_claims_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(claims)).removesuffix("s")):
        grant_of(claims, None)


@given(
    GRANTS, st.lists(st.tuples(st.none() | TENANTS, st.none() | st.lists(PATTERNS, max_size=2)), max_size=3)
)
def test_filters_never_widen_a_grant(
    grant: Grant, filters: list[tuple[str | None, list[str] | None]]
) -> None:
    narrowed = grant
    for tenant, feeds in filters:
        try:
            narrowed = narrowed.narrowed(tenant=tenant, feeds=feeds)
        except Forbidden:
            assume(False)
    for tenant in ("t1", "t2", "t3"):
        for feed in ("a", "b", "a:b", "ab:", "::", "aaaa"):
            assert narrowed.may_listen(feed, tenant) <= grant.may_listen(feed, tenant)
            assert narrowed.may_replicate(tenant, feed) <= grant.may_replicate(tenant, feed)
            assert narrowed.may_publish(feed, tenant) == grant.may_publish(feed, tenant)
            fits = all(
                (only is None or only == tenant)
                and (feeds is None or any(matches(one, feed) for one in feeds))
                for only, feeds in filters
            )
            assert narrowed.may_replicate(tenant, feed) == (grant.may_replicate(tenant, feed) and fits)
            assert narrowed.may_listen(feed, tenant) == (grant.may_listen(feed, tenant) and fits)
    assert narrowed.may_administer() == grant.may_administer()


@given(GRANTS, TENANTS)
def test_filter_on_a_tenant_of_others_is_refused(grant: Grant, tenant: str) -> None:
    if grant.may_administer() or grant.tenant in {None, tenant}:
        grant.narrowed(tenant=tenant)
    else:
        with pytest.raises(Forbidden):
            grant.narrowed(tenant=tenant)


@given(GRANTS, FEEDS, TENANTS)
def test_more_roles_never_allow_less_and_no_role_allows_nothing(grant: Grant, feed: str, tenant: str) -> None:
    none = Grant(feeds=grant.feeds, tenant=grant.tenant)
    every = Grant(roles=frozenset(Role), feeds=grant.feeds, tenant=grant.tenant)
    assert not none.may_see(feed, tenant)
    assert none.may_see(feed, tenant) <= grant.may_see(feed, tenant) <= every.may_see(feed, tenant)


def test_second_filter_cannot_undo_the_first() -> None:
    once = EVERYTHING.narrowed(tenant="t1", feeds=["a*"])
    with pytest.raises(Forbidden):
        once.narrowed(tenant="t2")
    twice = once.narrowed(feeds=["*b"])
    assert twice.may_replicate("t1", "ab")
    for tenant, feed in (("t1", "a"), ("t1", "b"), ("t2", "ab")):
        assert not twice.may_replicate(tenant, feed)


def test_filter_must_be_a_name() -> None:
    with pytest.raises(InvalidRequest):
        EVERYTHING.narrowed(feeds=["a b"])
    with pytest.raises(InvalidRequest):
        EVERYTHING.narrowed(tenant="a:b")


def test_require_says_what_was_asked_for() -> None:
    require(True, "publish vmapi::vm")
    with pytest.raises(Forbidden, match="publish vmapi::vm"):
        require(False, "publish vmapi::vm")
