-- What the journal does not hold, in the schema of the log's tables: see docs/formats/log-postgres.md.
-- crc is the row's checksum: docs/formats/metadata.md.

CREATE TABLE headrace_log.listener (
    listener_id text COLLATE "C" NOT NULL,
    feed        text COLLATE "C" NOT NULL,
    hold        boolean NOT NULL,        -- retention waits for it
    incarnation text,                    -- the bookmark it last reported, NULL before the first
    sequence_id bigint,
    lsn         text,
    seen_at_ms  bigint NOT NULL,
    crc         bigint NOT NULL,
    PRIMARY KEY (listener_id, feed)
);

CREATE TABLE headrace_log.subscriber (
    subject       text COLLATE "C" NOT NULL,   -- who it is: of its token, or anonymous
    subscriber_id text COLLATE "C" NOT NULL,   -- what it calls itself, may be empty
    lsn           text COLLATE "C" NOT NULL,   -- its place, as text of 38 characters: sorts as LSNs do
    seen_at_ms    bigint NOT NULL,
    crc           bigint NOT NULL,
    PRIMARY KEY (subject, subscriber_id)
);

CREATE TABLE headrace_log.alarm (
    alarm_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    code          text NOT NULL,
    feed          text NOT NULL,
    agent_id      text NOT NULL,
    detail        text NOT NULL,
    raised_at_ms  bigint NOT NULL,
    cleared_at_ms bigint,                -- NULL while it stands
    crc           bigint NOT NULL
);

CREATE UNIQUE INDEX alarm_standing ON headrace_log.alarm (code, feed, agent_id) WHERE cleared_at_ms IS NULL;
