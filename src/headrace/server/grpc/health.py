"""What ``grpc.health.v1.Health`` says: the same as ``/readyz``, for each service by what it needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from grpc_health.v1 import health, health_pb2

from headrace.server.service import Service

LOOK_EVERY_S: Final = 0.5
"""How long a client that watches may be behind; one that asks is told what holds at that moment."""
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_WHOLE_SERVER: Final = ""


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # grpcio-health-checking has no types
    """The health service of one server. The server as a whole is what its appends are."""

    def __init__(self) -> None:
        """Know nothing yet; :meth:`start` says of what."""
        super().__init__()
        self._service: Service | None = None
        self._needs: dict[str, bool] = {}
        self._looking: asyncio.Task[None] | None = None

    async def start(self, service: Service, *, appending: Sequence[str], reading: Sequence[str]) -> None:
        """Say of the services ``appending`` whether appends are taken, of those ``reading`` whether reads are served."""
        self._service = service
        self._needs = {_WHOLE_SERVER: True, **dict.fromkeys(appending, True), **dict.fromkeys(reading, False)}
        await self.look()
        self._looking = asyncio.create_task(self._look_again_and_again())

    async def look(self) -> None:
        """Set each service's status to what holds now; who watches is told of a change."""
        if self._service is None:
            return
        can_append, can_read = not self._service.not_appending(), not self._service.not_reading()
        for name, appends in self._needs.items():
            serving = can_append if appends else can_read
            await self.set(name, _SERVING if serving else _NOT_SERVING)

    async def stop(self) -> None:
        """Say that nothing is served any more, and look no further."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        await self.enter_graceful_shutdown()

    async def Check(  # noqa: N802  # gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> Any:
        """Answer one question, by what holds now."""
        await self.look()
        return await super().Check(request, context)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()
