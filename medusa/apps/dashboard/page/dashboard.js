// Shows what the server says: a drawing, details of what is asked about, tables of nodes and links.
// Nothing of it is taken as HTML: the drawing is parsed as XML, everything else is set as text.
"use strict";

const at = (id) => document.getElementById(id);
const SILENT_MS = 3500; // the server says something every second
const READABLE = 0.6; // the drawing isn't made smaller than this

let newest = null; // the last event
let heardAt = performance.now();
let asked = null; // the key of what the details are about

// --- what came ------------------------------------------------------------------------------------

function take(event) {
  newest = JSON.parse(event.data);
  heardAt = performance.now();
  draw(newest.svg);
  fill(at("nodes"), newest.nodes.map(([key, name, owner, state, age, why]) =>
    [key, [name, owner || "not known", state, state === "not asked" ? "" : `${age.toFixed(0)} s ago`, why], state]));
  fill(at("links"), newest.links.map(([key, a, b, state]) => [key, [a, b, state], state]));
  fill(at("standbys"), newest.standbys.map(([key, fragment, owner, node, state, told]) =>
    [key, [fragment, owner, node, told], state]));
  at("standby").hidden = newest.standbys.length === 0;
  showDetails();
  tellState();
}

function draw(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return;
  const shown = at("drawing").firstElementChild;
  if (shown === null) at("drawing").append(document.importNode(parsed, true));
  else become(shown, parsed);
  mark();
  fit();
}

// As wide as there is room, but no larger than drawn, and no smaller than can be read.
function fit() {
  const shown = at("drawing").firstElementChild;
  if (shown === null) return;
  const natural = Number(shown.getAttribute("width"));
  shown.style.width = `${Math.max(natural * READABLE, Math.min(natural, at("drawing").clientWidth))}px`;
}

addEventListener("resize", fit);

// Make one tree like another and keep its elements where it can, so that what has the focus keeps it.
function become(old, wanted) {
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const child of wanted.childNodes) {
    const key = child.dataset?.key;
    let same = key ? keyed.get(key) : place;
    if (!same || same.nodeName !== child.nodeName || (!key && same.dataset?.key)) {
      same = document.importNode(child, true);
      old.insertBefore(same, place);
      continue;
    }
    if (same !== place) {
      // Elements that are gone are passed by and removed, so that those that stay needn't move.
      while (place && place !== same && !isWanted(place, wanted)) place = dropped(place);
      if (same !== place) old.insertBefore(same, place);
    }
    if (same === place) place = place.nextSibling;
    if (child.nodeType === Node.ELEMENT_NODE) become(same, child);
    else if (same.data !== child.data) same.data = child.data;
  }
  while (place) place = dropped(place);
}

function isWanted(node, parent) {
  const key = node.dataset?.key;
  return key !== undefined && [...parent.children].some((child) => child.dataset.key === key);
}

function dropped(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// --- tables and details ---------------------------------------------------------------------------

// rows: [key, cells, class]
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach(([key, cells, kind], place) => {
    const row = body.rows[place] ?? body.insertRow();
    row.dataset.key = key;
    row.className = kind.replace(" ", "-");
    while (row.cells.length < cells.length) row.insertCell();
    cells.forEach((text, column) => {
      if (row.cells[column].textContent !== text) row.cells[column].textContent = text;
    });
  });
}

function showDetails() {
  const found = asked === null ? undefined : newest?.details[asked];
  at("details").hidden = found === undefined && asked === null;
  if (asked === null) return;
  if (found === undefined) {
    fill(at("lines"), [["", ["it is not there any more", ""], ""]]);
    return;
  }
  at("title").textContent = found[0];
  fill(at("lines"), found[1].map(([name, value]) => ["", [name, value], ""]));
}

function mark() {
  for (const each of document.querySelectorAll("#drawing .asked")) each.classList.remove("asked");
  if (asked !== null) document.querySelector(`#drawing [data-key="${CSS.escape(asked)}"]`)?.classList.add("asked");
}

function ask(key) {
  asked = key;
  showDetails();
  mark();
  fit();
}

function keyAt(target) {
  const found = target.closest?.("#drawing [data-key]");
  return found && newest?.details[found.dataset.key] ? found.dataset.key : null;
}

document.addEventListener("click", (event) => {
  const key = keyAt(event.target);
  if (key !== null) ask(key);
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && asked !== null) {
    const back = document.querySelector(`#drawing [data-key="${CSS.escape(asked)}"]`);
    ask(null);
    back?.focus();
  } else if (event.key === "Enter" || event.key === " ") {
    const key = keyAt(event.target);
    if (key === null) return;
    event.preventDefault();
    ask(key);
    at("title").focus();
  }
});

at("close").addEventListener("click", () => ask(null));

// --- is the server there? -------------------------------------------------------------------------

function tellState() {
  const silent = performance.now() - heardAt;
  const lost = silent > SILENT_MS;
  const state = at("state");
  at("drawing").classList.toggle("old", lost);
  let text;
  if (lost) text = `the server doesn't answer: this is ${Math.round(silent / 1000)} s old`;
  else if (newest === null) text = "waiting for the server";
  else {
    const away = newest.nodes.filter((node) => node[3] === "unreachable").map((node) => node[1]);
    const cut = newest.links // those of a node that is away need no saying
      .filter(([, a, b, how]) => how === "cut" && !away.includes(a) && !away.includes(b))
      .map(([, a, b]) => `${a} and ${b}`);
    text = `${newest.nodes.length} nodes`;
    if (away.length) text += `; no answer from ${away.join(", ")}`;
    if (cut.length) text += `; cut: ${cut.join(", ")}`;
    if (newest.unstable.length) text += `; not stable: ${newest.unstable.join(", ")}`;
    if (newest.alone.length) text += `; nobody could take over ${newest.alone.join(", ")}`;
    state.classList.toggle("bad", away.length + cut.length + newest.alone.length + newest.unstable.length > 0);
  }
  if (lost) state.classList.add("bad");
  else if (newest === null) state.classList.remove("bad");
  if (state.textContent !== text) state.textContent = text;
}

setInterval(tellState, 500);

function listen() {
  const events = new EventSource("events");
  events.addEventListener("federation", take);
  events.addEventListener("error", () => {
    // A browser tries again by itself unless the answer was no stream (the server is full, say).
    if (events.readyState !== EventSource.CLOSED) return;
    events.close();
    setTimeout(listen, 2000);
  });
}

listen();
