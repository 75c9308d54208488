// The live tail of a feed: new entries appear on top as they come. All of it is text; nothing that comes is ever taken as
// markup. Sequence ids are text too, and BigInt where they are counted with: they may be above 2^53.

import { isPaused, onPaused } from "./refresh.mjs";

const ROWS_MAX = 300;
const NEWS_EVERY_MS = 5000; // how often a screen reader is told
const AGAIN_MS = 2000;

const table = document.getElementById("tail");
const body = table.tBodies[0];
const state = document.getElementById("tail-state");
const news = document.getElementById("tail-news");

let after = table.dataset.after;
let stream = null;
let untold = 0;

function say(kind, text) {
  state.className = `chip ${kind}`;
  state.textContent = text;
}

function cell(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function code(text) {
  return cell("code", text);
}

function rowOf(entry) {
  const row = document.createElement("tr");
  row.className = "fresh";
  const link = cell("a", entry["sequence-id"]);
  link.href = `${table.dataset.feed}/trace?sequence-id=${encodeURIComponent(entry["sequence-id"])}`;
  link.title = `LSN ${entry.lsn}`;
  const place = cell("th", link);
  place.scope = "row";
  place.className = "n";
  const time = cell("time", entry["committed-at"].slice(11, 23));
  time.dateTime = time.title = entry["committed-at"];
  const op = cell("span", entry.op);
  op.className = `op ${["put", "patch", "delete"].includes(entry.op) ? entry.op : "control"}`;
  const value = cell("td", code(entry.value));
  value.className = "value";
  row.append(place, cell("td", time), cell("td", op), cell("td", code(entry.key)), value);
  return row;
}

function gapRow(count) {
  const row = document.createElement("tr");
  row.className = "gap";
  const words = cell("td", `${count} more that came too fast to be shown`);
  words.colSpan = 5;
  row.append(words);
  return row;
}

function take(event) {
  const { entries } = JSON.parse(event.data);
  if (!table.dataset.key && entries.length) {
    const missed = BigInt(entries[0]["sequence-id"]) - BigInt(after) - 1n;
    if (missed > 0n) body.prepend(gapRow(missed.toLocaleString("en")));
  }
  for (const entry of entries) body.prepend(rowOf(entry));
  while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
  after = event.lastEventId;
  untold += entries.length;
}

function stop(kind, text) {
  stream?.close();
  stream = null;
  say(kind, text);
}

function start() {
  if (stream || isPaused()) return;
  const query = new URLSearchParams({ after });
  if (table.dataset.key) query.set("key", table.dataset.key);
  stream = new EventSource(`${table.dataset.feed}/tail?${query}`);
  stream.addEventListener("feed", () => say("ok", "live"));
  stream.addEventListener("entries", take);
  stream.addEventListener("error", (event) => {
    if (event.data !== undefined) {
      stop("bad", JSON.parse(event.data).detail); // the server said why it ends
      return;
    }
    stop("warn", "not connected");
    setTimeout(start, AGAIN_MS);
  });
}

onPaused((paused) => (paused ? stop("warn", "paused") : start()));
setInterval(() => {
  if (untold) news.textContent = `${untold} new ${untold === 1 ? "entry" : "entries"}, the newest is ${after}`;
  untold = 0;
}, NEWS_EVERY_MS);
start();
