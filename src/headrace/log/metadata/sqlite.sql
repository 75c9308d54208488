-- The metadata database: what the journal does not hold. Format 2: docs/formats/metadata.md.
-- crc is the row's checksum.

CREATE TABLE IF NOT EXISTS format (
    written_as    INTEGER NOT NULL,
    readable_from INTEGER NOT NULL,
    crc           INTEGER
);

CREATE TABLE IF NOT EXISTS listener (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    hold        INTEGER NOT NULL,       -- 1: retention waits for it
    incarnation TEXT,                   -- the bookmark it last reported, NULL before the first
    sequence_id INTEGER,
    lsn         TEXT,
    seen_at_ms  INTEGER NOT NULL,
    crc         INTEGER,
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS subscriber (
    subject       TEXT NOT NULL,        -- who it is: of its token, or anonymous
    subscriber_id TEXT NOT NULL,        -- what it calls itself, may be empty
    lsn           TEXT NOT NULL,        -- its place, as text of 38 characters: sorts as LSNs do
    seen_at_ms    INTEGER NOT NULL,
    crc           INTEGER,
    PRIMARY KEY (subject, subscriber_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS alarm (
    alarm_id      INTEGER PRIMARY KEY,
    code          TEXT NOT NULL,
    feed          TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    detail        TEXT NOT NULL,
    raised_at_ms  INTEGER NOT NULL,
    cleared_at_ms INTEGER,              -- NULL while it stands
    crc           INTEGER
);

CREATE UNIQUE INDEX IF NOT EXISTS alarm_standing ON alarm (code, feed, agent_id) WHERE cleared_at_ms IS NULL;
