// The view of the daemon, kept current: after events of its journal, and at the pace of `pace.js`.

import { signal } from "@preact/signals";
import { Refusal, lines, request } from "./api.js";
import { costOf, dueAfter } from "./pace.js";

/** Pause after a failed request, in milliseconds. */
const RETRY = 3000;
/** Views kept for charts: an hour at the fastest pace. */
const HISTORY = 1800;

/** The newest view; null before the first one. */
export const view = signal(null);
/** Rates of nodes by identifier and of edges by the identifiers of both ends. */
export const rates = signal(new Map());
/** The last problem with the daemon; null while it answers. */
export const problem = signal(null);

/** Points of the charts by identifier: times, reads, writes, bytes read, bytes written. */
export const history = new Map();

const edgeKey = (graph, edge) => `${graph.nodes[edge.from].id} ${graph.nodes[edge.to].id}`;

/** Counters of a view by identifier. */
function counters(shown) {
  const all = new Map();
  for (const node of shown.graph.nodes) all.set(node.id, node.counters);
  for (const edge of shown.graph.edges) {
    if (edge.counters) all.set(edgeKey(shown.graph, edge), edge.counters);
  }
  return all;
}

/** The rate of an edge. */
export function edgeRate(graph, edge) {
  return rates.value.get(edgeKey(graph, edge));
}

function difference(before, now, seconds) {
  const perSecond = (key) => Math.max(0, now[key] - before[key]) / seconds;
  return {
    reads: perSecond("reads"),
    writes: perSecond("writes"),
    readBytes: perSecond("read_bytes"),
    writeBytes: perSecond("write_bytes"),
    inFlight: now.in_flight,
  };
}

function remember(id, rate) {
  const points = history.get(id) ?? [[], [], [], [], []];
  history.set(id, points);
  const values = [Date.now() / 1000, rate.reads, rate.writes, rate.readBytes, rate.writeBytes];
  values.forEach((value, at) => {
    points[at].push(value);
    if (points[at].length > HISTORY) points[at].shift();
  });
}

/** Rates between two views of one daemon; none after its restart. */
export function ratesBetween(before, now) {
  const found = new Map();
  const seconds = before ? (now.uptime_ns - before.uptime_ns) / 1e9 : 0;
  if (seconds <= 0) return found;
  const earlier = counters(before);
  for (const [id, own] of counters(now)) {
    if (earlier.has(id)) found.set(id, difference(earlier.get(id), own, seconds));
  }
  return found;
}

/** Path of the view that the address of the page selects. */
function path() {
  return `/v1/view${location.search}`;
}

/** End of the last view and the daemon's time for it, in milliseconds. */
let last = { end: 0, cost: 0 };
/** Time of the first event since the last view was requested; null if there is none. */
let eventAt = null;

/** Loads a new view. */
export async function refresh() {
  const asked = path();
  const began = Date.now();
  eventAt = null;
  const answer = await request(asked);
  const now = await answer.json();
  const end = Date.now();
  last = { end, cost: costOf(answer.headers.get("server-timing"), end - began) };
  // The reader has gone elsewhere meanwhile.
  if (asked !== path()) return;
  const found = ratesBetween(view.value, now);
  found.forEach((rate, id) => remember(id, rate));
  if (found.size > 0 || view.value === null) rates.value = found;
  view.value = now;
  problem.value = null;
}

/** Waits for a login if the daemon asks for one: each request until then is a failed login. */
function known() {
  return new Promise((done) => {
    const end = problem.subscribe((error) => {
      if (error?.needsToken) return;
      done();
      queueMicrotask(() => end());
    });
  });
}

const pause = (time) => new Promise((done) => setTimeout(done, time));

let timer = null;
let isLoading = false;

/** Time until the next view. */
const left = () => dueAfter(last, eventAt, document.visibilityState === "hidden") - Date.now();

/** Plans the next view; while one is loaded, its end does so. */
function plan() {
  if (isLoading) return;
  clearTimeout(timer);
  timer = setTimeout(poll, Math.max(0, left()));
}

/** Replaces the view if it is due, and plans the next one. */
async function poll() {
  // The reader may have loaded one meanwhile.
  if (left() <= 0) {
    isLoading = true;
    await known();
    try {
      await refresh();
    } catch (error) {
      problem.value = error;
      await pause(RETRY);
      last = { end: Date.now(), cost: 0 };
    }
    isLoading = false;
  }
  plan();
}

/** Follows the journal from the last known event; events make the next view due earlier. */
async function follow() {
  let seen = 0;
  for (;;) {
    await known();
    try {
      seen = Math.min(seen || Infinity, view.value?.last_event ?? 0);
      const answer = await request("/v1/events", { headers: { "last-event-id": `${seen}` } });
      for await (const line of lines(answer)) {
        if (line.startsWith("id: ")) seen = Number(line.slice(4));
        if (line !== "") continue;
        eventAt ??= Date.now();
        plan();
      }
    } catch (error) {
      if (error instanceof Refusal) problem.value = error;
    }
    await pause(RETRY);
  }
}

/** Goes to another object or search without loading the document again. */
export function go(search) {
  window.history.pushState(null, "", search || "/");
  refresh().catch((error) => (problem.value = error));
}

/** Starts all of it. */
export function start() {
  window.addEventListener("popstate", () => refresh().catch(() => {}));
  document.addEventListener("visibilitychange", plan);
  refresh()
    .catch((error) => (problem.value = error))
    .finally(() => {
      poll();
      follow();
    });
}
