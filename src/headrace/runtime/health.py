"""``health = "HOST:PORT"``: whether a long-running process lives and moves, told over HTTP by a thread of its own.

The thread answers while the event loop hangs or a database holds every other thread: that is when it is asked. It serves no
data and takes none; who can reach it learns feeds' names and what keeps them from going on: give it an inner address.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from headrace import __version__
from headrace.errors import ConfigInvalid, PortInUse
from headrace.errors.problem import reason_with_page
from headrace.runtime.clock import Clock
from headrace.runtime.exposition import METRICS_TYPE
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import STALLED_AFTER_S, Progress
from headrace.runtime.runbook import PAGE_TYPE, addressed_page
from headrace.runtime.settings import parse_duration

logger = get_logger("runtime")

JSON_TYPE: Final = "application/json"
REQUESTS_MAX: Final = 16
"""Requests answered at once; with more, a connection is closed: probes come one by one."""
REQUEST_S_MAX: Final = 2.0
"""How long a connection may be silent; then it is cut."""
LOOK_EVERY_S: Final = 0.2
"""How often the thread looks whether it is to end."""


class HealthAddress(NamedTuple):
    """Where health is served."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``HOST:PORT``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_health(text: str, name: str = "health") -> HealthAddress:
    """Return ``HOST:PORT`` (``[::1]:8475`` for IPv6; port 0: a free one) as an address; ConfigInvalid."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigInvalid(
            f"{name}: {text[:80]!r} is not an address to listen on", hint="Write 127.0.0.1:8475."
        )
    return HealthAddress(host, int(port))


class HealthTerms(NamedTuple):
    """``address``: where a process tells its health, None: nowhere. ``stalled_after_s``: see :class:`Progress`."""

    address: HealthAddress | None = None
    stalled_after_s: float = STALLED_AFTER_S

    @classmethod
    def parse(cls, health: str | None, stalled_after: str, prefix: str = "") -> Self:
        """Return what the settings ``health`` and ``stalled-after`` mean; ConfigInvalid names the one that is wrong.

        ``prefix``: ``--`` where they are options of a command.
        """
        address = None if health is None else parse_health(health, f"{prefix}health")
        seconds = parse_duration(stalled_after, f"{prefix}stalled-after")
        if seconds <= 0:
            raise ConfigInvalid(f"{prefix}stalled-after: is no time", hint="Write 60s.")
        return cls(address, seconds)

    def progress(self, clock: Clock | None = None) -> Progress:
        """Return the progress of a process that has these terms."""
        return Progress(clock=clock, stalled_after_s=self.stalled_after_s)


class HealthServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics`` of one process. Use as a context manager, or :meth:`close` it."""

    def __init__(
        self, address: HealthAddress, progress: Progress, metrics: Callable[[], bytes] | None = None
    ) -> None:
        """Listen at ``address`` and answer from now on; ``metrics`` returns Prometheus' text, and is called by any thread.

        PortInUse if another process has it, ConfigInvalid if there is no such address here.
        """
        try:
            self._server = _Server(address, progress, metrics or (lambda: b""))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{address} is taken by another process", hint="Name another address as health."
                ) from None
            raise ConfigInvalid(f"health: can't listen on {address}: {error.strerror}") from None
        self.address = HealthAddress(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headrace-health", daemon=True
        )
        self._thread.start()
        logger.info("health is served", at=str(self.address))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; does nothing the second time."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = REQUESTS_MAX

    def __init__(self, address: HealthAddress, progress: Progress, metrics: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.progress, self.metrics = progress, metrics
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, as the parent does: that may hang for long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or is too slow, is none of our business; anything else is a fault of ours, and logged."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.error("a request for health could not be answered", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S_MAX

    def do_GET(self) -> None:
        """Answer one of the three, or a page of the runbook."""
        path = self.path.partition("?")[0]
        page = addressed_page(path)
        if page is not None:
            self._answer(200, PAGE_TYPE, page.encode())
            return
        match path:
            case "/healthz":
                self._tell([])
            case "/readyz":
                self._tell([reason_with_page(reason) for reason in self.server.progress.not_ready()])
            case "/metrics":
                self._answer(200, METRICS_TYPE, self.server.metrics())
            case _:
                self._answer(404, "text/plain", b"there are /healthz, /readyz and /metrics\n")

    def do_HEAD(self) -> None:
        """Answer the same without its body."""
        self.do_GET()

    def _tell(self, reasons: list[str]) -> None:
        document = {
            "status": "not-ready" if reasons else "ok",
            "version": __version__,
            "reasons": reasons,
        }
        self._answer(503 if reasons else 200, JSON_TYPE, json.dumps(document, ensure_ascii=False).encode())

    def _answer(self, status: int, media_type: str, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parent's name
        """Write no line a probe."""
