"""A listener is its subject's: nobody else moves its place, ends its lease, takes its hold away or asks under its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import httpx
import pytest

from headrace.log.metadata.owners import OF_SUBJECT_MAX, Claimant
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from tests.identity import Issuer
from tests.secured import SecuredServer, secured
from tests.servers import Feed, code_of

ISSUER = Issuer()
CROWDED = "crowded"
"""A feed of which dave has as many listeners as a subject may have."""
LISTENER = "/listeners/alice-1/feeds/shop"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured(tmp_path_factory.mktemp("server"), ISSUER) as running:
        feed = Feed(running, "shop")
        assert feed.register().status_code == 200
        feed.post(*[{"changes": {"uuid": str(number)}} for number in range(10)])
        assert Feed(running, CROWDED).register().status_code == 200
        running.kill()
        with closing(SqliteMetadata(running.data_dir / METADATA_NAME)) as metadata:
            for number in range(OF_SUBJECT_MAX):
                metadata.register_listener(f"dave-{number}", CROWDED, False, 1, Claimant("dave", False))
        running.start()
        yield running


Callers = Callable[..., httpx.Client]


@pytest.fixture
def client(server: SecuredServer) -> Iterator[Callers]:
    """Makes clients: ``client(subject)`` is a listener's, with other ``claims`` somebody else's."""
    with ExitStack() as stack:

        def make(subject: str | None, **claims: object) -> httpx.Client:
            given = claims or {"roles": ["listener"], "feeds": ["shop"]}
            return stack.enter_context(server.client(ISSUER.token(sub=subject, **given)))

        yield make


def register(caller: httpx.Client, listener_id: str = "alice-1", **members: object) -> httpx.Response:
    body = {"listener-id": listener_id, "change-feed-id": "shop", **members}
    return caller.post("/listeners/register", json=body)


@pytest.mark.parametrize("other", ["bob", None])
def test_another_subject_is_refused_wherever_it_could_do_harm(
    server: SecuredServer, client: Callers, other: str | None
) -> None:
    alice, bob = client("alice"), client(other)
    incarnation = register(alice, hold=True).json()["incarnation"]
    place = {"incarnation": incarnation, "sequence-id": 1}
    assert alice.put(f"{LISTENER}/position", json=place).status_code == 200
    assert alice.post(f"{LISTENER}/hydration", json={}).status_code == 200
    asked: dict[str, str | int] = {"listener-id": "alice-1", "after-sequence-id": 0}
    refusals = [
        register(bob),
        bob.put(f"{LISTENER}/position", json=place | {"sequence-id": 10}),
        bob.post(f"{LISTENER}/hydration", json={}),
        bob.delete(f"{LISTENER}/hydration"),
        bob.get("/feeds/shop/poll", params=asked),
        bob.get("/feeds/shop/stream", params=asked),
    ]
    assert [(answer.status_code, code_of(answer)) for answer in refusals] == [(403, "listener-taken")] * 6
    (row,) = server.http.get("/feeds/shop").json()["listeners"]
    assert (row["listener-id"], row["sequence-id"], row["hold"]) == ("alice-1", 1, True)
    assert alice.get("/feeds/shop/poll", params=asked).status_code == 200
    assert alice.delete(f"{LISTENER}/hydration").status_code == 204


def test_an_admin_may_act_for_it_and_take_it_over(client: Callers) -> None:
    carol, admin = client("carol"), client("root", roles=["admin"])
    incarnation = register(carol, "taken").json()["incarnation"]
    place = {"incarnation": incarnation, "sequence-id": 3}
    assert admin.put("/listeners/taken/feeds/shop/position", json=place).status_code == 200
    assert register(carol, "taken").status_code == 200, "acting for it takes nothing over"
    assert register(admin, "taken").status_code == 200
    assert code_of(register(carol, "taken")) == "listener-taken"


def test_one_subject_has_no_more_than_so_many(client: Callers) -> None:
    crowded: dict[str, object] = {"change-feed-id": CROWDED}
    claims: dict[str, object] = {"roles": ["listener"], "feeds": [CROWDED]}
    dave, erin = client("dave", **claims), client("erin", **claims)
    refused = register(dave, "dave-1000", **crowded)
    assert (refused.status_code, code_of(refused)) == (409, "listeners-too-many")
    assert refused.json()["listeners-max"] == OF_SUBJECT_MAX
    assert register(dave, "dave-7", **crowded).status_code == 200
    assert register(erin, "erin-1", **crowded).status_code == 200
