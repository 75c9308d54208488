"""Health and reflection, as any tool asks for them."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.servers import ServerProcess

OURS = {"kdb.wal.v1.WalStream", "headrace.log.v1.LogAppend"}


def test_every_service_is_serving(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", *OURS):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=30)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_services_and_their_messages(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="kdb.wal.v1.WalStream"),
        ]
        listed, file = stub.ServerReflectionInfo(iter(asked), timeout=30)
        assert {service.name for service in listed.list_services_response.service} >= OURS
        assert file.file_descriptor_response.file_descriptor_proto


async def test_one_who_watches_the_health_does_not_hold_up_the_stop(own: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(own.grpc_address) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert own.stop() == 0
