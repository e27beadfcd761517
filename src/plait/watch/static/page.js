// The page of a run. It asks for /now once, then takes what /events sends, and shows it. It sends nothing.
// Whatever comes with data (names of streams and sources) is put in as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let shown = null; // the last look
let before = null; // one some looks ago, for rates
let last = []; // the last looks
let history = {};
let meanings = {};

// --- elements -----------------------------------------------------------------------------------------------

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) element.append(child);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  for (const child of children) element.append(child);
  return element;
}

// What a number says, by kind of record and name: shown on hover, focus and touch.
function tip(kind, name) {
  const text = (meanings[kind] || {})[name];
  return text ? { "data-tip": `${name}: ${text}`, tabindex: "0" } : {};
}

// --- numbers ------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));
const rate = (n) => (n === null || n === undefined ? "–" : `${brief.format(n)}/s`);
const bytes = (n) => (n >= 1e9 ? `${few.format(n / 1e9)} GB` : n >= 1e6 ? `${few.format(n / 1e6)} MB` : `${few.format(n / 1e3)} kB`);
const ms = (n) => (n === null || n === undefined ? "–" : n >= 1000 ? `${few.format(n / 1000)} s` : `${few.format(n)} ms`);
const time = (at) => new Date(at * 1000).toISOString().slice(11, 19);
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

function perSecond(now, then) {
  const seconds = before ? shown.at - before.at : 0;
  return seconds > 0 && then !== undefined && now >= then ? (now - then) / seconds : null;
}

// --- the sentence -------------------------------------------------------------------------------------------

function showReason(reason) {
  $("reason").className = document.body.className = reason.kind;
  $("sentence").textContent = reason.words;
  document.title = `${reason.kind === "held" || reason.kind === "failed" ? "⚠ " : ""}${shown.title} · plait`;
  const key = JSON.stringify(reason.remedies);
  if ($("remedies").dataset.key === key) return; // a button that is about to be pressed stays where it is
  $("remedies").dataset.key = key;
  $("remedies").replaceChildren(...reason.remedies.map((remedy) => {
    const button = make("button", { type: "button" }, "Copy");
    button.addEventListener("click", () => copied(button, remedy.copy));
    return make("li", {}, make("p", {}, remedy.words), make("div", { class: "copy" }, make("code", {}, remedy.copy), button));
  }));
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange(); // where there is no clipboard: select it
    range.selectNodeContents(button.previousElementSibling);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

// --- tiles --------------------------------------------------------------------------------------------------

function showTiles() {
  const newest = (name) => (history[name] || []).at(-1);
  const latency = shown.latency || {};
  const tiles = [
    ["Rows in", rate(newest("rows_s")), tip("history", "rows_s")],
    ["Results out", rate(newest("results_s")), tip("history", "results_s")],
    ["Frontier", shown.frontier, tip("run", "frontier")],
    ["Lag", newest("lag_s") === null || newest("lag_s") === undefined ? "–" : `${few.format(newest("lag_s"))} s`, tip("run", "lag_us")],
    ["Rows that wait", count(newest("waiting")), tip("run", "waiting")],
    ...["waiting", "working", "publishing"].filter((name) => latency[name]).map((name) =>
      [`Time ${name}`, ms(latency[name].p50), tip("run", "latency_split_ms")]),
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value, told]) =>
    make("div", { class: "tile", ...told }, make("b", {}, value), make("span", {}, name))));
}

// --- sources ------------------------------------------------------------------------------------------------

const SOURCE_COLUMNS = [
  ["source", "Source"], ["lag_us", "Behind the newest"], ["progress", "Progress"], ["silent_s", "Silent"], ["waiting", "Waiting"],
  ["rows", "Rows"],
];

function showSources() {
  const table = $("sources");
  table.className = "sources";
  table.tHead.replaceChildren(make("tr", {}, ...SOURCE_COLUMNS.map(([name, title]) =>
    make("th", { class: ["waiting", "rows"].includes(name) ? "number" : "", ...tip("source", name) }, title))));
  const most = Math.max(1e-9, ...shown.sources.map((each) => each.lag_s || 0));
  table.tBodies[0].replaceChildren(...shown.sources.map((each) => sourceRow(each, most)));
  const hidden = shown.sources_in_all - shown.sources.length;
  $("sources-note").textContent = hidden > 0 ? `the ${shown.sources.length} furthest behind of ${whole.format(shown.sources_in_all)}` : "";
}

function sourceRow(each, most) {
  const name = each.name === null ? `${each.stream} (no source known)` : `${each.stream}/${each.name}`;
  const cell = make("td", { class: "name" }, name);
  const badge = (text, field) => cell.append(make("span", { class: "badge", ...tip("source", field) }, text));
  if (each.holds) badge("holds the frontier", "holds");
  if (each.idle) badge("idle", "idle");
  if (each.ended) badge("ended", "ended");
  if (each.late) badge(`${whole.format(each.late)} late`, "late");
  if (each.behind) badge(`${whole.format(each.behind)} behind`, "behind");
  const fill = make("i");
  fill.style.width = each.lag_s === null ? (each.ended ? "0%" : "100%") : `${(100 * each.lag_s) / most}%`;
  const lag = make("td", { class: "bar" }, make("div", { class: "lag", ...tip("source", "lag_us") }, fill));
  return make("tr", { class: each.holds ? "holds" : each.ended || each.idle ? "quiet" : "" }, cell, lag,
    make("td", { "data-label": "progress" }, each.progress),
    make("td", { "data-label": "silent" }, each.ended ? "–" : each.silent),
    make("td", { class: "number", "data-label": "waiting" }, count(each.waiting)),
    make("td", { class: "number", "data-label": "rows" }, count(each.rows)));
}

// --- the query as a graph -----------------------------------------------------------------------------------

function showGraph() {
  const place = $("graph"), operators = shown.operators;
  if (!operators.length) { place.replaceChildren(make("p", { class: "note" }, "Nothing is told of operators here.")); return; }
  const nodes = new Map(); // by id: depth, texts
  const byNumber = new Map(operators.map((each) => [`#${each.operator}`, each]));
  const depth = (id) => (byNumber.has(id) ? 1 + Math.max(0, ...byNumber.get(id).inputs.map(depth)) : 0);
  const streams = [...new Set(operators.flatMap((each) => each.inputs).filter((id) => !byNumber.has(id)))];
  for (const name of streams) nodes.set(name, { depth: 0, title: name, small: "stream" });
  for (const [id, each] of byNumber) nodes.set(id, { depth: depth(id), title: each.label, small: `up to ${each.frontier}` });
  nodes.set("results", { depth: 1 + depth("#0"), title: "results", small: `${count(number("results"))} so far` });
  const columns = [];
  for (const node of nodes.values()) (columns[node.depth] ||= []).push(node);
  const narrow = innerWidth < 600, width = narrow ? 138 : 172, height = 52, gap = narrow ? 84 : 128, rows = Math.max(...columns.map((column) => column.length));
  const tall = rows * 84 + 8, wide = columns.length * width + (columns.length - 1) * gap + 4;
  columns.forEach((column, x) => column.forEach((node, y) => {
    node.x = 2 + x * (width + gap);
    node.y = (tall * (y + 0.5)) / column.length - height / 2;
  }));
  const svg = draw("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": "The query" });
  for (const [from, to, told] of edges(byNumber)) {
    const a = nodes.get(from), b = nodes.get(to), y1 = a.y + height / 2, y2 = b.y + height / 2, x1 = a.x + width, x2 = b.x;
    const middle = (x1 + x2) / 2;
    svg.append(draw("path", { d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2 - 2},${y2}` }));
    const label = draw("text", { x: x1 + 8, y: y1 - 7, class: "small halo" });
    label.textContent = told;
    svg.append(label);
  }
  const holder = shown.sources.find((each) => each.holds);
  for (const [id, node] of nodes) {
    const kind = node.depth === 0 ? (holder && holder.stream === id ? "stream holds" : "stream") : "operator";
    const group = draw("g", { class: kind }, draw("rect", { x: node.x, y: node.y, width, height, rx: 7 }));
    for (const [text, dy, of] of [[node.title, 21, ""], [node.small, 40, "small"]]) {
      const label = draw("text", { x: node.x + 11, y: node.y + dy, class: of });
      label.textContent = text.length > (narrow ? 18 : 24) ? `${text.slice(0, narrow ? 17 : 23)}…` : text;
      const full = draw("title");
      full.textContent = text;
      label.append(full);
      group.append(label);
    }
    svg.append(group);
  }
  place.replaceChildren(svg);
}

// [from, to, rate] of each edge. An operator's rows are those of all its inputs, so a stream's own are counted by its sources.
function edges(byNumber) {
  const found = [];
  const rowsOf = (look, stream) => look.sources.filter((each) => each.stream === stream).reduce((sum, each) => sum + each.rows, 0);
  const resultsOf = (look, id) => (look.operators.find((each) => `#${each.operator}` === id) || {}).results;
  for (const [id, each] of byNumber) {
    for (const input of new Set(each.inputs)) {
      const value = byNumber.has(input)
        ? perSecond(resultsOf(shown, input), before ? resultsOf(before, input) : undefined)
        : perSecond(rowsOf(shown, input), before ? rowsOf(before, input) : undefined);
      found.push([input, id, rate(value)]);
    }
  }
  found.push(["#0", "results", rate((history.results_s || []).at(-1))]);
  return found;
}

const number = (name) => {
  const found = shown.numbers.find((each) => each.name === name);
  return found ? Number(found.text.replaceAll(",", "")) : 0;
};

// --- workers, cells -----------------------------------------------------------------------------------------

function showParts() {
  const parts = shown.parts;
  $("parts-title").textContent = parts.length && parts[0].kind === "cell" ? "Cells" : "Workers";
  if (!parts.length) { $("parts-note").textContent = "None are told of."; $("parts").replaceChildren(); return; }
  const several = new Set(parts.map((each) => each.operator)).size > 1;
  const notes = [], rows = [];
  for (const operator of new Set(parts.map((each) => each.operator))) {
    const own = parts.filter((each) => each.operator === operator);
    const busy = own.map((each) => each.busy_s), most = Math.max(...busy, 1e-9), middle = median(busy);
    const label = (shown.operators.find((each) => each.operator === operator) || {}).label || `operator ${operator}`;
    if (own.length > 1 && middle > 0) {
      notes.push(`${several ? `${label}: ` : ""}the busiest has worked ${few.format(most / middle)} times as long as the median (the line)`);
    }
    rows.push(...own.map((each) => partRow(each, most, middle, several ? label : "", own.length > 1)));
  }
  const hidden = shown.parts_in_all - parts.length;
  if (hidden > 0) notes.push(`${whole.format(hidden)} more are not shown`);
  $("parts-note").textContent = notes.join("; ");
  $("parts").replaceChildren(...rows);
}

function partRow(each, most, middle, label, compared) {
  const fill = make("i"), line = make("u");
  fill.style.width = `${(100 * each.busy_s) / most}%`;
  line.style.left = `${(100 * middle) / most}%`;
  const track = make("div", { class: "track", ...tip("part", "busy_s") }, fill);
  if (compared) track.append(line);
  const told = [`${few.format(each.busy_s)} s`, `${brief.format(each.rows)} rows`];
  if (each.comparisons) told.push(`${brief.format(each.comparisons)} compared`);
  if (each.updates) told.push(`${brief.format(each.updates)} added up`);
  if (each.calls) told.push(`${brief.format(each.calls)} calls`);
  if (each.held_bytes) told.push(bytes(each.held_bytes));
  const name = `${label ? `${label} ` : ""}${each.kind} ${each.part}`;
  return make("div", { class: compared && each.busy_s > 1.5 * middle ? "part heavy" : "part" }, make("span", {}, name), track,
    make("span", { class: "told", ...tip("part", "share") }, told.join(", ")));
}

// --- over time ----------------------------------------------------------------------------------------------

const CHARTS = {
  "chart-rate": [["rows_s", "rows", "one"], ["results_s", "results", "two"]],
  "chart-latency": [["waiting_ms", "waiting", "one"], ["working_ms", "working", "two"], ["publishing_ms", "publishing", "three"]],
  "chart-lag": [["lag_s", "lag", "one"]],
  "chart-waiting": [["waiting", "rows", "one"]],
};

function showCharts() {
  const at = history.at || [];
  if (at.length < 2) return;
  $("span-note").textContent = `${time(at[0])} to ${time(at.at(-1))} UTC`;
  for (const [id, lines] of Object.entries(CHARTS)) $(id).replaceChildren(...chart(at, lines.filter(([name]) => history[name])));
}

function chart(at, lines) {
  const width = 520, height = 150, left = 46, low = 18, first = at[0], span = Math.max(1e-9, at.at(-1) - first);
  const values = lines.flatMap(([name]) => history[name]).filter((value) => value !== null);
  const most = Math.max(0, ...values), top = most > 0 ? nice(most) : 1;
  const x = (when) => left + ((when - first) / span) * (width - left), y = (value) => height - low - (value / top) * (height - low - 8);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
  for (const part of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width, y1: y(top * part), y2: y(top * part) }));
  }
  for (const mark of shown.marks.filter((each) => each.at >= first)) {
    const line = draw("line", { class: "mark", x1: x(mark.at), x2: x(mark.at), y1: 4, y2: height - low });
    const title = draw("title");
    title.textContent = `${time(mark.at)} ${mark.kind}: ${mark.words}`;
    line.append(title);
    svg.append(line);
  }
  for (const [name, , color] of lines) {
    for (const points of runs(at, history[name])) {
      svg.append(draw("polyline", { class: color, points: points.map(([when, value]) => `${x(when).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
    }
  }
  // Labels stand outside of what is stretched, so that letters are not.
  const labels = make("div", { class: "axis" });
  for (const part of [0, 0.5, 1]) {
    const label = make("span", {}, brief.format(top * part));
    label.style.bottom = `${((low + part * (height - low - 8)) / height) * 100}%`;
    labels.append(label);
  }
  const frame = make("div", { class: "frame" }, svg, labels);
  const legend = make("div", { class: "legend" }, ...lines.filter(([name]) => history[name].some((value) => value !== null)).map(([name, title, color]) =>
    make("span", { class: color, ...tip("history", name) }, title)));
  return lines.length > 1 ? [frame, legend] : [frame];
}

// Stretches of looks at which something was known.
function runs(at, values) {
  const found = [];
  let open = null;
  values.forEach((value, place) => {
    if (value === null) { open = null; return; }
    if (!open) found.push((open = []));
    open.push([at[place], value]);
  });
  return found;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value);
}

// --- changes, numbers ---------------------------------------------------------------------------------------

function showMarks() {
  $("marks").replaceChildren(...[...shown.marks].reverse().map((each) =>
    make("li", {}, make("time", {}, `${time(each.at)} UTC`), make("b", {}, each.kind), each.words)));
}

function showNumbers() {
  $("numbers").replaceChildren(...shown.numbers.map((each) => {
    const by = each.by.length > 1 ? ` (${each.by.map((one) => `${one.name} ${one.text}`).join(", ")})` : "";
    return make("div", tip("run", each.name), make("dt", {}, each.name), make("dd", {}, each.text + by));
  }));
}

// --- what is known, hovered, heard --------------------------------------------------------------------------

function showAll() {
  $("title").textContent = shown.title;
  $("where").textContent = `on ${shown.executor}`;
  showReason(shown.reason);
  showTiles();
  showSources();
  showGraph();
  showParts();
  showCharts();
  showMarks();
  showNumbers();
}

function take(look) {
  if (shown && look.number === shown.number) return;
  shown = look;
  last = [...last.slice(-4), look];
  before = last.length > 1 && last[0].phase !== "starting" ? last[0] : null;
  if (look.point && (history.at || []).at(-1) !== look.point.at) {
    for (const [name, value] of Object.entries(look.point)) (history[name] ||= []).push(value);
    if (history.at.length > 1200) for (const values of Object.values(history)) values.shift();
  }
  if (document.visibilityState === "visible") showAll();
}

function live(text, state) {
  $("live").textContent = text;
  $("live").className = state;
}

function hover() {
  const box = $("tip");
  const show = (event) => {
    const from = event.target.closest && event.target.closest("[data-tip]");
    if (!from) { box.hidden = true; return; }
    box.textContent = from.dataset.tip;
    box.hidden = false;
    const at = from.getBoundingClientRect(), own = box.getBoundingClientRect();
    box.style.left = `${Math.max(12, Math.min(at.left, innerWidth - own.width - 12))}px`;
    box.style.top = `${at.bottom + own.height + 14 < innerHeight ? at.bottom + 6 : Math.max(6, at.top - own.height - 6)}px`;
  };
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, show);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") box.hidden = true; });
}

async function begin() {
  try {
    const answer = await fetch("now", { cache: "no-store" });
    const all = await answer.json();
    history = all.history;
    meanings = all.meanings;
    shown = before = null;
    last = [];
    take(all);
  } catch {
    live("not reachable: trying again", "off");
    setTimeout(begin, 2000);
    return;
  }
  const events = new EventSource("events");
  events.onopen = () => live("live", "on");
  events.onmessage = (event) => { live("live", "on"); take(JSON.parse(event.data)); };
  events.addEventListener("end", () => { events.close(); live(`the page is served no more; this is how it stood at ${time(shown.at)} UTC`, "off"); });
  events.onerror = () => {
    events.close();
    live(`not reachable since ${time(shown.at)} UTC: trying again`, "off");
    setTimeout(begin, 2000); // a run that began anew has a history of its own
  };
}

document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible" && shown) showAll(); });
hover();
begin();
