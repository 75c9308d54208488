"""What is seen of a process from outside: its health, its last report, the alarms that stand for it."""

from __future__ import annotations

from typing import Any

import httpx

from headrace.client.tls import NO_TLS
from tests.servers import ServerProcess
from tests.waiting import wait_until

WITHIN = 120.0
"""How long anything here is waited for: a call that hangs has time-outs of its own, and the machine may be busy."""


def ready(port: int) -> Any:
    """What ``/readyz`` says there."""
    return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30, trust_env=False, verify=NO_TLS).json()


def reasons(port: int) -> list[str]:
    """Why the process there is not ready; none while it does not answer yet."""
    try:
        found: list[str] = ready(port)["reasons"]
    except httpx.TransportError:
        return []
    return found


def wait_ready(port: int) -> None:
    """Wait until the process there is ready."""

    def is_ready() -> bool:
        try:
            return bool(ready(port)["status"] == "ok")
        except httpx.TransportError:
            return False

    wait_until(is_ready, WITHIN, what="the process to be ready")


def report(server: ServerProcess, kind: str) -> dict[str, Any]:
    """The last report of the only process of this kind, empty before the first."""
    found = [one for one in server.http.get("/reports").json()["reports"] if one["kind"] == kind]
    return found[0] if found else {}


def wait_state(server: ServerProcess, kind: str, state: str) -> dict[str, Any]:
    """Wait until the only process of this kind is reported to be in ``state``; returns the report."""
    return wait_until(
        lambda: found if (found := report(server, kind)).get("state") == state else {},
        WITHIN,
        what=f"a {kind} that is {state}",
    )


def stalled(server: ServerProcess) -> list[str]:
    """The details of alarms of this kind that stand."""
    alarms = server.http.get("/alarms").json()["alarms"]
    return [one["detail"] for one in alarms if one["code"] == "stalled" and one["cleared-at"] is None]


def wait_stuck(server: ServerProcess, port: int, *words: str) -> None:
    """Wait until health and an alarm at the server say that it is stuck, health with all these words."""
    wait_until(
        lambda: any(all(word in reason for word in words) for reason in reasons(port)),
        WITHIN,
        what=f"health to say {words}",
    )
    assert (
        httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30, trust_env=False, verify=NO_TLS).status_code
        == 503
    )
    wait_until(lambda: stalled(server), WITHIN, what="the alarm at the server")


def wait_over(server: ServerProcess, port: int) -> None:
    """Wait until it is ready again, and no alarm stands."""
    wait_ready(port)
    wait_until(lambda: not stalled(server), WITHIN, what="the alarm to be cleared")
