"""Pages of the runbook as the console shows them: every page that there is comes out whole."""

from __future__ import annotations

import re

import pytest

from headrace.runtime.runbook import runbook_codes, runbook_page
from headrace.server.console.runbook import Block, blocks_of

PAGE = """# `stalled`

## What it means

It does not
move.

- one,
  going on
- two

```sh
headrace doctor

- no item
```
"""


def test_pieces_are_what_they_are_written_as() -> None:
    assert blocks_of(PAGE) == [
        Block("heading", ["What it means"]),
        Block("text", ["It does not", "move."]),
        Block("list", ["one, going on", "two"]),
        Block("code", ["headrace doctor", "", "- no item"]),
    ]


@pytest.mark.parametrize("code", runbook_codes())
def test_no_word_of_a_page_is_left_out(code: str) -> None:
    written = runbook_page(code) or ""
    shown = " ".join(line for block in blocks_of(written) for line in block.lines)
    title, _, rest = written.partition("\n")
    assert title.startswith("# ")
    wanted = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", re.sub(r"```[a-z]+", "", rest))
    assert re.findall(r"[A-Za-z]{3,}", wanted) == re.findall(r"[A-Za-z]{3,}", shown)
