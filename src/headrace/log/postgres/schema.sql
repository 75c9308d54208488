-- The log in PostgreSQL. Format 1: docs/formats/log-postgres.md. Frames keep the bytes of the journal's own format.

CREATE TABLE headrace_log.format (
    written_as    integer NOT NULL,
    readable_from integer NOT NULL
);

-- One row. Who appends holds its lock from "where does the journal end?" to COMMIT.
CREATE TABLE headrace_log.journal (
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    end_position     bigint  NOT NULL,   -- position of the next frame
    oldest_position  bigint  NOT NULL,   -- position of the oldest retained frame
    segment_position bigint  NOT NULL,   -- where the open segment begins
    global_ts        bigint  NOT NULL,   -- the newest given
    next_region_id   bigint  NOT NULL,
    dropped_lsn      text    NOT NULL    -- the newest that retention dropped
) WITH (fillfactor = 10);

CREATE TABLE headrace_log.feed (
    region_id bigint PRIMARY KEY,
    name      text COLLATE "C" NOT NULL UNIQUE,
    tail      bytea  NOT NULL,           -- JSON, as in the start of a journal segment
    crc       bigint NOT NULL            -- CRC-32C of tail
) WITH (fillfactor = 50);

CREATE TABLE headrace_log.frame (
    position          bigint  PRIMARY KEY,
    size              integer NOT NULL,
    region_id         bigint  NOT NULL,
    count             bigint  NOT NULL,  -- entries; 0 in a control frame
    first_sequence_id bigint  NOT NULL,
    last_global_ts    bigint  NOT NULL,
    data              bytea   NOT NULL   -- the whole frame, both headers included
);
ALTER TABLE headrace_log.frame ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX frame_of_feed ON headrace_log.frame (region_id, first_sequence_id) WHERE count > 0;

-- Frames from first_position up to the next segment's: what retention drops as a whole.
CREATE TABLE headrace_log.segment (
    first_position bigint PRIMARY KEY,
    global_ts      bigint NOT NULL,      -- the clock before its first frame
    state          bytea  NOT NULL,      -- JSON: every feed's tail before its first frame
    crc            bigint NOT NULL       -- CRC-32C of state
);
