"""schemathesis against real servers: it makes requests of what ``/openapi.json`` says, good ones and bad ones, and finds no
answer that isn't described there, and no 5xx.

``HEADRACE_TEST_SEED`` repeats a run, ``HEADRACE_TEST_SCALE`` makes it look longer. No operation is left out, but a short run
looks at the edges of some only (what is just within a description, and just not). A long poll is told to wait for nothing,
of an event stream the first event is read; the description itself is what each run reads first. Bytes that no description
leads to (broken JSON and NDJSON, HTTP itself) are the business of ``test_fuzz.py`` and ``test_bad_input.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.identity import Issuer
from tests.integration.server import asks, likely_bodies
from tests.scale import SCALE, SEED, chosen, scaled, sized
from tests.secured import secured
from tests.servers import Feed, ServerProcess, changes, serving

FEED = "fuzz"
LISTENER = "listener-1"
SNAPSHOTS = "https://snapshots.example"
EXAMPLES = scaled(sized(3, soak=15))
"""Generated requests of each operation, in each run; what stands at the edges of the description comes on top."""
KNOWN_EXAMPLES = scaled(sized(5, soak=15))
"""The same where each operation is to be got through."""
EDGES = 7
"""Operations whose edges a short run looks at, as its seed has it: they take most of its time."""
RUN_S_MAX = 600 * max(1.0, SCALE)
STREAM_EVENTS = 1

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "missing_required_header",
)
OF_ANY_NAME = (*CHECKS, "negative_data_rejection")
"""The hook that makes bodies likelier mends what was to be bad, so this is asked only where it does not run."""
REFUSED = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
"""What refuses bad data. A body over the limit is refused for its size, before anybody looks at what is in it."""
OF_KNOWN_NAMES = (*CHECKS, "ignored_auth")

DONE = {200, 204, 307}
SHUT_MAX = 3
"""How many operations a run may never get through: made-up headers, and pairs of places, rarely fit. The test behind it asks
each of them once for what it can do.
"""

KNOWN = {
    "change-feed-id": FEED,
    "listener-id": LISTENER,
    "agent-id": Feed.agent,
    "kind": "agent",
    "name": "reporter-1",
}


def _seed(server: ServerProcess) -> None:
    """Make what most calls are about: a feed with entries, a snapshot, a listener with a place; and an alarm."""
    feed = Feed(server, FEED)
    registered = feed.register(snapshot_url=f"{SNAPSHOTS}/snapshot").json()
    assert feed.listener(LISTENER).status_code == 200
    assert feed.post(*({"changes": changes(number)} for number in range(1, 6))).status_code == 200
    place = {"incarnation": registered["incarnation"], "sequence-id": 2}
    answer = server.http.put(f"/listeners/{LISTENER}{feed.path}/position", json=place)
    assert answer.status_code == 200
    assert Feed(server, likely_bodies.FEED).register(likely_bodies.AGENT).status_code == 200
    noisy = Feed(server, "noisy")
    noisy.register("agent-2")
    for _ in range(2):
        noisy.post({"agent-id": "agent-2", "sequence-id": 1, "changes": {}})
    assert server.http.get("/alarms").json()["alarms"]


def _config(server: ServerProcess, *, known: bool, token: str | None) -> str:
    """Return schemathesis' settings. Values are written as JSON, which TOML's strings and numbers are too."""
    fixed = {f"path.{name}": value for name, value in KNOWN.items()} if known else {}
    lines = [f"max-stream-events = {STREAM_EVENTS}", "max-redirects = 0", "request-timeout = 30"]
    if known:
        lines.append(f"hooks = {json.dumps(likely_bodies.__file__)}")
    lines += ["[checks.negative_data_rejection]", f"expected-statuses = {json.dumps(REFUSED)}"]
    lines += ["[dictionaries.ids]", f"values = {json.dumps([*KNOWN.values()])}"]
    lines += ["[generation.dictionaries]", 'string = { dictionary = "ids", probability = 0.3 }']
    lines += ["[parameters]", *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in fixed.items())]
    if token is not None:
        lines += ["[auth.openapi.bearer]", f"bearer = {json.dumps(token)}"]
    for name, given in _parameters(known=known).items():
        values = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in given.items())
        lines += ["[[operations]]", f"include-name = {json.dumps(name)}", f"parameters = {{ {values} }}"]
    looked_at = chosen(sorted(_operations(server)), EDGES, of=str(known))
    for name in sorted(_operations(server).difference(looked_at)):
        lines += ["[[operations]]", f"include-name = {json.dumps(name)}", "phases.coverage.enabled = false"]
    return "\n".join(lines) + "\n"


def _parameters(*, known: bool) -> dict[str, dict[str, Any]]:
    """What is fixed in some operations."""
    poll, feed = {"timeout-ms": 0}, "/feeds/{change-feed-id}"
    if not known:
        return {f"GET {feed}/poll": poll}
    who = {"query.listener-id": LISTENER}
    return {
        f"GET {feed}/poll": {**poll, **who},
        f"GET {feed}/stream": who,
        f"GET {feed}/snapshot": who,
        f"POST {feed}/entries": {"path.change-feed-id": likely_bodies.FEED},
    }


def _run(
    server: ServerProcess, checks: tuple[str, ...], *, known: bool, token: str | None = None
) -> dict[str, set[int]]:
    """Let schemathesis run; return the statuses that each operation was answered."""
    folder = server.folder / "schemathesis"
    folder.mkdir()
    config, report = folder / "schemathesis.toml", folder / "report.ndjson"
    config.write_text(_config(server, known=known, token=token))
    command = [str(Path(sys.executable).parent / "st"), "--no-color", "--config-file", str(config), "run"]
    command += [
        f"{server.url}/openapi.json",
        "--seed",
        str(SEED),
        "--max-examples",
        str(KNOWN_EXAMPLES if known else EXAMPLES),
    ]
    command += ["--checks", ",".join(checks), "--continue-on-failure", "--output-sanitize", "false"]
    command += ["--warnings", "off", "--report", "ndjson", "--report-ndjson-path", str(report)]
    history = server.http.get(f"/feeds/{FEED}").json()["incarnation"]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, likely_bodies.INCARNATION: history},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"seed {SEED}\n{done.stdout}\n{done.stderr}"
    assert "traceback" not in server.errors().lower()
    return _statuses(report)


def _statuses(report: Path) -> dict[str, set[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    with report.open() as lines:
        finished = [
            event["ScenarioFinished"] for line in lines if "ScenarioFinished" in (event := json.loads(line))
        ]
    for recorder in (one["recorder"] for one in finished):
        for name, exchange in recorder.get("interactions", {}).items():
            path = recorder["cases"][name]["value"]["path"]
            if exchange.get("response"):
                found[f"{exchange['request']['method']} {path}"].add(exchange["response"]["status_code"])
    return found


def _operations(server: ServerProcess) -> set[str]:
    """All operations but the description's own, which schemathesis reads and does not test."""
    paths = server.http.get("/openapi.json").json()["paths"]
    del paths["/openapi.json"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


@contextmanager
def _server(folder: Path) -> Iterator[ServerProcess]:
    with serving(folder, args=["--snapshot-allow", SNAPSHOTS]) as server:
        _seed(server)
        yield server


@pytest.mark.timeout(RUN_S_MAX + 60)
def test_requests_of_any_name(tmp_path: Path) -> None:
    with _server(tmp_path) as server:
        statuses = _run(server, OF_ANY_NAME, known=False)
        assert _operations(server) <= statuses.keys()
        assert any(404 in found for found in statuses.values())


def test_every_operation_has_an_answer_that_is_no_refusal(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        feed = asks.seed(server)
        world = asks.World(server.http)
        world.send_all()
        missing = ("GET /feeds/{change-feed-id}/snapshot", asks.SCHEMA.call)
        assert {call for call, _, _ in world.met} == set(missing)
        feed.register(snapshot_url=asks.SNAPSHOT_URL)
        names = [asks.OF_SCHEMA["{database}"], asks.OF_SCHEMA["{table}"]]
        key = f"\0schema/{'/'.join(names)}/{asks.OF_SCHEMA['{version}']}"
        schema = {"control": "schema", "key": key, "table": names, "changes": {"version": 1}}
        assert feed.post(schema).status_code == 200
        world.met.clear()
        for call in missing:
            world.send(asks.ASKS[call])
        assert not world.met


@pytest.mark.timeout(RUN_S_MAX + 60)
def test_requests_of_known_names_with_an_admin_s_token_get_through(tmp_path: Path) -> None:
    with secured(tmp_path, Issuer(), args=["--snapshot-allow", SNAPSHOTS]) as server:
        _seed(server)
        statuses = _run(server, OF_KNOWN_NAMES, known=True, token=server.issuer.token())
        shut = {operation for operation in _operations(server) if not statuses[operation] & DONE}
        assert len(shut) <= SHUT_MAX, f"never got through: {sorted(shut)}"
        closed = {operation for operation, found in statuses.items() if 401 in found}
        assert closed >= _operations(server) - {"GET /healthz", "GET /readyz", "GET /runbook/{code}"}
        assert 200 in statuses["GET /alarms"]
