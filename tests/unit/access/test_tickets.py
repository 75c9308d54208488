"""Tickets: signed with one key and one algorithm, good until their end, and nothing else is taken."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWS

from headrace.access.minting import mint, new_key
from headrace.access.tickets import KEY_BYTES, TICKET_CHARS_MAX, sign, verify
from headrace.errors import TicketRefused
from tests.identity import encoded

KEY = bytes(range(KEY_BYTES))
CLAIMS: dict[str, Any] = {
    "iss": "headrace",
    "feed": "vmapi::vm",
    "listener": "tcns",
    "at-least": 7,
    "exp": 5000,
}


def test_ticket_comes_back_as_it_was_signed() -> None:
    assert verify(sign(CLAIMS, KEY), KEY, now=4999.9) == CLAIMS


def test_ticket_is_a_compact_jws_of_hs256() -> None:
    assert PyJWS().decode_complete(sign(CLAIMS, KEY), KEY, algorithms=["HS256"])["header"]["alg"] == "HS256"


@pytest.mark.parametrize("now", [5000, 5000.1, 10**9])
def test_ticket_ends_at_exp(now: float) -> None:
    with pytest.raises(TicketRefused, match="expired"):
        verify(sign(CLAIMS, KEY), KEY, now=now)


def test_ticket_of_another_key_is_refused() -> None:
    with pytest.raises(TicketRefused):
        verify(sign(CLAIMS, bytes(KEY_BYTES)), KEY, now=0)


def test_unsigned_ticket_is_refused() -> None:
    for name in ("none", "None", "NONE", ""):
        with pytest.raises(TicketRefused):
            verify(f"{encoded({'alg': name})}.{encoded(CLAIMS)}.", KEY, now=0)


def test_other_algorithms_are_refused_even_with_the_right_key() -> None:
    for name in ("HS384", "HS512"):
        with pytest.raises(TicketRefused):
            verify(PyJWS().encode(encoded(CLAIMS).encode(), KEY * 2, algorithm=name), KEY, now=0)
    with pytest.raises(TicketRefused):
        verify(mint(CLAIMS, new_key("ES256")), KEY, now=0)


def test_public_key_is_no_secret() -> None:
    key = new_key("EdDSA")
    raw = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)[-KEY_BYTES:]
    with pytest.raises(TicketRefused):
        verify(mint(CLAIMS, key), raw, now=0)


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b"7",
        b"null",
        b"{",
        b"\xff",
        b'{"exp":NaN}',
        b'{"exp":Infinity}',
        b'{"exp":1e400}',
        b'{"exp":true}',
        b'{"exp":"9999"}',
        b'{"exp":-1}',
        b'{"exp":null}',
        b"{}",
        b'{"exp":[1]}',
        b"[" * 5000,
    ],
)
def test_signed_nonsense_is_refused(payload: bytes) -> None:
    with pytest.raises(TicketRefused):
        verify(PyJWS().encode(payload, KEY, algorithm="HS256"), KEY, now=0)


def test_overlong_ticket_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(TicketRefused):
        verify(sign(CLAIMS | {"x": "y" * TICKET_CHARS_MAX}, KEY), KEY, now=0)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_key_of_another_length_is_a_mistake_of_the_caller(key: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        sign(CLAIMS, key)
    with pytest.raises(ValueError, match="32 bytes"):
        verify("a.b.c", key, now=0)


def test_ticket_needs_an_end() -> None:
    with pytest.raises(ValueError, match="exp"):
        sign({"feed": "a"}, KEY)
    with pytest.raises(ValueError, match="exp"):
        sign({"exp": float("inf")}, KEY)


@given(st.text() | st.text(alphabet="abcdefghijABCDEFG0123456789-_.=", max_size=60))
def test_any_text_is_refused_and_never_fails(text: str) -> None:
    with pytest.raises(TicketRefused):
        verify(text, KEY, now=0)


@given(st.data())
def test_any_changed_character_is_refused(data: st.DataObject) -> None:
    ticket = sign(CLAIMS, KEY)
    place = data.draw(st.integers(0, len(ticket) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda found: found != ticket[place]))
    with pytest.raises(TicketRefused) as refused:
        verify(ticket[:place] + other + ticket[place + 1 :], KEY, now=0)
    assert ticket.rsplit(".", 1)[1] not in str(refused.value)
