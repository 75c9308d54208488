"""Keys behind a real address: they rotate without a restart, and what happens when they can't be had."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace.access.key_fetch import DOCUMENT_BYTES_MAX, key_fetch_of
from headrace.access.key_source import KeySource, KeyTerms
from headrace.access.tokens import TokenVerifier
from headrace.errors import KeysUnavailable, Unauthenticated
from headrace.runtime.clock import Clock, SystemClock
from tests.identity import Issuer
from tests.unit.client.servers import Answers, answering
from tests.waiting import async_wait_until

NEVER = 1e6
"""Seconds that no test lasts."""


class MovedClock(SystemClock):
    """The machine's wall clock, beside a monotonic clock that is moved by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        """What it was set to."""
        return self.seconds


@asynccontextmanager
async def verifying(
    issuer: Issuer, terms: KeyTerms, clock: Clock | None = None
) -> AsyncIterator[tuple[TokenVerifier, Answers]]:
    """A verifier of the issuer's keys, and the server that serves them."""
    async with (
        answering(body=issuer.key_set()) as served,
        KeySource(key_fetch_of(f"{served.url}/jwks"), terms=terms, clock=clock) as keys,
    ):
        yield TokenVerifier(keys, clock=clock), served


async def accepted(verifier: TokenVerifier, token: str) -> bool:
    """Is ``token`` let in?"""
    try:
        await verifier.verify(token)
    except Unauthenticated:
        return False
    return True


async def test_new_key_is_fetched_when_a_token_names_it() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=NEVER)) as (verifier, served):
        old = issuer.token()
        assert await accepted(verifier, old)
        issuer.rotate("ES256")
        served.body = issuer.key_set()
        assert await accepted(verifier, issuer.token())
        assert await accepted(verifier, old), "the old key is still in the set"
        assert len(served.requests) == 2


async def test_withdrawn_key_is_noticed_by_itself_and_its_remembered_tokens_end() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=0.02)) as (verifier, served):
        leaked = issuer.token()
        assert await accepted(verifier, leaked)
        issuer.rotate("RS256")
        issuer.withdraw()
        served.body = issuer.key_set()

        async def ended() -> bool:
            return not await accepted(verifier, leaked)

        await async_wait_until(ended, what="the withdrawn key to be noticed")
        assert await accepted(verifier, issuer.token())


async def test_tokens_of_unknown_keys_do_not_make_the_server_fetch_and_fetch() -> None:
    issuer, stranger = Issuer(), Issuer()
    clock = MovedClock()
    terms = KeyTerms(refresh_s=NEVER, unknown_pause_s=10, age_s_max=NEVER)
    async with verifying(issuer, terms, clock) as (verifier, served):
        for _ in range(50):
            assert not await accepted(verifier, stranger.token())
        for _ in range(50):
            with pytest.raises(KeysUnavailable):
                await verifier.verify(Issuer().token())
        assert len(served.requests) == 2, "once at the start, once for the unknown key"
        clock.seconds += 10
        assert not await accepted(verifier, stranger.token())
        assert len(served.requests) == 3


async def test_a_strangers_token_just_before_a_rotation_makes_no_good_token_bad() -> None:
    """Whoever is told that a token is bad throws it away; so as long as nobody can say, it is not said."""
    issuer, stranger = Issuer(), Issuer()
    clock = MovedClock()
    terms = KeyTerms(refresh_s=NEVER, unknown_pause_s=10, age_s_max=NEVER)
    async with verifying(issuer, terms, clock) as (verifier, served):
        with pytest.raises(Unauthenticated):
            await verifier.verify(stranger.token())
        issuer.rotate()
        served.body = issuer.key_set()
        with pytest.raises(KeysUnavailable, match="a moment ago"):
            await verifier.verify(issuer.token())
        with pytest.raises(Unauthenticated):
            await verifier.verify(stranger.token())
        clock.seconds += 10
        await verifier.verify(issuer.token())


async def test_an_unknown_key_is_not_bad_while_the_set_can_not_be_had() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=NEVER)) as (verifier, served):
        issuer.rotate()
        served.status = 500
        with pytest.raises(KeysUnavailable, match="can't be had"):
            await verifier.verify(issuer.token())


async def test_many_tokens_of_one_new_key_share_a_fetch() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=NEVER)) as (verifier, served):
        issuer.rotate()
        served.body = issuer.key_set()
        answers = await asyncio.gather(*(accepted(verifier, issuer.token()) for _ in range(20)))
        assert all(answers)
        assert len(served.requests) == 2


async def test_caller_that_goes_away_spoils_no_fetch() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=NEVER)) as (verifier, served):
        issuer.rotate()
        served.body = issuer.key_set()
        gone = asyncio.create_task(verifier.verify(issuer.token()))
        waiting = asyncio.create_task(verifier.verify(issuer.token()))
        await asyncio.to_thread(lambda: None)
        gone.cancel()
        await waiting
        assert len(served.requests) == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (404, b"gone"),
        (302, b""),
        (200, b"<html>"),
        (200, b"{}"),
        (200, json.dumps({"keys": [], "padding": "x" * DOCUMENT_BYTES_MAX}).encode()),
    ],
    ids=["500", "404", "redirect", "html", "no keys", "huge"],
)
async def test_known_keys_go_on_until_a_bound_then_nobody_is_let_in(status: int, body: bytes) -> None:
    issuer = Issuer()
    clock = MovedClock()
    terms = KeyTerms(refresh_s=0.01, retry_s_max=0.01, age_s_max=100)
    async with verifying(issuer, terms, clock) as (verifier, served):
        token = issuer.token()
        assert await accepted(verifier, token)
        good = served.body
        served.status, served.body = status, body
        served.headers["Location"] = "/elsewhere"
        before = len(served.requests)
        await async_wait_until(lambda: len(served.requests) > before + 2, what="fetches that fail")
        assert await accepted(verifier, token)
        assert await accepted(verifier, issuer.token())
        clock.seconds = 100.1
        with pytest.raises(KeysUnavailable):
            await verifier.verify(token)
        with pytest.raises(KeysUnavailable):
            verifier.recall(token)
        served.status, served.body = 200, good

        async def again() -> bool:
            try:
                return await accepted(verifier, token)
            except KeysUnavailable:
                return False

        await async_wait_until(again, what="the keys to be fetched again")


async def test_server_that_starts_before_its_issuer_lets_nobody_in_until_then() -> None:
    issuer = Issuer()
    async with answering(status=503, body=b"") as served:
        terms = KeyTerms(refresh_s=0.01, retry_s_max=0.01)
        async with KeySource(key_fetch_of(served.url), terms=terms) as keys:
            verifier = TokenVerifier(keys)
            with pytest.raises(KeysUnavailable, match="503"):
                await verifier.verify(issuer.token())
            served.status, served.body = 200, issuer.key_set()

            async def ready() -> bool:
                try:
                    return await accepted(verifier, issuer.token())
                except KeysUnavailable:
                    return False

            await async_wait_until(ready, what="the issuer's keys")


async def test_issuer_that_withdraws_all_keys_is_obeyed() -> None:
    issuer = Issuer()
    async with verifying(issuer, KeyTerms(refresh_s=0.01)) as (verifier, served):
        token = issuer.token()
        assert await accepted(verifier, token)
        served.body = b'{"keys": []}'

        async def ended() -> bool:
            return not await accepted(verifier, token)

        await async_wait_until(ended, what="the empty set to be noticed")
