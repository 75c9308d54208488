-- The metadata database: what the journal does not hold. Format 7: docs/formats/metadata.md.
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

CREATE TABLE IF NOT EXISTS hydration (
    listener_id   TEXT NOT NULL,
    feed          TEXT NOT NULL,
    incarnation   TEXT NOT NULL,
    holds_from    INTEGER NOT NULL,     -- entries from here on are retained
    snapshot_id   TEXT,                 -- the snapshot that it takes, NULL before it named one
    sequence_id   INTEGER,              -- what that snapshot stands for
    renewed_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    crc           INTEGER,
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS snapshot (
    feed        TEXT NOT NULL PRIMARY KEY,
    incarnation TEXT NOT NULL,
    epoch       INTEGER NOT NULL,       -- of the registration that said so
    url         TEXT,                   -- where snapshots are served, NULL if they are not
    ticket_key  TEXT NOT NULL,          -- base64url, a secret
    crc         INTEGER
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS listener_owner (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    subject     TEXT NOT NULL,          -- of the token that registered it first
    crc         INTEGER,
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS table_schema (
    feed          TEXT NOT NULL,
    database_name TEXT NOT NULL,
    table_name    TEXT NOT NULL,
    version       INTEGER NOT NULL,
    sequence_id   INTEGER NOT NULL,     -- of the entry that says so
    lsn           TEXT NOT NULL,        -- its LSN, as text of 38 characters: sorts as LSNs do
    value         BLOB NOT NULL,        -- its value
    crc           INTEGER,
    PRIMARY KEY (feed, database_name, table_name, version)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS schema_mark (
    name           TEXT NOT NULL PRIMARY KEY,   -- journal
    position       INTEGER NOT NULL,    -- up to where the journal's schemas are in table_schema
    frame_position INTEGER NOT NULL,    -- where the frame begins that ends there, 0 if none does
    global_ts      INTEGER NOT NULL,    -- its timestamp
    crc            INTEGER
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS progress (
    consumer    TEXT NOT NULL,          -- listener, subscriber or journal
    subject     TEXT NOT NULL,          -- of a subscriber's token
    name        TEXT NOT NULL,
    feed        TEXT NOT NULL,          -- empty: along all feeds
    step        TEXT NOT NULL,          -- delivered, acked or durable
    incarnation TEXT NOT NULL,          -- of the feed
    wanted      TEXT NOT NULL,          -- the filter that it asked with last
    moved_at_ms INTEGER NOT NULL,
    points      BLOB NOT NULL,          -- when it had come how far
    crc         INTEGER,
    PRIMARY KEY (feed, consumer, subject, name, step)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS report (
    kind           TEXT NOT NULL,       -- agent, capture, listener, backup or pipeline
    name           TEXT NOT NULL,
    subject        TEXT NOT NULL,       -- of the token that reported it
    reported_at_ms INTEGER NOT NULL,    -- when the server got it
    document       TEXT NOT NULL,       -- the report, as JSON
    crc            INTEGER,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS slot (
    name          TEXT NOT NULL PRIMARY KEY,
    slot_id       TEXT NOT NULL,        -- a UUID, another one whenever it is made anew
    subject       TEXT NOT NULL,        -- of the token that made it
    plugin        TEXT NOT NULL,        -- its output format
    options       TEXT NOT NULL,        -- what it was made with, as JSON
    position      INTEGER NOT NULL,     -- confirmed up to there
    holder        TEXT NOT NULL,        -- the server at which it is in use, empty: none
    held_until_ms INTEGER NOT NULL,     -- that is void from then on
    crc           INTEGER
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS alarm_standing ON alarm (code, feed, agent_id) WHERE cleared_at_ms IS NULL;
