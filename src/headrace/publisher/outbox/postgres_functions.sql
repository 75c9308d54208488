-- What runs inside the application's transactions. All are SECURITY DEFINER with a fixed search_path: the application's
-- roles need no right on the outbox, and nothing they create can stand in for what is named here. The other settings make
-- the JSON of a value the same whatever the application's session has set. Each costs something in every call, so
-- outbox/postgres.py also makes headrace_capture, headrace_capture_update and headrace_capture_rekey without them, as
-- ..._plain, for tables with none but types whose JSON no setting changes. No function names a column of an attached table, so
-- no ALTER TABLE can make one fail.

-- Makes this transaction notify at its commit, but only if an agent says that it sleeps: a NOTIFY in every transaction
-- would make commits wait for each other.
CREATE OR REPLACE FUNCTION headrace.headrace_wake() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pg_sequence_last_value('headrace.headrace_asleep_until') >= date_part('epoch', now()) THEN
        PERFORM pg_notify('headrace', '');
    END IF;
END
$$;

-- Outbox.add: one row of the application's own.
CREATE OR REPLACE FUNCTION headrace.headrace_add(feed text, op text, key text, changes text, changed text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
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
$$;

-- Whether no statement has changed the row since it had the version at this place. A trigger of the application may change a row
-- once more before ours is told of the first change; the later one is captured first then, and the first must not follow it.
CREATE OR REPLACE FUNCTION headrace.headrace_is_newest(relation oid, place tid) RETURNS boolean
LANGUAGE plpgsql SET row_security = off
AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s WHERE ctid = $1)', relation::regclass) INTO found USING place;
    RETURN found;
EXCEPTION WHEN others THEN
    RETURN true;
END
$$;

-- Whether the attached table has a row of this key by now: one that was deleted, and inserted anew by a trigger of the
-- application before ours was told of its end.
CREATE OR REPLACE FUNCTION headrace.headrace_has_key(relation oid, trigger_name name, key text, old record) RETURNS boolean
LANGUAGE plpgsql SET row_security = off
AS $$
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
$$;

-- AFTER INSERT OR DELETE FOR EACH ROW; arguments: attachment, feed, JSON array of the key's columns.
-- NEW.xmax is not 0 where the row's version is locked or superseded. What inserts within a trigger says so for the rest of
-- the transaction: only then can a row be there again when its deletion is told.
CREATE OR REPLACE FUNCTION headrace.headrace_capture() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET lc_monetary = 'C'
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.xmax <> 0 THEN
            IF NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
                RETURN NULL;
            END IF;
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
    IF pg_sequence_last_value('headrace.headrace_asleep_until') IS NOT NULL THEN
        PERFORM headrace.headrace_wake();
    END IF;
    RETURN NULL;
END
$$;

-- AFTER UPDATE FOR EACH ROW. Apart from the others, and without a WHEN: what a trigger's expressions cost is paid anew by each
-- transaction, and a WHEN by each statement.
CREATE OR REPLACE FUNCTION headrace.headrace_capture_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET lc_monetary = 'C'
AS $$
BEGIN
    IF NEW.xmax <> 0 OR pg_sequence_last_value('headrace.headrace_asleep_until') IS NOT NULL THEN
        IF NEW.xmax <> 0 AND NOT headrace.headrace_is_newest(TG_RELID, NEW.ctid) THEN
            RETURN NULL;
        END IF;
        PERFORM headrace.headrace_wake();
    END IF;
    INSERT INTO headrace.headrace_outbox (change_feed_id, op, changes, before, attached)
    VALUES (TG_ARGV[1], 'put', row_to_json(NEW), row_to_json(OLD), TG_ARGV[0]::integer);
    RETURN NULL;
END
$$;

-- AFTER UPDATE FOR EACH ROW that changed the key (the trigger's WHEN says so). Its name stands before the other's, so it fires
-- first: the old key goes, then the new one comes.
CREATE OR REPLACE FUNCTION headrace.headrace_capture_rekey() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET lc_monetary = 'C'
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

-- A row's JSON with the delivered columns only. A masked value becomes '***', or '**' where it differs from the other row's.
-- Columns are JSON arrays of names; one that is called otherwise by now is left out.
CREATE OR REPLACE FUNCTION headrace.headrace_filtered(whole json, other json, delivered text, masked text) RETURNS text
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

-- The same by names, for a row with a json value that json_each refuses though a json column takes it: one with \u0000.
CREATE OR REPLACE FUNCTION headrace.headrace_filtered_by_name(whole record, other record, delivered text, masked text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
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
$$;

-- The row as JSON: all columns if delivered is '', else as above. A JSON null reads like NULL there: the columns that hold
-- one are listed in a last member, whose name no column can have.
CREATE OR REPLACE FUNCTION headrace.headrace_row(
    whole record, other record, delivered text, masked text, json_columns text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
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
$$;

-- The same for copies, by the agent's role.
CREATE OR REPLACE FUNCTION headrace.headrace_row(whole record, delivered text, masked text, json_columns text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN headrace.headrace_row(whole, NULL, delivered, masked, json_columns);
END
$$;

-- What these three do, for tables of which columns are left out or masked, or that have json columns. Arguments after theirs:
-- delivered, masked and json columns; 'rekey' in the place of headrace_capture_rekey.
CREATE OR REPLACE FUNCTION headrace.headrace_capture_chosen() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET lc_monetary = 'C'
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

-- AFTER TRUNCATE FOR EACH STATEMENT; arguments: attachment; on a partition of the attached table also the key by which a copy
-- goes, because the rows of the other partitions must come again. Nothing of ours is waited for here, as the application holds
-- its locks: rows are only inserted. The copy looks for rows once every transaction of now has ended.
CREATE OR REPLACE FUNCTION headrace.headrace_capture_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- A number that changes with whatever a check of the attached tables looks at. Asked before each marking, so it is a function:
-- its plan is kept, and it reads the catalogue by index and takes no lock on a table.
CREATE OR REPLACE FUNCTION headrace.headrace_fingerprint() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- Trigger functions need no right of whoever fires them; the others are granted by name (headrace publisher grants).
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA headrace FROM PUBLIC;
