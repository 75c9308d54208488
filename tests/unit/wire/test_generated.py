"""The protobuf code in the tree is what ``make generate`` makes from the proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.wire.generated import wal_pb2

ROOT = Path(__file__).parents[3]
WIRE = ROOT / "src" / "headrace" / "wire"


@pytest.mark.parametrize("name", ["kdb/wal/v1/wal", "headrace/log/v1/log"])
def test_generated_code_is_up_to_date(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{WIRE / 'proto'}"]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", f"{name}.proto"]
    subprocess.run(command, check=True)
    for kind in ("_pb2.py", "_pb2.pyi"):
        made = tmp_path / f"{name}{kind}"
        assert (WIRE / "generated" / made.name).read_text() == made.read_text(), "run: make generate"


def test_numbers_of_the_rfc_are_kept_and_ours_are_from_100_up() -> None:
    rfc = {
        "WalEntry": "lsn committed_at_ms tenant_id key_prefix op_type key value hlc_ts checksum",
        "WalBatch": "entries first_lsn last_lsn compression",
        "SubscribeRequest": "start_lsn tenant_filter key_prefix_filter batch_size_hint",
        "WalResponse": "batch heartbeat error",
        "Heartbeat": "current_lsn",
        "AckRequest": "ack_lsn",
        "AckResponse": "watermark_lsn",
        "GetLSNRequest": "",
        "GetLSNResponse": "head_lsn oldest_lsn",
    }
    for name, fields in rfc.items():
        numbers = {
            field.name: field.number for field in wal_pb2.DESCRIPTOR.message_types_by_name[name].fields
        }
        assert {field: number for field, number in numbers.items() if number < 100} == {
            field: number for number, field in enumerate(fields.split(), 1)
        }, name
    service = wal_pb2.DESCRIPTOR.services_by_name["WalStream"]
    assert [method.name for method in service.methods] == ["Subscribe", "Ack", "GetLSN"]
