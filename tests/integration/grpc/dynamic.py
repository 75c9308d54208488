"""Calls as grpcurl makes them: JSON in, JSON out, by descriptors alone: a server's own (reflection) or a proto's.

No generated code: messages are made by protobuf's descriptor pool when they are needed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

CALL_S_MAX: Final = 60.0
RFC: Final = Path(__file__).with_name("rfc010.proto")


def reflected(channel: grpc.Channel) -> DescriptorPool:
    """What the server says of itself, asked for name by name."""
    return DescriptorPool(ProtoReflectionDescriptorDatabase(channel))


def rfc_pool(folder: Path) -> DescriptorPool:
    """The RFC's proto, compiled on its own."""
    made = folder / "rfc010.bin"
    words = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{RFC.parent}",
        f"--descriptor_set_out={made}",
        RFC.name,
    ]
    subprocess.run(words, check=True)
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.Add(file)
    return pool


class Calls:
    """Calls over ``channel`` as ``pool`` describes them. ``sizes``: of every message received, in bytes."""

    def __init__(self, channel: grpc.Channel, pool: DescriptorPool, *, token: str | None = None) -> None:
        self._channel = channel
        self._pool = pool
        self._metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
        self.sizes: list[int] = []

    def method(self, name: str) -> MethodDescriptor:
        """``package.Service/Method`` described."""
        service, _, method = name.partition("/")
        return self._pool.FindServiceByName(service).FindMethodByName(method)

    def ask(self, name: str, question: dict[str, Any] | None = None) -> Any:
        """Make a unary call; returns the answer as JSON would have it."""
        method = self.method(name)
        call = self._channel.unary_unary(f"/{name}", self._serialised, self._parser(method))
        answer = call(self._message(method, question), timeout=CALL_S_MAX, metadata=self._metadata)
        return json_format.MessageToDict(answer)

    def stream(self, name: str, question: dict[str, Any] | None = None) -> Iterator[Message]:
        """Yield the messages of a stream; it is cancelled when nobody asks for more."""
        method = self.method(name)
        open_stream = self._channel.unary_stream(f"/{name}", self._serialised, self._parser(method))
        message = self._message(method, question)
        call = open_stream(message, timeout=CALL_S_MAX, metadata=self._metadata)
        try:
            yield from call
        finally:
            call.cancel()

    def _parser(self, method: MethodDescriptor) -> Any:
        kind = GetMessageClass(method.output_type)

        def parse(data: bytes) -> Message:
            self.sizes.append(len(data))
            return kind.FromString(data)

        return parse

    @staticmethod
    def _message(method: MethodDescriptor, question: dict[str, Any] | None) -> Message:
        return json_format.ParseDict(question or {}, GetMessageClass(method.input_type)())

    @staticmethod
    def _serialised(message: Message) -> bytes:
        return message.SerializeToString()
