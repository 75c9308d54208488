-- The tables that format 5 added: see docs/formats/metadata.md.

CREATE TABLE headrace_log.table_schema (
    feed          text COLLATE "C" NOT NULL,
    database_name text COLLATE "C" NOT NULL,
    table_name    text COLLATE "C" NOT NULL,
    version       bigint NOT NULL,
    sequence_id   bigint NOT NULL,       -- of the entry that says so
    lsn           text COLLATE "C" NOT NULL,   -- its LSN, as text of 38 characters: sorts as LSNs do
    value         bytea NOT NULL,        -- its value
    crc           bigint NOT NULL,
    PRIMARY KEY (feed, database_name, table_name, version)
);

CREATE TABLE headrace_log.schema_mark (
    name           text COLLATE "C" NOT NULL PRIMARY KEY,   -- journal
    position       bigint NOT NULL,      -- up to where the journal's schemas are in table_schema
    frame_position bigint NOT NULL,      -- where the frame begins that ends there, 0 if none does
    global_ts      bigint NOT NULL,      -- its timestamp
    crc            bigint NOT NULL
);
