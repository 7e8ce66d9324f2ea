// The graph, as `drawing.rs` draws it, with rates on its edges.

import { html } from "./html.js";
import { edgeRate, go, rates } from "./live.js";
import { bytes, rateText } from "./format.js";

// As in `layout.rs`.
const WIDTH = 184;
const HEIGHT = 44;

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const link = (id) => `/?at=${encodeURIComponent(id)}`;

/** The link that unfolds a node of the same part of the graph. */
function unfolding({ find, at }, id) {
  const fields = Object.entries({ find, at, unfold: id }).filter(([, value]) => value);
  const pairs = fields.map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
  return `/?${pairs.join("&")}`;
}

/** Follows a link without loading the document again. */
export function follow(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(event.currentTarget.getAttribute("href").slice(1));
}

function Edge({ graph, edge }) {
  const from = graph.nodes[edge.from];
  const to = graph.nodes[edge.to];
  const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
  const [x2, y2] = [to.x, to.y + HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  const rate = edgeRate(graph, edge);
  const text = rateText(rate);
  const busy = rate && (rate.inFlight || rate.reads || rate.writes) ? " busy" : "";
  const totals = edge.counters
    ? `${bytes(edge.counters.read_bytes)} read, ${bytes(edge.counters.write_bytes)} written`
    : "";
  return html`<g class=${`edge${busy}`}>
    <title>${`${edge.name} ${text} ${totals}`.trim()}</title>
    <path d=${`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />
    ${busy && html`<text x=${middle} y=${(y1 + y2) / 2 - 4}>${text}</text>`}
  </g>`;
}

function Node({ node, query }) {
  const text = `${node.kind} ${node.name}, ${node.health}, ${node.about}`;
  const word = node.health === "ok" ? "" : `${node.health.toUpperCase()}: `;
  const inner = html`<title>${`${text}; ${rateText(rates.value.get(node.id))}`}</title>
    <rect x=${node.x} y=${node.y} width=${WIDTH} height=${HEIGHT} rx="4" />
    <text class="name" x=${node.x + 10} y=${node.y + 18}>${cut(node.name, 24)}</text>
    <text class="about" x=${node.x + 10} y=${node.y + 35}>
      ${cut(`${word}${node.kind}  ${node.about}`, 31)}
    </text>`;
  const kind = `node ${node.health}`;
  const to = node.members === 1 ? link(node.id) : unfolding(query, node.id);
  // Its own text names a link; a label would hide the text that is seen.
  return html`<a href=${to} class=${kind} onClick=${follow}>${inner}</a>`;
}

export function Graph({ graph, query }) {
  return html`<svg
    viewBox=${`0 0 ${graph.width} ${graph.height}`}
    width=${graph.width}
    height=${graph.height}
    role="group"
    aria-label="Graph from disks to sessions"
  >
    ${graph.edges.map((edge) => {
      const key = `${edge.from} ${edge.to}`;
      return html`<${Edge} key=${key} graph=${graph} edge=${edge} />`;
    })}
    ${graph.nodes.map((node) => html`<${Node} key=${node.id} node=${node} query=${query} />`)}
  </svg>`;
}
