// Charts of one object in the last hour: samples of the daemon, then the rates since the page was
// opened.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./html.js";
import { bytes, duration } from "./format.js";
import { history, view } from "./live.js";
import { followPast, past } from "./past.js";

const COLOURS = { read: "--read", write: "--write" };
const HIGH = [4, 3];

function series({ label, name, dash }) {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(COLOURS[name]);
  return { label, stroke: colour.trim(), width: 1.5, dash };
}

/** Times and rows of an object. Rates that the page measures itself continue the samples. */
function data(id, rows) {
  const samples = past.value.id === id ? past.value.points : [];
  const own = history.get(id) ?? [];
  const isLive = rows.every((row) => row < 5) && own.length > 0;
  const times = samples[0] ?? [];
  const first = isLive ? own[0][0] : Infinity;
  const kept = times.filter((time) => time < first).length;
  const all = (row) => {
    const before = (samples[row] ?? []).slice(0, kept);
    return isLive ? before.concat(own[row]) : before;
  };
  return [0, ...rows].map(all);
}

function Plot({ id, title, rows, lines, format }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const text = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
    const axis = { stroke: text, grid: { stroke: "#8884" }, ticks: { stroke: "#8884" } };
    const options = {
      title,
      width: place.current.clientWidth,
      height: 160,
      series: [{}, ...lines.map(series)],
      axes: [axis, { ...axis, size: 64, values: (_, all) => all.map(format) }],
    };
    plot.current = new uPlot(options, data(id, rows), place.current);
    const fit = () => plot.current.setSize({ ...options, width: place.current.clientWidth });
    const observer = new ResizeObserver(fit);
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [id]);
  const [shown, samples] = [view.value, past.value];
  useEffect(() => plot.current?.setData(data(id, rows)), [shown, samples]);
  const label = `Chart of the last hour: ${title}. The table of requests has the numbers.`;
  return html`<div ref=${place} class="plot" role="img" aria-label=${label}></div>`;
}

const RATES = [
  { label: "read", name: "read" },
  { label: "write", name: "write" },
];
const LATENCIES = [
  { label: "read p50", name: "read" },
  { label: "read p99", name: "read", dash: HIGH },
  { label: "write p50", name: "write" },
  { label: "write p99", name: "write", dash: HIGH },
];

export function Charts({ id }) {
  useEffect(() => followPast(id), [id]);
  const perSecond = (value) => `${Math.round(value)}`;
  return html`<div class="charts">
    <${Plot} key=${`${id} operations`} id=${id} title="Requests per second" rows=${[1, 2]}
      lines=${RATES} format=${perSecond} />
    <${Plot} key=${`${id} bytes`} id=${id} title="Bytes per second" rows=${[3, 4]}
      lines=${RATES} format=${bytes} />
    <${Plot} key=${`${id} latency`} id=${id} title="Latency" rows=${[5, 6, 7, 8]}
      lines=${LATENCIES} format=${duration} />
  </div>`;
}
