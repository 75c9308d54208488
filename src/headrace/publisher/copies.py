"""Copies of rows that were there before: what is asked of one, how one stands, what a step of it did. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from headrace.errors import TableNotFound, Usage

T = TypeVar("T")

ROWS_PER_SECOND_MAX: Final = 10_000_000
"""More is no limit."""

CHUNKS_PER_S: Final = 4
"""With a rate, a chunk is at most this part of a second's rows."""


class CopyState(StrEnum):
    """Where a copy stands. The agent goes on with running ones; done, cancelled and failed are for good."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in {CopyState.RUNNING, CopyState.PAUSED}


class CopyRequest(NamedTuple):
    """What ``headrace publisher copy`` asks for.

    ``condition``: SQL over the table's columns, run with the rights of the DSN's role; None: all rows. ``rows_per_second``:
    how many rows are copied in a second, on average; None: as fast as it goes.
    """

    table: str
    condition: str | None = None
    rows_per_second: int | None = None


class CopyStanding(NamedTuple):
    """One copy as it stands.

    ``number`` names it, in its copy-begin and copy-end entries too. ``rows``: copied so far. ``rows_left``: rows that were
    locked when their turn came, and come last. ``rows_estimated``: how many rows the table has, roughly; None if nobody
    knows. ``detail``: what it waits for, or why it failed; empty otherwise.
    """

    number: int
    table: str
    feed: str
    state: CopyState
    condition: str | None
    rows_per_second: int | None
    rows: int
    rows_left: int
    rows_estimated: int | None
    detail: str


class CopyStep(NamedTuple):
    """What one bounded step of a copy did: rows copied, and in how many seconds the next step is due (0: at once)."""

    rows: int
    wait_s: float


def check_request(request: CopyRequest) -> CopyRequest:
    """Return ``request`` if its numbers make sense and its condition says something; Usage otherwise."""
    rate = request.rows_per_second
    if rate is not None and not 1 <= rate <= ROWS_PER_SECOND_MAX:
        raise Usage(
            f"--rows-per-second {rate} is no rate", hint=f"It is a number from 1 to {ROWS_PER_SECOND_MAX:,}."
        )
    if request.condition is not None and not request.condition.strip():
        raise Usage("--where says nothing", hint="Leave it out to copy all rows.")
    return request


def choose_attached(name: str, attached: Mapping[str, T]) -> T:
    """Return the attached table that ``name`` means, in any case of letters; TableNotFound, listing what there is."""
    for known, table in attached.items():
        if known.lower() == name.lower() or known.lower() == name.lower().removeprefix("public."):
            return table
    raise TableNotFound(
        f"{name} is not attached; attached are: {', '.join(sorted(attached)) or 'none'}",
        hint="Attach it first, which copies its rows too: headrace publisher attach --table TABLE --feed FEED.",
    )


def going_on(request: CopyRequest, copies: Iterable[CopyStanding]) -> CopyStanding | None:
    """Return the running copy of just the rows that ``request`` means, if there is one; Usage if it is paused."""
    for copy in copies:
        if copy.condition == request.condition and not copy.state.is_over:
            if copy.state is CopyState.PAUSED:
                raise Usage(
                    f"a copy of {copy.table} is paused",
                    hint=f"headrace publisher copy --table {copy.table} --resume, or --cancel.",
                )
            return copy
    return None


def chunk_rows(rows_max: int, rows_per_second: int | None) -> int:
    """Return how many rows one chunk may have."""
    return rows_max if rows_per_second is None else max(1, min(rows_max, rows_per_second // CHUNKS_PER_S))


def pause_s(rows: int, rows_per_second: int | None) -> float:
    """Return how many seconds after a chunk of ``rows`` the next one is due."""
    return 0.0 if rows_per_second is None else rows / rows_per_second
