--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: headrace; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA headrace;


--
-- Name: headrace_add(text, text, text, text, text); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_add(feed text, op text, key text, changes text, changed text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    row_id bigint;
BEGIN
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, key, changes, changed)
    VALUES ($1, $2, $3, $4, $5) RETURNING id INTO row_id;
    -- Said by a sequence: a flag in a row would make every other caller wait for the first one's commit.
    IF pg_sequence_last_value('headrace.headrace_added') IS NULL THEN
        PERFORM nextval('headrace.headrace_added');
    END IF;
    PERFORM headrace.headrace_wake();
    RETURN row_id;
END
$_$;


--
-- Name: headrace_capture(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET bytea_output TO 'hex'
    SET extra_float_digits TO '1'
    SET lc_monetary TO 'C'
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
            RETURN NULL;
        END IF;
        IF pg_trigger_depth() > 1 THEN
            PERFORM set_config('headrace.inserted_within', 'on', true);
        END IF;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'put', row_to_json(NEW), TG_ARGV[0]::integer);
    ELSE
        IF current_setting('headrace.inserted_within', true) = 'on'
            AND headrace.headrace_has_key(TG_RELID, TG_NAME, TG_ARGV[2], OLD) THEN
            RETURN NULL;
        END IF;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'delete', row_to_json(OLD), TG_ARGV[0]::integer);
    END IF;
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_chosen(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_chosen() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET bytea_output TO 'hex'
    SET extra_float_digits TO '1'
    SET lc_monetary TO 'C'
    AS $$
DECLARE
    rekey boolean := TG_NARGS > 6;
    was text;
    becomes text;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        was := headrace.headrace_row(OLD, NULL, TG_ARGV[3], TG_ARGV[4], TG_ARGV[5]);
    END IF;
    IF (TG_OP = 'DELETE' OR rekey)
        AND (current_setting('headrace.inserted_within', true) IS DISTINCT FROM 'on'
            OR NOT headrace.headrace_has_key(TG_RELID, TG_NAME, TG_ARGV[2], OLD)) THEN
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'delete', was, TG_ARGV[0]::integer);
    END IF;
    IF pg_trigger_depth() > 1 AND (TG_OP = 'INSERT' OR rekey) THEN
        PERFORM set_config('headrace.inserted_within', 'on', true);
    END IF;
    IF TG_OP <> 'DELETE' AND NOT rekey THEN
        IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
            RETURN NULL;
        END IF;
        becomes := headrace.headrace_row(NEW, OLD, TG_ARGV[3], TG_ARGV[4], TG_ARGV[5]);
        IF becomes = was AND TG_ARGV[3] <> '' THEN
            RETURN NULL;
        END IF;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, before, attached)
        VALUES (TG_ARGV[1], 'put', becomes, was, TG_ARGV[0]::integer);
    END IF;
    PERFORM headrace.headrace_wake();
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_plain(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_plain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
            RETURN NULL;
        END IF;
        IF pg_trigger_depth() > 1 THEN
            PERFORM set_config('headrace.inserted_within', 'on', true);
        END IF;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'put', row_to_json(NEW), TG_ARGV[0]::integer);
    ELSE
        IF current_setting('headrace.inserted_within', true) = 'on'
            AND headrace.headrace_has_key(TG_RELID, TG_NAME, TG_ARGV[2], OLD) THEN
            RETURN NULL;
        END IF;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'delete', row_to_json(OLD), TG_ARGV[0]::integer);
    END IF;
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_rekey(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_rekey() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET bytea_output TO 'hex'
    SET extra_float_digits TO '1'
    SET lc_monetary TO 'C'
    AS $$
BEGIN
    IF current_setting('headrace.inserted_within', true) IS DISTINCT FROM 'on'
        OR NOT headrace.headrace_has_key(TG_RELID, TG_NAME, TG_ARGV[2], OLD) THEN
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'delete', row_to_json(OLD), TG_ARGV[0]::integer);
    END IF;
    IF pg_trigger_depth() > 1 THEN
        PERFORM set_config('headrace.inserted_within', 'on', true);
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_rekey_plain(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_rekey_plain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF current_setting('headrace.inserted_within', true) IS DISTINCT FROM 'on'
        OR NOT headrace.headrace_has_key(TG_RELID, TG_NAME, TG_ARGV[2], OLD) THEN
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, attached)
        VALUES (TG_ARGV[1], 'delete', row_to_json(OLD), TG_ARGV[0]::integer);
    END IF;
    IF pg_trigger_depth() > 1 THEN
        PERFORM set_config('headrace.inserted_within', 'on', true);
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_truncate(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_truncate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    one record;
    about text;
    copy integer;
BEGIN
    IF TG_NARGS > 1 AND NOT (SELECT relispartition FROM pg_class WHERE oid = TG_RELID) THEN
        RETURN NULL;
    END IF;
    SELECT id, feed, table_schema, table_name, version INTO one
    FROM headrace.headrace_attached WHERE id = TG_ARGV[0]::integer AND state = 'live';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT row_to_json(m) INTO about
    FROM (SELECT one.table_schema AS database, one.table_name AS "table", one.version) AS m;
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, key, changes, control, attached)
    VALUES (one.feed, 'put', concat_ws('/', 'truncate', one.table_schema, one.table_name, one.id), about, 'truncate', one.id);
    IF TG_NARGS > 1 THEN
        INSERT INTO headrace.headrace_copy (attached, state, key, scans_from)
        VALUES (one.id, 'running', TG_ARGV[1], '0') RETURNING id INTO copy;
        INSERT INTO headrace.headrace_outbox (change_feed_id, op, key, changes, control, attached)
        VALUES (one.feed, 'put', concat_ws('/', 'copy-begin', one.table_schema, one.table_name, copy), about, 'copy-begin', one.id);
    END IF;
    PERFORM headrace.headrace_wake();
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_update(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO'
    SET "IntervalStyle" TO 'iso_8601'
    SET bytea_output TO 'hex'
    SET extra_float_digits TO '1'
    SET lc_monetary TO 'C'
    AS $$
BEGIN
    IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
        RETURN NULL;
    END IF;
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, before, attached)
    VALUES (TG_ARGV[1], 'put', row_to_json(NEW), row_to_json(OLD), TG_ARGV[0]::integer);
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_capture_update_plain(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_capture_update_plain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
        RETURN NULL;
    END IF;
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, before, attached)
    VALUES (TG_ARGV[1], 'put', row_to_json(NEW), row_to_json(OLD), TG_ARGV[0]::integer);
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: headrace_filtered(json, json, text, text); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_filtered(whole json, other json, delivered text, masked text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT '{' || coalesce(string_agg(to_json(one.key)::text || ':' || CASE
        WHEN one.key <> ALL (ARRAY(SELECT json_array_elements_text(masked::json))) OR one.value::text = 'null'
            THEN one.value::text
        WHEN one.value::text = (SELECT o.value::text FROM json_each(coalesce(other, whole)) AS o WHERE o.key = one.key)
            THEN '"***"'
        ELSE '"**"' END, ','), '') || '}'
    FROM json_each(whole) AS one
    WHERE one.key = ANY (ARRAY(SELECT json_array_elements_text(delivered::json)))
$$;


--
-- Name: headrace_filtered_by_name(record, record, text, text); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_filtered_by_name(whole record, other record, delivered text, masked text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    result text := '';
    one text;
    part text;
    other_part text;
BEGIN
    FOR one IN SELECT json_array_elements_text(delivered::json) LOOP
        BEGIN
            EXECUTE format('SELECT to_json(($1).%I)::text', one) INTO part USING whole;
            IF masked::jsonb ? one AND part <> 'null' THEN
                other_part := part;
                IF row_to_json(other) IS NOT NULL THEN
                    EXECUTE format('SELECT to_json(($1).%I)::text', one) INTO other_part USING other;
                END IF;
                part := CASE WHEN part = other_part THEN '"***"' ELSE '"**"' END;
            END IF;
            result := result || ',' || to_json(one)::text || ':' || coalesce(part, 'null');
        EXCEPTION WHEN others THEN
            NULL;
        END;
    END LOOP;
    RETURN '{' || substr(result, 2) || '}';
END
$_$;


--
-- Name: headrace_fingerprint(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_fingerprint() RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN (
        WITH RECURSIVE root AS MATERIALIZED (
            SELECT table_oid AS oid FROM headrace.headrace_attached WHERE state = 'live'
        ), place (oid, parent) AS MATERIALIZED (
            SELECT oid, 0::oid FROM root
            UNION
            SELECT i.inhrelid, i.inhparent FROM place AS p JOIN pg_inherits AS i ON i.inhparent = p.oid
        )
        SELECT coalesce(bit_xor(hashtextextended(part, 0)), 0) FROM (
            SELECT concat_ws(' ', 'class', c.oid, p.parent, c.relnamespace, c.relname, c.relkind, c.relpersistence, c.relowner,
                c.relam, c.relispartition, c.relrowsecurity, c.relforcerowsecurity) AS part
            FROM place AS p JOIN pg_class AS c ON c.oid = p.oid
            UNION ALL
            SELECT concat_ws(' ', 'attribute', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull,
                a.attisdropped, a.attcollation, a.attgenerated, CASE WHEN a.attgenerated <> '' THEN (
                    SELECT d.oid FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) END)
            FROM root JOIN pg_attribute AS a ON a.attrelid = root.oid AND a.attnum > 0
            UNION ALL
            SELECT concat_ws(' ', 'part', t.oid, e.oid, e.enumlabel, p.attnum, p.attname, p.atttypid, p.attisdropped)
            FROM (SELECT DISTINCT unnest(ARRAY[t.oid, t.typelem]) AS oid
                FROM root JOIN pg_attribute AS a ON a.attrelid = root.oid AND a.attnum > 0
                JOIN pg_type AS t ON t.oid = a.atttypid AND t.oid >= 16384) AS used
            JOIN pg_type AS t ON t.oid = used.oid AND t.typtype IN ('c', 'e')
            LEFT JOIN pg_enum AS e ON e.enumtypid = t.oid
            LEFT JOIN pg_attribute AS p ON p.attrelid = t.typrelid AND t.typrelid <> 0 AND p.attnum > 0
            UNION ALL
            SELECT concat_ws(' ', 'trigger', t.tgrelid, t.tgname, t.tgfoid, t.tgenabled, t.tgnargs)
            FROM place AS p JOIN pg_trigger AS t ON t.tgrelid = p.oid
                AND (t.tgname IN ('!headrace_write', '!headrace_update', '!headrace_rekey', '!headrace_truncate')
                    OR (t.tgtype & 19 = 19 AND NOT t.tgisinternal)) -- BEFORE UPDATE FOR EACH ROW
            UNION ALL
            SELECT concat_ws(' ', 'index', i.indexrelid, i.indisprimary, i.indisvalid, i.indimmediate)
            FROM root JOIN pg_index AS i ON i.indrelid = root.oid AND i.indisunique
            UNION ALL
            SELECT concat_ws(' ', 'parent', i.inhrelid, i.inhparent)
            FROM root JOIN pg_inherits AS i ON i.inhrelid = root.oid
        ) AS parts (part));
END
$$;


--
-- Name: headrace_has_key(oid, name, text, record); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_has_key(relation oid, trigger_name name, key text, old record) RETURNS boolean
    LANGUAGE plpgsql
    SET row_security TO 'off'
    AS $_$
DECLARE
    attached regclass;
    condition text;
    found boolean;
BEGIN
    WITH RECURSIVE above AS (
        SELECT tgrelid, tgparentid FROM pg_trigger WHERE tgrelid = relation AND tgname = trigger_name
        UNION ALL
        SELECT t.tgrelid, t.tgparentid FROM above JOIN pg_trigger AS t ON t.oid = above.tgparentid
    )
    SELECT tgrelid INTO attached FROM above WHERE tgparentid = 0;
    SELECT string_agg(format('n.%1$I = ($1).%1$I AND concat(n.%1$I) COLLATE "C" = concat(($1).%1$I) COLLATE "C"', one), ' AND ')
    INTO condition FROM json_array_elements_text(key::json) AS one;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS n WHERE %s)', attached, condition) INTO found USING old;
    RETURN found;
EXCEPTION WHEN others THEN
    RETURN false;
END
$_$;


--
-- Name: headrace_is_newest(oid, tid); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_is_newest(relation oid, place tid) RETURNS boolean
    LANGUAGE plpgsql
    SET row_security TO 'off'
    AS $_$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s WHERE ctid = $1)', relation::regclass) INTO found USING place;
    RETURN found;
EXCEPTION WHEN others THEN
    RETURN true;
END
$_$;


--
-- Name: headrace_row(record, text, text, text); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_row(whole record, delivered text, masked text, json_columns text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN headrace.headrace_row(whole, NULL, delivered, masked, json_columns);
END
$$;


--
-- Name: headrace_row(record, record, text, text, text); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_row(whole record, other record, delivered text, masked text, json_columns text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    result text;
    one text;
    is_null boolean;
    nulls text;
BEGIN
    IF delivered = '' THEN
        result := row_to_json(whole);
    ELSE
        BEGIN
            result := headrace.headrace_filtered(row_to_json(whole), row_to_json(other), delivered, masked);
        EXCEPTION WHEN others THEN
            result := headrace.headrace_filtered_by_name(whole, other, delivered, masked);
        END;
    END IF;
    IF position(':null' IN result) > 0 THEN
        FOR one IN SELECT json_array_elements_text(json_columns::json) LOOP
            IF position(to_json(one)::text || ':null' IN result) > 0 THEN
                BEGIN
                    EXECUTE format('SELECT ($1).%I::text = ''null''', one) INTO is_null USING whole;
                    IF is_null THEN
                        nulls := concat_ws(',', nulls, to_json(one)::text);
                    END IF;
                EXCEPTION WHEN others THEN
                    NULL;
                END;
            END IF;
        END LOOP;
    END IF;
    RETURN CASE WHEN nulls IS NULL THEN result ELSE left(result, -1) || ',"' || chr(92) || 'u0000":[' || nulls || ']}' END;
END
$_$;


--
-- Name: headrace_wake(); Type: FUNCTION; Schema: headrace; Owner: -
--

CREATE FUNCTION headrace.headrace_wake() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
END
$$;


--
-- Name: headrace_added; Type: SEQUENCE; Schema: headrace; Owner: -
--

CREATE SEQUENCE headrace.headrace_added
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: headrace_asleep_until; Type: SEQUENCE; Schema: headrace; Owner: -
--

CREATE SEQUENCE headrace.headrace_asleep_until
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: headrace_attached; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_attached (
    id integer NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    table_oid oid NOT NULL,
    feed text NOT NULL,
    version bigint NOT NULL,
    spec text NOT NULL,
    state text NOT NULL,
    checked_id bigint DEFAULT 0 NOT NULL,
    ended_id bigint,
    alarm text
);


--
-- Name: headrace_attached_id_seq; Type: SEQUENCE; Schema: headrace; Owner: -
--

ALTER TABLE headrace.headrace_attached ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME headrace.headrace_attached_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: headrace_copy; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_copy (
    id integer NOT NULL,
    attached integer NOT NULL,
    condition text,
    state text NOT NULL,
    rows_per_second integer,
    key text NOT NULL,
    scans_from xid8,
    end_key text,
    last_key text,
    scanned boolean DEFAULT false NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    rows bigint DEFAULT 0 NOT NULL,
    detail text,
    begun_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: headrace_copy_id_seq; Type: SEQUENCE; Schema: headrace; Owner: -
--

ALTER TABLE headrace.headrace_copy ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME headrace.headrace_copy_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: headrace_copy_left; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_copy_left (
    copy integer NOT NULL,
    key text NOT NULL,
    tries integer DEFAULT 0 NOT NULL
);


--
-- Name: headrace_format; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_format (
    part text NOT NULL,
    written_as integer NOT NULL,
    readable_from integer NOT NULL,
    used_by_application boolean DEFAULT false NOT NULL
);


--
-- Name: headrace_mark; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_mark (
    feed text NOT NULL,
    history integer NOT NULL,
    first_sequence_id bigint NOT NULL,
    rows bigint NOT NULL,
    tx xid8 NOT NULL,
    first_id bigint NOT NULL,
    last_id bigint NOT NULL,
    agent_id text NOT NULL
);


--
-- Name: headrace_origin; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_origin (
    feed text NOT NULL,
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL
);


--
-- Name: headrace_outbox_id; Type: SEQUENCE; Schema: headrace; Owner: -
--

CREATE SEQUENCE headrace.headrace_outbox_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: headrace_outbox; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_outbox (
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint DEFAULT nextval('headrace.headrace_outbox_id'::regclass) NOT NULL,
    change_feed_id text NOT NULL,
    op text NOT NULL,
    key text,
    changes text NOT NULL,
    before text,
    changed text,
    control text,
    attached integer,
    copy boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: headrace_owner; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_owner (
    feed text NOT NULL,
    agent_id text DEFAULT ''::text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    incarnation text,
    history integer DEFAULT 0 NOT NULL,
    kept_from bigint DEFAULT 0 NOT NULL,
    alarm text,
    accepted text
);


--
-- Name: headrace_pass; Type: TABLE; Schema: headrace; Owner: -
--

CREATE TABLE headrace.headrace_pass (
    feed text NOT NULL,
    number bigint NOT NULL,
    history integer NOT NULL,
    next_sequence_id bigint NOT NULL,
    processed_next bigint NOT NULL,
    looked_id bigint NOT NULL,
    late xid8[] NOT NULL,
    open_from xid8 NOT NULL,
    open_to xid8 NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: account; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.account (
    id integer NOT NULL,
    owner text NOT NULL,
    photo bytea,
    rate numeric(10,4)
);


--
-- Data for Name: headrace_attached; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_attached OVERRIDING SYSTEM VALUE VALUES (1, 'public', 'account', 16385, 'bank', 1, '{"schema":{"database":"public","table":"account","version":1,"columns":[{"name":"id","type":"int64","source-type":"integer","nullable":false},{"name":"owner","type":"string","source-type":"text","nullable":false},{"name":"photo","type":"binary","source-type":"bytea","nullable":true},{"name":"rate","type":"decimal(10,4)","source-type":"numeric(10,4)","nullable":true}],"key":["id"]},"request":{"feed":"bank","tables":["account"],"include":[],"exclude":[],"columns":[],"exclude_columns":[],"mask":[],"key":[],"accept":"","before":false,"copy":true},"catalogue":[{"name":"id","declared":"integer","base":"int4","kind":"base","typmod":-1,"not_null":true,"exact":true,"generated":"","expression":"","parts":[]},{"name":"owner","declared":"text","base":"text","kind":"base","typmod":-1,"not_null":true,"exact":true,"generated":"","expression":"","parts":[]},{"name":"photo","declared":"bytea","base":"bytea","kind":"base","typmod":-1,"not_null":false,"exact":true,"generated":"","expression":"","parts":[]},{"name":"rate","declared":"numeric(10,4)","base":"numeric","kind":"base","typmod":655368,"not_null":false,"exact":true,"generated":"","expression":"","parts":[]}],"masked":[],"accepted":[],"partitions":[],"file":16385,"oid":16385,"triggers":["CREATE TRIGGER \"!headrace_rekey\" AFTER UPDATE OF id ON public.account FOR EACH ROW WHEN ((old.id IS DISTINCT FROM new.id)) EXECUTE FUNCTION headrace.headrace_capture_rekey(''1'', ''bank'', ''[\"id\"]'')","CREATE TRIGGER \"!headrace_truncate\" AFTER TRUNCATE ON public.account FOR EACH STATEMENT EXECUTE FUNCTION headrace.headrace_capture_truncate(''1'')","CREATE TRIGGER \"!headrace_update\" AFTER UPDATE ON public.account FOR EACH ROW EXECUTE FUNCTION headrace.headrace_capture_update(''1'', ''bank'', ''[\"id\"]'')","CREATE TRIGGER \"!headrace_write\" AFTER INSERT OR DELETE ON public.account FOR EACH ROW EXECUTE FUNCTION headrace.headrace_capture(''1'', ''bank'', ''[\"id\"]'')"]}', 'live', 0, NULL, NULL);


--
-- Data for Name: headrace_copy; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_copy OVERRIDING SYSTEM VALUE VALUES (1, 1, NULL, 'done', NULL, '[["id","integer",null]]', NULL, '["1"]', '["1"]', true, '2026-11-21 23:16:23.334631+00', 1, NULL, '2026-11-21 23:16:23.321912+00');


--
-- Data for Name: headrace_copy_left; Type: TABLE DATA; Schema: headrace; Owner: -
--



--
-- Data for Name: headrace_format; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_format VALUES ('outbox', 1, 1, false);


--
-- Data for Name: headrace_mark; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_mark VALUES ('bank', 0, 1, 2, '727', 1, 2, 'agent-1');
INSERT INTO headrace.headrace_mark VALUES ('bank', 0, 3, 1, '730', 3, 3, 'agent-1');
INSERT INTO headrace.headrace_mark VALUES ('bank', 0, 4, 1, '731', 4, 4, 'agent-1');
INSERT INTO headrace.headrace_mark VALUES ('bank', 0, 5, 1, '734', 5, 5, 'agent-1');


--
-- Data for Name: headrace_origin; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_origin VALUES ('bank', '732');


--
-- Data for Name: headrace_outbox; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_outbox VALUES ('727', 1, 'bank', 'put', 'schema/public/account/1', '{"database":"public","table":"account","version":1,"columns":[{"name":"id","type":"int64","source-type":"integer","nullable":false},{"name":"owner","type":"string","source-type":"text","nullable":false},{"name":"photo","type":"binary","source-type":"bytea","nullable":true},{"name":"rate","type":"decimal(10,4)","source-type":"numeric(10,4)","nullable":true}],"key":["id"]}', NULL, NULL, 'schema', 1, false, '2026-11-21 23:16:23.320871+00');
INSERT INTO headrace.headrace_outbox VALUES ('727', 2, 'bank', 'put', 'copy-begin/public/account/1', '{"database":"public","table":"account","version":1}', NULL, NULL, 'copy-begin', 1, false, '2026-11-21 23:16:23.322031+00');
INSERT INTO headrace.headrace_outbox VALUES ('730', 3, 'bank', 'put', NULL, '{"id":1,"owner":"Ada","photo":"\\x00ff","rate":0.1000}', NULL, NULL, NULL, 1, true, '2026-11-21 23:16:23.332544+00');
INSERT INTO headrace.headrace_outbox VALUES ('731', 4, 'bank', 'put', 'copy-end/public/account/1', '{"database":"public","table":"account","version":1,"rows":1}', NULL, NULL, 'copy-end', 1, false, '2026-11-21 23:16:23.33484+00');
INSERT INTO headrace.headrace_outbox VALUES ('734', 5, 'bank', 'put', NULL, '{"id":1,"owner":"Ada L.","photo":"\\x00ff","rate":0.1000}', '{"id":1,"owner":"Ada","photo":"\\x00ff","rate":0.1000}', NULL, NULL, 1, false, '2026-11-21 23:16:23.354404+00');
INSERT INTO headrace.headrace_outbox VALUES ('736', 6, 'bank', 'delete', NULL, '{"id":1,"owner":"Ada L.","photo":"\\x00ff","rate":0.1000}', NULL, NULL, NULL, 1, false, '2026-11-21 23:16:23.35639+00');
INSERT INTO headrace.headrace_outbox VALUES ('736', 7, 'bank', 'put', NULL, '{"id":2,"owner":"Ada L.","photo":"\\x00ff","rate":0.1000}', '{"id":1,"owner":"Ada L.","photo":"\\x00ff","rate":0.1000}', NULL, NULL, 1, false, '2026-11-21 23:16:23.356459+00');
INSERT INTO headrace.headrace_outbox VALUES ('736', 8, 'bank', 'put', NULL, '{"uuid":"order-7","state":"paid"}', NULL, NULL, NULL, NULL, false, '2026-11-21 23:16:23.356803+00');


--
-- Data for Name: headrace_owner; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_owner VALUES ('bank', 'agent-1', 1, 'inc', 0, 1, NULL, NULL);


--
-- Data for Name: headrace_pass; Type: TABLE DATA; Schema: headrace; Owner: -
--

INSERT INTO headrace.headrace_pass VALUES ('bank', 1, 0, 1, 1, 0, '{}', '0', '0', '2026-11-21 23:16:23.349332+00');
INSERT INTO headrace.headrace_pass VALUES ('bank', 2, 0, 5, 1, 4, '{}', '733', '733', '2026-11-21 23:16:23.351429+00');
INSERT INTO headrace.headrace_pass VALUES ('bank', 3, 0, 6, 5, 5, '{}', '735', '735', '2026-11-21 23:16:23.355944+00');


--
-- Data for Name: account; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.account VALUES (2, 'Ada L.', '\x00ff', 0.1000);


--
-- Name: headrace_added; Type: SEQUENCE SET; Schema: headrace; Owner: -
--

SELECT pg_catalog.setval('headrace.headrace_added', 1, true);


--
-- Name: headrace_asleep_until; Type: SEQUENCE SET; Schema: headrace; Owner: -
--

SELECT pg_catalog.setval('headrace.headrace_asleep_until', 1, false);


--
-- Name: headrace_attached_id_seq; Type: SEQUENCE SET; Schema: headrace; Owner: -
--

SELECT pg_catalog.setval('headrace.headrace_attached_id_seq', 1, true);


--
-- Name: headrace_copy_id_seq; Type: SEQUENCE SET; Schema: headrace; Owner: -
--

SELECT pg_catalog.setval('headrace.headrace_copy_id_seq', 1, true);


--
-- Name: headrace_outbox_id; Type: SEQUENCE SET; Schema: headrace; Owner: -
--

SELECT pg_catalog.setval('headrace.headrace_outbox_id', 8, true);


--
-- Name: headrace_attached headrace_attached_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_attached
    ADD CONSTRAINT headrace_attached_pkey PRIMARY KEY (id);


--
-- Name: headrace_copy_left headrace_copy_left_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_copy_left
    ADD CONSTRAINT headrace_copy_left_pkey PRIMARY KEY (copy, key);


--
-- Name: headrace_copy headrace_copy_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_copy
    ADD CONSTRAINT headrace_copy_pkey PRIMARY KEY (id);


--
-- Name: headrace_format headrace_format_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_format
    ADD CONSTRAINT headrace_format_pkey PRIMARY KEY (part);


--
-- Name: headrace_mark headrace_mark_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_mark
    ADD CONSTRAINT headrace_mark_pkey PRIMARY KEY (feed, history, first_sequence_id);


--
-- Name: headrace_origin headrace_origin_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_origin
    ADD CONSTRAINT headrace_origin_pkey PRIMARY KEY (feed);


--
-- Name: headrace_outbox headrace_outbox_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_outbox
    ADD CONSTRAINT headrace_outbox_pkey PRIMARY KEY (id);


--
-- Name: headrace_owner headrace_owner_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_owner
    ADD CONSTRAINT headrace_owner_pkey PRIMARY KEY (feed);


--
-- Name: headrace_pass headrace_pass_pkey; Type: CONSTRAINT; Schema: headrace; Owner: -
--

ALTER TABLE ONLY headrace.headrace_pass
    ADD CONSTRAINT headrace_pass_pkey PRIMARY KEY (feed, number);


--
-- Name: account account_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account
    ADD CONSTRAINT account_pkey PRIMARY KEY (id);


--
-- Name: headrace_copy_left_tries; Type: INDEX; Schema: headrace; Owner: -
--

CREATE INDEX headrace_copy_left_tries ON headrace.headrace_copy_left USING btree (copy, tries, key);


--
-- Name: headrace_outbox_tx; Type: INDEX; Schema: headrace; Owner: -
--

CREATE INDEX headrace_outbox_tx ON headrace.headrace_outbox USING btree (tx, id);


--
-- Name: account !headrace_rekey; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER "!headrace_rekey" AFTER UPDATE OF id ON public.account FOR EACH ROW WHEN ((old.id IS DISTINCT FROM new.id)) EXECUTE FUNCTION headrace.headrace_capture_rekey('1', 'bank', '["id"]');

ALTER TABLE public.account ENABLE ALWAYS TRIGGER "!headrace_rekey";


--
-- Name: account !headrace_truncate; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER "!headrace_truncate" AFTER TRUNCATE ON public.account FOR EACH STATEMENT EXECUTE FUNCTION headrace.headrace_capture_truncate('1');

ALTER TABLE public.account ENABLE ALWAYS TRIGGER "!headrace_truncate";


--
-- Name: account !headrace_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER "!headrace_update" AFTER UPDATE ON public.account FOR EACH ROW EXECUTE FUNCTION headrace.headrace_capture_update('1', 'bank', '["id"]');

ALTER TABLE public.account ENABLE ALWAYS TRIGGER "!headrace_update";


--
-- Name: account !headrace_write; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER "!headrace_write" AFTER INSERT OR DELETE ON public.account FOR EACH ROW EXECUTE FUNCTION headrace.headrace_capture('1', 'bank', '["id"]');

ALTER TABLE public.account ENABLE ALWAYS TRIGGER "!headrace_write";


--
-- Name: FUNCTION headrace_add(feed text, op text, key text, changes text, changed text); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_add(feed text, op text, key text, changes text, changed text) FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_chosen(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_chosen() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_plain(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_plain() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_rekey(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_rekey() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_rekey_plain(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_rekey_plain() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_truncate(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_truncate() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_update(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_update() FROM PUBLIC;


--
-- Name: FUNCTION headrace_capture_update_plain(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_capture_update_plain() FROM PUBLIC;


--
-- Name: FUNCTION headrace_filtered(whole json, other json, delivered text, masked text); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_filtered(whole json, other json, delivered text, masked text) FROM PUBLIC;


--
-- Name: FUNCTION headrace_filtered_by_name(whole record, other record, delivered text, masked text); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_filtered_by_name(whole record, other record, delivered text, masked text) FROM PUBLIC;


--
-- Name: FUNCTION headrace_fingerprint(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_fingerprint() FROM PUBLIC;


--
-- Name: FUNCTION headrace_has_key(relation oid, trigger_name name, key text, old record); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_has_key(relation oid, trigger_name name, key text, old record) FROM PUBLIC;


--
-- Name: FUNCTION headrace_is_newest(relation oid, place tid); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_is_newest(relation oid, place tid) FROM PUBLIC;


--
-- Name: FUNCTION headrace_row(whole record, delivered text, masked text, json_columns text); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_row(whole record, delivered text, masked text, json_columns text) FROM PUBLIC;


--
-- Name: FUNCTION headrace_row(whole record, other record, delivered text, masked text, json_columns text); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_row(whole record, other record, delivered text, masked text, json_columns text) FROM PUBLIC;


--
-- Name: FUNCTION headrace_wake(); Type: ACL; Schema: headrace; Owner: -
--

REVOKE ALL ON FUNCTION headrace.headrace_wake() FROM PUBLIC;


--
-- PostgreSQL database dump complete
--


