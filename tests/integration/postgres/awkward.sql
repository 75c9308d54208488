-- A table of types that go wrong easily. See awkward.py.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s "fine"', '😀');
CREATE DOMAIN percent AS numeric(5, 2) CHECK (VALUE IS NULL OR VALUE <= 100);
CREATE TABLE awkward (
    id bigint,
    tag text,
    digits numeric,
    fixed numeric(30, 10),
    wide numeric(60, 20),
    small smallint,
    "Naïve näme's" integer,
    share percent,
    double double precision,
    single real,
    yes boolean,
    words text,
    padded char(6),
    short varchar(20),
    raw bytea,
    moment timestamptz,
    wall timestamp,
    day date,
    clock time,
    span interval,
    token uuid,
    doc jsonb,
    feeling mood,
    texts text[],
    grid integer[][],
    amounts numeric[],
    feelings mood[],
    doubled numeric GENERATED ALWAYS AS (fixed * 2) STORED,
    PRIMARY KEY (id, tag)
);
