-- The tables that format 6 added: see docs/formats/metadata.md.

CREATE TABLE headrace_log.progress (
    consumer    text COLLATE "C" NOT NULL,   -- listener, subscriber or journal
    subject     text COLLATE "C" NOT NULL,   -- of a subscriber's token
    name        text COLLATE "C" NOT NULL,
    feed        text COLLATE "C" NOT NULL,   -- empty: along all feeds
    step        text COLLATE "C" NOT NULL,   -- delivered, acked or durable
    incarnation text COLLATE "C" NOT NULL,   -- of the feed
    wanted      text COLLATE "C" NOT NULL,   -- the filter that it asked with last
    moved_at_ms bigint NOT NULL,
    points      bytea NOT NULL,        -- when it had come how far
    crc         bigint NOT NULL,
    PRIMARY KEY (feed, consumer, subject, name, step)
);

CREATE TABLE headrace_log.report (
    kind           text COLLATE "C" NOT NULL,   -- agent, capture, listener, backup or pipeline
    name           text COLLATE "C" NOT NULL,
    subject        text COLLATE "C" NOT NULL,   -- of the token that reported it
    reported_at_ms bigint NOT NULL,      -- when the server got it
    document       text NOT NULL,        -- the report, as JSON
    crc            bigint NOT NULL,
    PRIMARY KEY (kind, name)
);
