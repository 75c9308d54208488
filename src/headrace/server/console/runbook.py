"""The runbook's pages in the console: what an alarm or an error means, and what to do."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from starlette.responses import Response

from headrace.errors import RouteNotFound
from headrace.runtime.runbook import runbook_page
from headrace.server.console.drawing import page
from headrace.server.http.table import Call
from headrace.server.service import Service

_FENCE: Final = "```"
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
"""A link: only its words are shown, for what it leads to does not ship with the program."""


class Block(NamedTuple):
    """A piece of a page. ``kind``: heading, code, list (an item a line) or text."""

    kind: str
    lines: list[str]


async def show_runbook(service: Service, call: Call) -> Response:
    """Show the page of a code."""
    code = call.path["code"]
    written = await asyncio.to_thread(runbook_page, code)
    if written is None:
        raise RouteNotFound(f"the runbook has no page for the code {code[:80]!r}")
    return await page(service, call, "runbook.html", code=code, blocks=blocks_of(written))


def blocks_of(markdown: str) -> list[Block]:
    """Return the pieces of a page without its title, each as plain text: headings, fenced code, lists, paragraphs."""
    blocks: list[Block] = []
    open_block: Block | None = None
    for line in _LINK.sub(r"\1", markdown).splitlines():
        if line.startswith(_FENCE):
            fenced = open_block is not None and open_block.kind == "code"
            open_block = None if fenced else Block("code", [])
            if open_block is not None:
                blocks.append(open_block)
        elif open_block is not None and open_block.kind == "code":
            open_block.lines.append(line)
        elif not line.strip() or line.startswith("# "):
            open_block = None
        elif line.startswith("#"):
            blocks.append(Block("heading", [line.lstrip("# ")]))
            open_block = None
        elif line.startswith("- "):
            if open_block is None or open_block.kind != "list":
                open_block = Block("list", [])
                blocks.append(open_block)
            open_block.lines.append(line.removeprefix("- "))
        elif open_block is not None and open_block.kind == "list":
            open_block.lines[-1] += f" {line.strip()}"
        elif open_block is not None:
            open_block.lines.append(line)
        else:
            open_block = Block("text", [line])
            blocks.append(open_block)
    return blocks
