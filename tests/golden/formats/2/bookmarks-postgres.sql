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
-- Name: headrace_listener; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA headrace_listener;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: bookmark; Type: TABLE; Schema: headrace_listener; Owner: -
--

CREATE TABLE headrace_listener.bookmark (
    listener_id text NOT NULL,
    feed text NOT NULL,
    holder uuid NOT NULL,
    incarnation text,
    sequence_id bigint,
    lsn text,
    snapshot_id text
);


--
-- Name: filter; Type: TABLE; Schema: headrace_listener; Owner: -
--

CREATE TABLE headrace_listener.filter (
    listener_id text NOT NULL,
    feed text NOT NULL,
    filter text NOT NULL
);


--
-- Name: format; Type: TABLE; Schema: headrace_listener; Owner: -
--

CREATE TABLE headrace_listener.format (
    one boolean DEFAULT true NOT NULL,
    written_as integer NOT NULL,
    readable_from integer NOT NULL,
    CONSTRAINT format_one_check CHECK (one)
);


--
-- Name: parked; Type: TABLE; Schema: headrace_listener; Owner: -
--

CREATE TABLE headrace_listener.parked (
    listener_id text NOT NULL,
    feed text NOT NULL,
    sequence_id bigint NOT NULL,
    parked bytea NOT NULL
);


--
-- Data for Name: bookmark; Type: TABLE DATA; Schema: headrace_listener; Owner: -
--

INSERT INTO headrace_listener.bookmark VALUES ('my-service', 'vmapi::vm', 'd82699d5-d044-44c2-8c02-0df3d9b05bac', 'inc', 50, '0687efa7e7b00000.0000000001.0000000050', NULL);
INSERT INTO headrace_listener.bookmark VALUES ('new-service', 'vmapi::vm', 'd82699d5-d044-44c2-8c02-0df3d9b05bac', 'inc', 40, NULL, 'snapshot-1');
INSERT INTO headrace_listener.bookmark VALUES ('tcns.2-of-8', 'vmapi::vm', 'd82699d5-d044-44c2-8c02-0df3d9b05bac', 'inc', 50, '0687efa7e7b00000.0000000001.0000000050', NULL);


--
-- Data for Name: filter; Type: TABLE DATA; Schema: headrace_listener; Owner: -
--

INSERT INTO headrace_listener.filter VALUES ('tcns.2-of-8', 'vmapi::vm', '{"changed":"alias,nics","shard":"2/8"}');


--
-- Data for Name: format; Type: TABLE DATA; Schema: headrace_listener; Owner: -
--

INSERT INTO headrace_listener.format VALUES (true, 2, 2);


--
-- Data for Name: parked; Type: TABLE DATA; Schema: headrace_listener; Owner: -
--

INSERT INTO headrace_listener.parked VALUES ('my-service', 'vmapi::vm', 48, '\x7b2273657175656e63652d6964223a34382c22696e6361726e6174696f6e223a22696e63222c226b6579223a22746578743a6b31222c2268656c64223a66616c73652c22726561736f6e223a226578697420636f64652037222c22617474656d707473223a352c227061726b65642d6174223a22323032362d31312d32325430343a30303a30302e3030305a222c22656e747279223a7b2273657175656e63652d6964223a34382c226c736e223a22303638376566613765376230303030302e303030303030303030312e30303030303030303438222c226b6579223a226b31222c226368616e676573223a7b226e223a312e31307d7d7d');
INSERT INTO headrace_listener.parked VALUES ('my-service', 'vmapi::vm', 50, '\x7b2273657175656e63652d6964223a35302c22696e6361726e6174696f6e223a22696e63222c226b6579223a22746578743a6b31222c2268656c64223a747275652c22726561736f6e223a22222c22617474656d707473223a302c227061726b65642d6174223a22323032362d31312d32325430343a30303a30312e3030305a222c22656e747279223a7b2273657175656e63652d6964223a35302c226c736e223a22303638376566613765376230303030302e303030303030303030312e30303030303030303530222c226b6579223a226b31222c226368616e676573223a7b226e223a327d7d7d');


--
-- Name: bookmark bookmark_pkey; Type: CONSTRAINT; Schema: headrace_listener; Owner: -
--

ALTER TABLE ONLY headrace_listener.bookmark
    ADD CONSTRAINT bookmark_pkey PRIMARY KEY (listener_id, feed);


--
-- Name: filter filter_pkey; Type: CONSTRAINT; Schema: headrace_listener; Owner: -
--

ALTER TABLE ONLY headrace_listener.filter
    ADD CONSTRAINT filter_pkey PRIMARY KEY (listener_id, feed);


--
-- Name: format format_pkey; Type: CONSTRAINT; Schema: headrace_listener; Owner: -
--

ALTER TABLE ONLY headrace_listener.format
    ADD CONSTRAINT format_pkey PRIMARY KEY (one);


--
-- Name: parked parked_pkey; Type: CONSTRAINT; Schema: headrace_listener; Owner: -
--

ALTER TABLE ONLY headrace_listener.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (listener_id, feed, sequence_id);


--
-- PostgreSQL database dump complete
--


