// Chart of one object since the page was opened, at most an hour.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./html.js";
import { bytes } from "./format.js";
import { history, view } from "./live.js";

const COLOURS = { read: "--read", write: "--write" };

function series(label, name) {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(COLOURS[name]);
  return { label, stroke: colour.trim(), width: 1.5 };
}

function Plot({ id, title, rows, format }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = () => [0, ...rows].map((row) => history.get(id)?.[row] ?? []);
  useEffect(() => {
    const text = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
    const axis = { stroke: text, grid: { stroke: "#8884" }, ticks: { stroke: "#8884" } };
    const options = {
      title,
      width: place.current.clientWidth,
      height: 160,
      series: [{}, series("read", "read"), series("write", "write")],
      axes: [axis, { ...axis, size: 64, values: (_, all) => all.map(format) }],
    };
    plot.current = new uPlot(options, data(), place.current);
    const fit = () => plot.current.setSize({ ...options, width: place.current.clientWidth });
    const observer = new ResizeObserver(fit);
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [id]);
  const shown = view.value;
  useEffect(() => plot.current?.setData(data()), [shown]);
  return html`<div ref=${place} class="plot" role="img" aria-label=${`Chart: ${title}`}></div>`;
}

export function Charts({ id }) {
  const perSecond = (value) => `${Math.round(value)}`;
  return html`<div class="charts">
    <${Plot} key=${`${id} operations`} id=${id} title="Requests per second" rows=${[1, 2]}
      format=${perSecond} />
    <${Plot} key=${`${id} bytes`} id=${id} title="Bytes per second" rows=${[3, 4]}
      format=${bytes} />
  </div>`;
}
