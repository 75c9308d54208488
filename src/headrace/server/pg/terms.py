"""The bounds of this face, each a setting of the server or a fixed number with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PgTerms:
    """How sessions are paced.

    ``sender_timeout_s``: a stream whose client says nothing for so long ends; PostgreSQL's ``wal_sender_timeout``, 60 s as
    there. ``login_timeout_s``: from the connection to the last word of the login, ``authentication_timeout``.
    ``message_timeout_s``: from a message's first byte to its last. ``sessions_max``: logged in at once, ``max_connections``,
    and as many connections that have not logged in yet: of those the oldest goes for a further one. ``slots_max``:
    ``max_replication_slots``; each costs two rows, and a look at each pass of retention. ``subject_slots_max``: of one
    subject that is no admin, so that none takes all of them. ``chunk_bytes``: what is rendered before it is handed to the
    socket. ``write_bytes``: what may wait in a session's socket before nothing more is rendered for it.
    """

    sender_timeout_s: float = 60.0
    login_timeout_s: float = 60.0
    message_timeout_s: float = 60.0
    sessions_max: int = 200
    slots_max: int = 1_000
    subject_slots_max: int = 100
    chunk_bytes: int = 256 << 10
    write_bytes: int = 256 << 10
