-- The table that format 4 added: see docs/formats/metadata.md.

CREATE TABLE headrace_log.listener_owner (
    listener_id text COLLATE "C" NOT NULL,
    feed        text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,   -- of the token that registered it first
    crc         bigint NOT NULL,
    PRIMARY KEY (listener_id, feed)
);
