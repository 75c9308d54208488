-- Bookmarks of listeners beside a consumer's own tables: docs/formats/bookmarks.md. Each block is one statement.

-- name: schema
CREATE SCHEMA IF NOT EXISTS headrace_listener

-- name: format
CREATE TABLE IF NOT EXISTS headrace_listener.format (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    written_as    integer NOT NULL,
    readable_from integer NOT NULL
)

-- name: bookmark
-- incarnation is NULL until the first bookmark is stored. holder: who claimed it last, and alone may move it.
CREATE TABLE IF NOT EXISTS headrace_listener.bookmark (
    listener_id text NOT NULL,
    feed        text NOT NULL,
    holder      uuid NOT NULL,
    incarnation text,
    sequence_id bigint,
    lsn         text,
    snapshot_id text,
    PRIMARY KEY (listener_id, feed)
)

-- name: parked
CREATE TABLE IF NOT EXISTS headrace_listener.parked (
    listener_id text NOT NULL,
    feed        text NOT NULL,
    sequence_id bigint NOT NULL,
    parked      bytea NOT NULL,
    PRIMARY KEY (listener_id, feed, sequence_id)
)

-- name: filter
-- Made when the first filter is kept: a role that may not make tables goes on without filters.
CREATE TABLE IF NOT EXISTS headrace_listener.filter (
    listener_id text NOT NULL,
    feed        text NOT NULL,
    filter      text NOT NULL,
    PRIMARY KEY (listener_id, feed)
)

-- name: one_at_a_time
-- CREATE … IF NOT EXISTS is not safe against itself.
SELECT pg_advisory_xact_lock(hashtext('headrace_listener'))

-- name: note_format
INSERT INTO headrace_listener.format (written_as, readable_from) VALUES (%s, %s) ON CONFLICT DO NOTHING

-- name: readable_from
SELECT readable_from FROM headrace_listener.format

-- name: exists
SELECT to_regclass('headrace_listener.format') IS NOT NULL

-- name: load
SELECT incarnation, sequence_id, lsn, snapshot_id FROM headrace_listener.bookmark WHERE listener_id = %s AND feed = %s

-- name: claim
-- Waits for a transaction of the earlier holder that has moved the bookmark, and sees what it committed.
INSERT INTO headrace_listener.bookmark (listener_id, feed, holder) VALUES (%s, %s, %s)
ON CONFLICT (listener_id, feed) DO UPDATE SET holder = excluded.holder
RETURNING incarnation, sequence_id, lsn, snapshot_id

-- name: move
UPDATE headrace_listener.bookmark SET incarnation = %s, sequence_id = %s, lsn = %s, snapshot_id = %s
WHERE listener_id = %s AND feed = %s AND holder = %s

-- name: void
DELETE FROM headrace_listener.parked WHERE listener_id = %s AND feed = %s AND sequence_id <= %s

-- name: hold
SELECT 1 FROM headrace_listener.bookmark WHERE listener_id = %s AND feed = %s AND holder = %s FOR UPDATE

-- name: park
INSERT INTO headrace_listener.parked (listener_id, feed, sequence_id, parked) VALUES (%s, %s, %s, %s)
ON CONFLICT (listener_id, feed, sequence_id) DO UPDATE SET parked = excluded.parked

-- name: count
SELECT count(*), sum(length(parked)) FROM headrace_listener.parked WHERE listener_id = %s AND feed = %s

-- name: list
SELECT parked FROM headrace_listener.parked WHERE listener_id = %s AND feed = %s ORDER BY sequence_id

-- name: unpark
DELETE FROM headrace_listener.parked WHERE listener_id = %s AND feed = %s AND sequence_id = %s

-- name: durable
-- A bookmark that a crash could take back must not be told to the server, which may drop what stands before it.
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'

-- name: filter_exists
SELECT to_regclass('headrace_listener.filter') IS NOT NULL

-- name: filter_of
SELECT filter FROM headrace_listener.filter WHERE listener_id = %s AND feed = %s

-- name: set_filter
INSERT INTO headrace_listener.filter (listener_id, feed, filter) VALUES (%s, %s, %s)
ON CONFLICT (listener_id, feed) DO UPDATE SET filter = excluded.filter

-- name: unfilter
DELETE FROM headrace_listener.filter WHERE listener_id = %s AND feed = %s

-- name: keep_out
-- Programs that know no filters.
UPDATE headrace_listener.format SET written_as = greatest(written_as, %s), readable_from = greatest(readable_from, %s)
