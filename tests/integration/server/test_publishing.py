"""Posting to a real server: the three body forms, places, repeats, byte-for-byte pass-through, fencing."""

from __future__ import annotations

import base64
import json

import pytest

from tests.servers import Feed, ServerProcess, changes, code_of


def test_rfd_5_example_goes_in_and_comes_out(server: ServerProcess) -> None:
    feed = Feed(server, "vmapi::vm")
    feed.register()
    body = b"""{
       "sequence-id": 63,
       "agent-id": "agent-1",
       "change-feed-id": "vmapi::vm",
       "processed": false,
       "changes": {
           "uuid": "78615996-1a0e-40ca-974e-8b484774711a",
           "nics": [ { "interface": "net0", "vlan_id": 0, "primary": true } ]
       }
    }"""
    answer = feed.post_raw(body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["first-sequence-id"] == answer.json()["last-sequence-id"] == 63
    listed = server.http.get("/feeds/vmapi%3A%3Avm/entries?beg-sequence-id=63&end-sequence-id=64").json()
    (entry,) = listed["changes-list"]
    assert entry["sequence-id"] == 63
    assert entry["changes"] == json.loads(body)["changes"]
    assert entry["key"] == "78615996-1a0e-40ca-974e-8b484774711a"
    assert entry["op"] == "put"
    assert entry["lsn"] == answer.json()["first-lsn"]


def test_registration_is_idempotent_for_one_instance_and_a_new_instance_bumps_the_epoch(feed: Feed) -> None:
    first = feed.register(instance="process-1").json()
    assert feed.register(instance="process-1").json() == first
    second = feed.register(instance="process-2").json()
    assert second["epoch"] == first["epoch"] + 1
    assert second["incarnation"] == first["incarnation"]
    assert second["region-id"] == first["region-id"]
    assert second["next-sequence-id"] == 1


def test_single_entry_list_and_ndjson_are_each_one_atomic_append(feed: Feed) -> None:
    single = feed.post_raw(b'{"agent-id": "agent-1", "changes": {"n": 1}}').json()
    several = feed.post({"changes": {"n": 2}}, {"changes": {"n": 3}}).json()
    lines = b"".join(b'{"agent-id": "agent-1", "changes": {"n": %d}}\n' % number for number in (4, 5))
    ndjson = feed.post_raw(lines, "application/x-ndjson").json()
    assert (single["first-sequence-id"], single["last-sequence-id"]) == (1, 1)
    assert (several["first-sequence-id"], several["last-sequence-id"]) == (2, 3)
    assert (ndjson["first-sequence-id"], ndjson["last-sequence-id"]) == (4, 5)
    assert [entry["changes"]["n"] for entry in feed.entries()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "text",
    [
        b'{ "a" :1 ,\t"b":[ 1,2 ]\r\n}',
        b'{"a":1,"a":2,"a":"three"}',
        b'{"n":123456789012345678901234567890.10,"e":1E+400,"z":-0.0,"t":1.50}',
        b'{"u":"\\u0041\\u00e9\\ud83d\\ude00\\/","s":"\xc3\xa9\xf0\x9f\x98\x80"}',
        b"{}",
        b'{"deep":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
    ids=["spacing", "duplicate members", "big numbers", "escapes", "empty", "deep"],
)
def test_changes_and_before_pass_through_byte_for_byte(feed: Feed, text: bytes) -> None:
    answer = feed.post_raw(b'{"agent-id":"agent-1","before" : ' + text + b' , "changes":' + text + b"}")
    assert answer.status_code == 200, answer.text
    got = feed.read().content
    assert b'"changes":' + text + b"," in got
    assert b'"before":' + text + b"}" in got or b'"before":' + text + b"," in got


def test_all_members_of_an_entry_come_out_again(feed: Feed) -> None:
    sent = {
        "changes": {"id": 7, "name": "new"}, "op": "patch", "key": '["main","t",7]', "changed": ["name"],
        "before": {"id": 7, "name": "old"}, "table": ["main", "t"], "tx": "tx-1", "tx-index": 3, "tx-last": True,
        "source-time": "2026-11-21T01:02:03.456Z", "copy": True,
    }  # fmt: skip
    assert feed.post(sent).status_code == 200
    (entry,) = feed.entries()
    place = {name: entry.pop(name) for name in ("sequence-id", "lsn", "committed-at")}
    assert place["sequence-id"] == 1
    assert entry == sent


def test_control_entry_carries_its_name_and_reserved_key(feed: Feed) -> None:
    sent = {"changes": {"columns": []}, "control": "schema", "key": "\x00schema/main/t/1"}
    assert feed.post(sent).status_code == 200
    (entry,) = feed.entries()
    assert entry["control"] == "schema"
    assert entry["key"] == "\x00schema/main/t/1"


@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({"key": "k", "changes": {"uuid": "u"}}, "k"),
        ({"changes": {"uuid": "u\u00e9"}}, "u\u00e9"),
        ({"changes": {"uuid": 12.5}}, "12.5"),
        ({"changes": {"uuid": None}}, "1"),
        ({"changes": {"other": "x"}}, "1"),
    ],
    ids=["key given", "text in changes", "number in changes", "null", "none"],
)
def test_key_is_given_or_found_in_changes_or_the_sequence_id(
    feed: Feed, members: dict[str, object], key: str
) -> None:
    assert feed.post(members).status_code == 200
    assert [entry["key"] for entry in feed.entries()] == [key]


def test_repeat_by_expected_offset_is_answered_with_the_original_places(feed: Feed) -> None:
    batch = [{"changes": changes(number), "expected-offset": number} for number in (1, 2, 3)]
    first = feed.post(*batch).json()
    again = feed.post(*batch)
    assert again.status_code == 200
    assert again.json() == first | {"duplicate": True}
    assert len(feed.entries()) == 3


def test_repeat_with_other_batch_boundaries_is_recognised(feed: Feed) -> None:
    batch = [{"changes": changes(number), "expected-offset": number} for number in range(1, 8)]
    first = [feed.post(*batch[:3]).json(), feed.post(*batch[3:5]).json(), feed.post(*batch[5:]).json()]
    for start, stop in ((0, 7), (1, 4), (2, 3), (4, 7)):
        again = feed.post(*batch[start:stop]).json()
        assert again["duplicate"] is True
        assert (again["first-sequence-id"], again["last-sequence-id"]) == (start + 1, stop)
        if stop == 7:
            assert again["last-lsn"] == first[-1]["last-lsn"]
    assert [entry["sequence-id"] for entry in feed.entries()] == list(range(1, 8))


@pytest.mark.parametrize(
    ("numbers", "side_effects"),
    [((3, 4), "possible"), ((2, 3, 4), "possible"), ((5,), "none")],
    ids=["partly stored", "more of it stored", "beyond"],
)
def test_offset_mismatch_writes_nothing_and_names_both_places(
    feed: Feed, numbers: tuple[int, ...], side_effects: str
) -> None:
    feed.post(*({"changes": changes(number), "expected-offset": number} for number in (1, 2, 3)))
    answer = feed.post(*({"changes": changes(number), "expected-offset": number} for number in numbers))
    assert answer.status_code == 409
    assert code_of(answer) == "offset-mismatch"
    problem = answer.json()
    assert (problem["index"], problem["expected"], problem["actual-next"]) == (0, numbers[0], 4)
    assert problem["side-effects"] == side_effects
    assert len(feed.entries()) == 3
    assert feed.post({"changes": changes(4)}).status_code == 200, "an offset mismatch does not quarantine"


def test_stored_range_with_other_content_is_a_mismatch(feed: Feed) -> None:
    feed.post({"changes": {"n": 1}, "expected-offset": 1})
    assert code_of(feed.post({"changes": {"n": 2}, "expected-offset": 1})) == "offset-mismatch"


def test_minus_one_means_the_next_place(feed: Feed) -> None:
    assert feed.post({"changes": {}, "expected-offset": -1}).json()["first-sequence-id"] == 1
    assert feed.post({"changes": {}, "expected-offset": -1}).json()["first-sequence-id"] == 2


def test_feed_begins_where_its_first_entry_says(feed: Feed) -> None:
    assert (
        feed.post({"changes": {}, "sequence-id": 63}, {"changes": {}, "sequence-id": 64}).status_code == 200
    )
    assert [entry["sequence-id"] for entry in feed.entries()] == [63, 64]
    assert [entry["sequence-id"] for entry in feed.poll(after=0).json()["changes-list"]] == [63, 64]
    bounds = feed.server.http.get(feed.path).json()
    assert (bounds["oldest-sequence-id"], bounds["head-sequence-id"], bounds["next-sequence-id"]) == (
        63,
        64,
        65,
    )


def test_tail_gives_back_the_source_position_of_the_last_frame(feed: Feed) -> None:
    position = base64.b64encode(b"gtid-7\x00").decode()
    headers = {
        "Headrace-Source-Position": position,
        "Headrace-Marked-At": "2026-11-21T01:02:03Z",
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    posted = feed.post({"changes": {}}, {"changes": {}}, headers=headers).json()
    tail = feed.server.http.get(f"{feed.path}/tail", params={"producer": feed.agent}).json()
    assert tail["last-frame"] == {"first-sequence-id": 1, "count": 2, "source-position": position}
    assert (tail["next-sequence-id"], tail["newest-lsn"]) == (3, posted["last-lsn"])
    assert (tail["owner"], tail["epoch"]) == (feed.agent, 1)
    other = feed.server.http.get(f"{feed.path}/tail", params={"producer": "nobody"}).json()
    assert other["last-frame"] is None


def test_older_epoch_is_fenced_after_a_new_instance_registered(feed: Feed) -> None:
    old = feed.register(instance="process-1").json()["epoch"]
    new = feed.register(instance="process-2").json()["epoch"]
    late = feed.post({"changes": {}}, headers={"Headrace-Epoch": str(old)})
    assert (late.status_code, code_of(late)) == (409, "fenced")
    assert feed.post({"changes": {}}, headers={"Headrace-Epoch": str(new)}).status_code == 200


def test_takeover_fences_the_former_owner(feed: Feed) -> None:
    assert code_of(feed.register("agent-2")) == "feed-owned"
    assert feed.register("agent-2", takeover=True).status_code == 200
    assert code_of(feed.post({"changes": {}})) == "fenced"
    assert feed.post({"changes": {}, "agent-id": "agent-2"}).status_code == 200


def test_duplicate_entry_quarantines_alarms_and_is_released(feed: Feed) -> None:
    feed.agent = "agent-of-its-own"  # a release lifts what stands against an agent in every feed
    assert feed.register(takeover=True).status_code == 200
    entry = {"changes": {"n": 1}, "sequence-id": 1}
    assert feed.post(entry).status_code == 200
    refused = feed.post(entry)
    assert (refused.status_code, code_of(refused)) == (409, "duplicate-entry")
    assert refused.json()["received"] == 1
    locked = feed.post({"changes": {"n": 2}, "sequence-id": 2})
    assert (locked.status_code, code_of(locked)) == (423, "quarantined")
    assert feed.server.http.get(feed.path).json()["quarantined"] is True
    alarm = _alarm(feed)
    assert alarm["agent-id"] == feed.agent
    assert alarm["cleared-at"] is None
    released = feed.server.http.post(f"/publishers/{feed.agent}/release")
    assert released.json() == {"agent-id": feed.agent, "feeds": [feed.name]}
    assert feed.post({"changes": {"n": 2}, "sequence-id": 2}).status_code == 200
    assert _alarm(feed)["cleared-at"] is not None


def _alarm(feed: Feed) -> dict[str, object]:
    alarms = feed.server.http.get("/alarms").json()["alarms"]
    (own,) = [alarm for alarm in alarms if alarm["change-feed-id"] == feed.name]
    assert own["code"] == "duplicate-entry"
    return dict(own)
