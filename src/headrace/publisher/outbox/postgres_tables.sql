-- The outbox in PostgreSQL: everything Headrace keeps in the application's database, in a schema of its own.
-- The tables are a stored format: docs/formats/outbox-postgres.md describes them.

CREATE SCHEMA IF NOT EXISTS headrace;
REVOKE ALL ON SCHEMA headrace FROM PUBLIC;

-- CACHE 1: an id handed out later must be greater, whichever session asks (design: order of transactions).
CREATE SEQUENCE IF NOT EXISTS headrace.headrace_outbox_id CACHE 1;

-- Unix seconds until which an agent counts as asleep; not called while it is awake. A sequence, because all see its value at once, committed or not.
CREATE SEQUENCE IF NOT EXISTS headrace.headrace_asleep_until;

-- Has a value once an application has called Outbox.add: then detach leaves the outbox to it.
CREATE SEQUENCE IF NOT EXISTS headrace.headrace_added;

-- Rows are only ever inserted, and deleted once they are old: what happens to them stands in headrace_mark and
-- headrace_pass, one row a transaction and one row a pass, so that the busiest table has no dead rows.
CREATE TABLE IF NOT EXISTS headrace.headrace_outbox (
    -- Before id: defaults are evaluated in the order of the columns, so a transaction has its xid before it takes an id.
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id bigint NOT NULL DEFAULT nextval('headrace.headrace_outbox_id') PRIMARY KEY,
    change_feed_id text NOT NULL,
    op text NOT NULL,                       -- put, patch, delete
    key text,                               -- of a control entry without its NUL; NULL in a row about an attached table
    changes text NOT NULL,                  -- JSON; in a row about an attached table as row_to_json gives it
    before text,                            -- the same of the row before an UPDATE
    changed text,                           -- JSON array, in rows that the application wrote
    control text,                           -- a control entry's name
    attached integer,                       -- headrace_attached.id, in a row about an attached table
    copy boolean NOT NULL DEFAULT false,    -- a row copied, not changed
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS headrace_outbox_tx ON headrace.headrace_outbox (tx, id);

CREATE TABLE IF NOT EXISTS headrace.headrace_owner (
    feed text PRIMARY KEY,
    agent_id text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,        -- only ever raised within one history
    incarnation text,                       -- of the feed that rows went to; NULL before the first registration
    history integer NOT NULL DEFAULT 0,     -- grows by 1 when an operator accepts another history of the feed
    kept_from bigint NOT NULL DEFAULT 0,    -- least sequence id of this history that was not swept
    alarm text,                             -- what needs a person, as JSON; NULL when all is well
    accepted text                           -- what an operator accepted (publisher accept), as JSON
);

-- Where the transaction ids of a feed's rows mean something. The row names the transaction that wrote it; so does its xmin,
-- unless a dump was restored: then another transaction wrote it.
CREATE TABLE IF NOT EXISTS headrace.headrace_origin (
    feed text PRIMARY KEY,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- How far a feed is: the newest row counts. Never updated, so a long transaction elsewhere leaves no chain of dead
-- versions to walk; the newest is the last in the index.
CREATE TABLE IF NOT EXISTS headrace.headrace_pass (
    feed text NOT NULL,
    number bigint NOT NULL,
    history integer NOT NULL,
    next_sequence_id bigint NOT NULL,       -- what the next marked row gets
    processed_next bigint NOT NULL,         -- sequence id of the first row that is not processed
    looked_id bigint NOT NULL,              -- rows up to here are marked, but for those of the transactions below
    late xid8[] NOT NULL,                   -- transactions to be asked for by name: open at that look, or not yet whole
    open_from xid8 NOT NULL,                -- and those from here
    open_to xid8 NOT NULL,                  -- to below this: they had begun
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (feed, number)
);

-- The place in the feed that a transaction's rows got: first_sequence_id for its first, dense from there by id.
CREATE TABLE IF NOT EXISTS headrace.headrace_mark (
    feed text NOT NULL,
    history integer NOT NULL,
    first_sequence_id bigint NOT NULL,
    rows bigint NOT NULL,
    tx xid8 NOT NULL,
    first_id bigint NOT NULL,
    last_id bigint NOT NULL,
    agent_id text NOT NULL,
    PRIMARY KEY (feed, history, first_sequence_id)
);

CREATE TABLE IF NOT EXISTS headrace.headrace_attached (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the first argument of its triggers
    table_schema text NOT NULL,
    table_name text NOT NULL,
    table_oid oid NOT NULL,
    feed text NOT NULL,
    version bigint NOT NULL,                -- the schema version that rows of this attachment have
    spec text NOT NULL,                     -- columns, key, options, as JSON
    state text NOT NULL,                    -- live, superseded, detached
    checked_id bigint NOT NULL DEFAULT 0,   -- newest outbox id when triggers and catalogue were last found to agree
    ended_id bigint,                        -- newest outbox id when it ended: no row of it is newer
    alarm text                              -- what the last check found wrong, as JSON; NULL when all is well
);

-- The copies of rows that were there before: at attach, after a rebuild, and by headrace publisher copy.
CREATE TABLE IF NOT EXISTS headrace.headrace_copy (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the keys of its copy-begin and copy-end entries
    attached integer NOT NULL,
    condition text,                         -- SQL over the table's columns; NULL: all rows
    state text NOT NULL,                    -- running, paused, done, cancelled, failed
    rows_per_second integer,                -- NULL: as fast as it goes
    key text NOT NULL,                      -- JSON: [name, type, collation or null] of the key's columns in its index's order
    scans_from xid8,                        -- rows are looked for once all transactions below this one have ended; 0: that of
                                            -- the first step, which comes after all that ran when the copy was begun
    end_key text,                           -- JSON array of a key's values as text: the greatest key when the scan began
    last_key text,                          -- the same: the scan goes on after it
    scanned boolean NOT NULL DEFAULT false, -- the scan is over, only rows of headrace_copy_left are to come
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- of the next step
    rows bigint NOT NULL DEFAULT 0,         -- copied so far
    detail text,                            -- what it waits for, or why it failed
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Rows that were locked when their turn came: copied at the end.
CREATE TABLE IF NOT EXISTS headrace.headrace_copy_left (
    copy integer NOT NULL,
    key text NOT NULL,                      -- JSON array of the key's values as text
    tries integer NOT NULL DEFAULT 0,
    PRIMARY KEY (copy, key)
);
CREATE INDEX IF NOT EXISTS headrace_copy_left_tries ON headrace.headrace_copy_left (copy, tries, key);

-- The format's numbers. Looked for to see whether there is an outbox.
CREATE TABLE IF NOT EXISTS headrace.headrace_format (
    part text PRIMARY KEY,
    written_as integer NOT NULL,
    readable_from integer NOT NULL,
    used_by_application boolean NOT NULL DEFAULT false -- the application writes rows itself: detach leaves the outbox to it
);
