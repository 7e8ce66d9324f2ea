// Samples of the last hour of the selected object, as the daemon keeps them.

import { signal } from "@preact/signals";
import { verb } from "./api.js";
import { problem, view } from "./live.js";

/** Time between two requests for samples, in milliseconds: the daemon takes one in this time. */
const INTERVAL = 10_000;

/**
 * Identifier of an object, and its points: times, reads, writes, bytes read, bytes written, then
 * p50 and p99 of reads and of writes in seconds. Between samples the object was idle.
 */
export const past = signal({ id: "", points: [] });

/** A row of points: rates are for each second; an idle time has no latency. */
function row(time, sample) {
  const perSecond = (value) => (sample ? (value(sample) * 1e9) / sample.span_ns : 0);
  const quantile = (op, name) => (op?.latency ? op.latency[name] / 1e9 : null);
  return [
    time,
    perSecond((one) => one.read.ops),
    perSecond((one) => one.write.ops),
    perSecond((one) => one.read.bytes),
    perSecond((one) => one.write.bytes),
    quantile(sample?.read, "p50_ns"),
    quantile(sample?.read, "p99_ns"),
    quantile(sample?.write, "p50_ns"),
    quantile(sample?.write, "p99_ns"),
  ];
}

/** Points of samples; `now`: the daemon's time in nanoseconds that is the present. */
export function pointsOf(samples, now) {
  const rows = [];
  const time = (at) => Date.now() / 1000 - Math.max(0, now - at) / 1e9;
  let end = null;
  for (const sample of samples) {
    const begin = sample.at_ns - sample.span_ns;
    if (end !== null && begin - end > 1e9) {
      rows.push(row(time(end + 1e9)), row(time(begin)));
    }
    rows.push(row(time(sample.at_ns), sample));
    end = sample.at_ns;
  }
  return rows.length === 0 ? [] : rows[0].map((_, at) => rows.map((one) => one[at]));
}

async function load(id) {
  try {
    const { rates } = await verb("rates", { object: id, samples: true });
    const now = Math.max(rates.at_ns, view.value?.uptime_ns ?? 0);
    past.value = { id, points: pointsOf(rates.samples, now) };
  } catch (error) {
    // An object that has disappeared has no samples; the view says so.
    if (error.kind !== "not_found") problem.value = error;
  }
}

/** Keeps the samples of an object current; returns the function that ends it. */
export function followPast(id) {
  load(id);
  const timer = setInterval(() => document.visibilityState === "visible" && load(id), INTERVAL);
  return () => clearInterval(timer);
}
