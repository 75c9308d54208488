// Keeps what changes on a page up to date: the page is asked for again now and then, and its parts marked `data-live` are
// exchanged. What `data-live` names is where such a part is had, the page itself if it names nothing.

const EVERY_MS = 5000;
const PAUSED = "headrace-paused";

const button = document.getElementById("pause");
const freshness = document.getElementById("freshness");

export function isPaused() {
  return button.getAttribute("aria-pressed") === "true";
}

function setPaused(paused) {
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Paused" : "Pause";
  document.dispatchEvent(new CustomEvent(PAUSED, { detail: paused }));
}

export function onPaused(call) {
  document.addEventListener(PAUSED, (event) => call(event.detail));
}

function exchange(here, fresh) {
  if (here.contains(document.activeElement)) return; // nobody loses what they are about to press
  for (const open of here.querySelectorAll("details[open]")) {
    fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
  }
  here.replaceChildren(...fresh.childNodes);
}

async function refresh() {
  const parts = [...document.querySelectorAll("[data-live]")];
  const where = new Map();
  for (const part of parts) {
    const address = part.dataset.live || parts.find((one) => one.dataset.live)?.dataset.live || location.href;
    where.set(address, [...(where.get(address) ?? []), part]);
  }
  for (const [address, wanted] of where) {
    const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") {
      location.reload(); // the session has ended
      return;
    }
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of wanted) {
      const fresh = page.getElementById(part.id);
      if (fresh) exchange(part, fresh);
    }
  }
}

async function run() {
  if (!isPaused() && !document.hidden) {
    try {
      await refresh();
      freshness.textContent = "";
    } catch {
      freshness.textContent = "The server does not answer; what is shown may be old.";
    }
  }
  setTimeout(run, EVERY_MS);
}

button.hidden = false;
button.addEventListener("click", () => setPaused(!isPaused()));
setTimeout(run, EVERY_MS);
