"""Many threads read JSON as a type that nobody has read before: all get their value, and the process lives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import headrace
from headrace.runtime.typed_json import decode_json

MANY_AT_ONCE = """
import sys, threading
import msgspec
from headrace.runtime.typed_json import decode_json

sys.setswitchinterval(1e-6)
THREADS = 8
for round in range(150):
    inner = msgspec.defstruct(f"Inner{round}", [(f"a{n}", "int | None", None) for n in range(20)])
    fields = [(f"f{n}", "list[Inner]", []) for n in range(20)]
    kind = msgspec.defstruct(f"Outer{round}", fields, namespace={"__module__": "__main__"})
    Inner = inner
    barrier = threading.Barrier(THREADS)
    found = []

    def read():
        barrier.wait()
        found.append(READ(b'{"f0": [{"a1": 1}]}', kind))

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.f0[0].a1 for one in found] == [1] * THREADS, found
"""


def test_many_threads_ask_for_one_type_at_once() -> None:
    code = MANY_AT_ONCE.replace("READ", "decode_json")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_none_is_refused() -> None:
    assert decode_json(b'{"a": "b"}', dict[str, str]) == {"a": "b"}
    for text in (b"{", b'{"a": 1}'):
        with pytest.raises(msgspec.MsgspecError):
            decode_json(text, dict[str, str])


def test_nothing_reads_a_type_by_another_way() -> None:
    package = Path(headrace.__file__).parent
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"msgspec\.json\.decode\([^\n]*type=", path.read_text(encoding="utf-8"))
    ]
    assert not found, "decode_json does it, for any thread"
