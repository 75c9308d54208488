-- The tables that format 3 added: see docs/formats/metadata.md.

CREATE TABLE headrace_log.hydration (
    listener_id   text COLLATE "C" NOT NULL,
    feed          text COLLATE "C" NOT NULL,
    incarnation   text NOT NULL,
    holds_from    bigint NOT NULL,       -- entries from here on are retained
    snapshot_id   text,                  -- the snapshot that it takes, NULL before it named one
    sequence_id   bigint,                -- what that snapshot stands for
    renewed_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    crc           bigint NOT NULL,
    PRIMARY KEY (listener_id, feed)
);

CREATE TABLE headrace_log.snapshot (
    feed        text COLLATE "C" NOT NULL PRIMARY KEY,
    incarnation text NOT NULL,
    epoch       bigint NOT NULL,         -- of the registration that said so
    url         text,                    -- where snapshots are served, NULL if they are not
    ticket_key  text NOT NULL,           -- base64url, a secret
    crc         bigint NOT NULL
);
