"""Real server processes for tests: start, kill, stop and restart ``headrace serve`` on a free port.

``with serving(folder) as server: server.http.get("/healthz")``. A restarted server takes the address it had.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from headrace.client.tls import NO_TLS
from tests import forks
from tests.waiting import wait_until

START_S_MAX = 60.0
STOP_S_MAX = 30.0


class ServerProcess:
    """One ``headrace serve`` (or ``up``) over ``folder/data``; its output goes to ``folder/serve.out`` and ``serve.err``."""

    program: Sequence[str] = forks.HEADRACE
    """What is run, before the words of the command."""

    def __init__(
        self,
        folder: Path,
        *,
        command: str = "serve",
        data_dir: Path | None = None,
        args: Sequence[str] = (),
        grpc: bool = False,
    ) -> None:
        self.grpc = grpc
        self.command = command
        self.folder = folder
        self.data_dir = data_dir if data_dir is not None else folder / "data"
        self.args = list(args)
        self.grpc_address = ""
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[bytes] | None = None
        self._http: httpx.Client | None = None

    @property
    def url(self) -> str:
        """``http://HOST:PORT`` of the running server."""
        return f"http://{self.address}"

    @property
    def http(self) -> httpx.Client:
        """A client of the running server."""
        assert self._http is not None, "the server is not running"
        return self._http

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process is not None, "the server is not running"
        return self.process.pid

    def start(self) -> None:
        """Start the process and wait until it says that it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        out = self.folder / "serve.out"
        command = [*self.program, self.command, "--json"]
        command += ["--http", self.address, "--data-dir", str(self.data_dir), *self.args]
        if self.command in {"serve", "up"}:
            command += ["--grpc", self.grpc_address or ("127.0.0.1:0" if self.grpc else "off")]
        with out.open("wb") as stdout, (self.folder / "serve.err").open("ab") as stderr:
            self.process = forks.start(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL)
        wait_until(
            lambda: out.read_bytes().endswith(b"\n") or self.ended(),
            START_S_MAX,
            what="the server to be ready",
        )
        if self.ended():
            raise AssertionError(f"the server ended at once: {out.read_text()} {self.errors()}")
        said = json.loads(out.read_text())
        self.address = said["http"]
        self.grpc_address = said.get("grpc") or ""
        self._http = httpx.Client(base_url=self.url, timeout=70, trust_env=False, verify=NO_TLS)

    def ended(self) -> bool:
        """Tell whether the process has ended."""
        return self.process is not None and self.process.poll() is not None

    def errors(self) -> str:
        """What the process wrote to stderr so far, all its lives together."""
        return (self.folder / "serve.err").read_text()

    def memory_bytes(self) -> int:
        """How much memory the process has (its resident set)."""
        fields = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()
        return int(fields[1]) * resource.getpagesize()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is flushed."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """SIGKILL and start again at the same address."""
        self.kill()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        if self._http is not None:
            self._http.close()
            self._http = None
        if self.process is None:
            return 0
        self.process.send_signal(number)
        return self.process.wait(STOP_S_MAX)


@contextmanager
def serving(
    folder: Path,
    *,
    command: str = "serve",
    data_dir: Path | None = None,
    args: Sequence[str] = (),
    grpc: bool = False,
) -> Iterator[ServerProcess]:
    """Run a server for the length of a ``with``; it is killed at the end if it still runs."""
    server = ServerProcess(folder, command=command, data_dir=data_dir, args=args, grpc=grpc)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Feed:
    """One feed of a running server, as its publisher ``agent-1`` sees it; paths are percent-encoded."""

    agent = "agent-1"

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.server = server
        self.name = name
        self.path = f"/feeds/{quote(name, safe='')}"

    def register(self, agent: str | None = None, **members: Any) -> httpx.Response:
        """Register ``agent`` (default: the feed's own); members with underscores become hyphenated."""
        return self.server.http.post(
            "/publishers/register",
            json=_hyphens(agent_id=agent or self.agent, change_feed_id=self.name, **members),
        )

    def listener(self, listener_id: str = "listener-1", **members: Any) -> httpx.Response:
        """Register a listener."""
        return self.server.http.post(
            "/listeners/register", json=_hyphens(listener_id=listener_id, change_feed_id=self.name, **members)
        )

    def post(self, *entries: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        """Post entries; the agent id is filled in."""
        filled = [{"agent-id": self.agent, **entry} for entry in entries]
        return self.server.http.post(f"{self.path}/entries", json={"entries": filled}, headers=headers)

    def post_raw(self, body: bytes, media_type: str = "application/json", **headers: str) -> httpx.Response:
        """Post these very bytes."""
        return self.server.http.post(
            f"{self.path}/entries", content=body, headers={"Content-Type": media_type, **headers}
        )

    def entries(
        self,
        first: int = 1,
        last: int | None = None,
        *,
        limit: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """The range as its answer's document."""
        answer = self.read(first, last, limit=limit, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["changes-list"]

    def read(
        self,
        first: int = 1,
        last: int | None = None,
        *,
        limit: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """The range, whatever is answered."""
        given = {"beg-sequence-id": first, "end-sequence-id": last, "limit": limit}
        params = {name: value for name, value in given.items() if value is not None}
        return self.server.http.get(f"{self.path}/entries", params=params, headers=headers)

    def poll(self, after: int = 0, listener_id: str = "listener-1", **given: Any) -> httpx.Response:
        """A long poll with ``timeout-ms`` 0 unless given."""
        headers = given.pop("headers", None)
        params = {
            "listener-id": listener_id,
            "after-sequence-id": after,
            "timeout-ms": 0,
            **_hyphens(**given),
        }
        return self.server.http.get(f"{self.path}/poll", params=params, headers=headers)


def changes(number: int) -> dict[str, Any]:
    """Changes of an object of its own, with a value to tell it by."""
    return {"uuid": f"object-{number}", "number": number}


def code_of(answer: httpx.Response) -> str:
    """The code of a problem document, checked to be a whole one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"/runbook/{problem['code']}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["hint"]
    assert "Traceback" not in answer.text
    return str(problem["code"])


def _hyphens(**members: Any) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in members.items()}
