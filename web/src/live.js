// The view of the daemon, kept current: events of its journal, and a new view every two seconds.

import { signal } from "@preact/signals";
import { Refusal, get, lines, request } from "./api.js";

/** Time between two views, in milliseconds; longer if the daemon needs long for one. */
const INTERVAL = 2000;
/** Pause after a failed request, in milliseconds. */
const RETRY = 3000;
/** Views kept for charts: an hour. */
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

/** Loads a new view. */
export async function refresh() {
  const asked = path();
  const now = await get(asked);
  // The reader has gone elsewhere meanwhile.
  if (asked !== path()) return;
  const found = ratesBetween(view.value, now);
  found.forEach((rate, id) => remember(id, rate));
  if (found.size > 0 || view.value === null) rates.value = found;
  view.value = now;
  problem.value = null;
}

const pause = (time) => new Promise((done) => setTimeout(done, time));

/** Replaces the view for as long as the page is open. */
async function poll() {
  for (;;) {
    const began = Date.now();
    try {
      if (document.visibilityState === "visible") await refresh();
    } catch (error) {
      problem.value = error;
      await pause(RETRY);
    }
    // The page takes at most a tenth of the time of the daemon's control thread.
    await pause(Math.max(INTERVAL, 9 * (Date.now() - began)));
  }
}

/** Follows the journal from the last known event, and loads a new view after each batch. */
async function follow() {
  let last = 0;
  for (;;) {
    try {
      last = Math.min(last || Infinity, view.value?.last_event ?? 0);
      const answer = await request("/v1/events", { headers: { "last-event-id": `${last}` } });
      let timer = null;
      for await (const line of lines(answer)) {
        if (line.startsWith("id: ")) last = Number(line.slice(4));
        if (line === "") timer ??= setTimeout(() => (timer = null, refresh().catch(() => {})), 200);
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
  refresh()
    .catch((error) => (problem.value = error))
    .finally(() => {
      poll();
      follow();
    });
}
