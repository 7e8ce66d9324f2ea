// Parts of the page that show the view: status, lists and the detail of an object.

import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { Actions } from "./actions.js";
import { Charts } from "./chart.js";
import { Graph, follow, link } from "./graph.js";
import { go } from "./live.js";

export function Section({ id, title, children }) {
  return html`<section aria-labelledby=${id}><h2 id=${id}>${title}</h2>${children}</section>`;
}

const Health = ({ health, text }) =>
  html`<span class=${`health ${health}`}>${text ?? health}</span>`;

export function Commands({ commands }) {
  return html`<ul class="commands">
    ${commands.map((command) => html`<li key=${command}><code>${command}</code></li>`)}
  </ul>`;
}

export function Status({ status }) {
  return html`<${Section} id="status" title="Status">
    <p class="summary" role="status">
      <${Health} health=${status.health} />${status.starting && " The daemon starts."}
    </p>
    <p>${status.daemon}</p>
    <p>${status.serves}</p>
    ${status.findings.length === 0
      ? html`<p>No problems.</p>`
      : html`<ul class="findings">
          ${status.findings.map(
            (one) => html`<li key=${`${one.at} ${one.why}`}>
              <${Health} health=${one.health} /><strong>${one.at}</strong>
              <span class="why">${one.why}</span><span class="action">${one.action}</span>
              <code>${one.see}</code>
            </li>`,
          )}
        </ul>`}
  <//>`;
}

export function GraphPart({ graph, query }) {
  const search = (event) => {
    event.preventDefault();
    const find = new FormData(event.currentTarget).get("find").trim();
    go(find ? `?find=${encodeURIComponent(find)}` : "");
  };
  const some = graph.drawn < graph.total ? ": those above and below the selected ones" : "";
  return html`<${Section} id="graph" title="Graph">
    <form method="get" action="/" role="search" onSubmit=${search}>
      <label>Search <input type="search" name="find" defaultValue=${query.find} /></label>
      <button>Search</button>
      <a href="/" onClick=${follow}>Show all</a>
    </form>
    <p>${graph.drawn} of ${graph.total} objects${some}</p>
    <div class="graph" tabindex="0" role="group" aria-labelledby="graph">
      <${Graph} graph=${graph} query=${query} />
    </div>
  <//>`;
}

function Cell({ cell }) {
  let text = cell.text;
  if (cell.at) text = html`<a href=${link(cell.at)} onClick=${follow}>${cell.text}</a>`;
  else if (cell.health) text = html`<${Health} health=${cell.health} text=${cell.text} />`;
  const progress =
    cell.percent !== undefined && html`<progress max="100" value=${cell.percent}></progress>`;
  const actions = cell.actions && html`<${Actions} actions=${cell.actions} />`;
  return html`${text}${progress}${actions}`;
}

const side = (column) => (column.startsWith(">") ? "number" : "word");

export function Table({ table }) {
  const { id, title, columns, rows, total } = table;
  if (rows.length === 0) {
    return html`<${Section} id=${id} title=${title}><p>${table.empty}</p><//>`;
  }
  const head = (name) =>
    html`<th key=${name} scope="col" class=${side(name)}>${name.replace(/^>/, "")}</th>`;
  const data = (cell, n) =>
    html`<td key=${n} class=${side(columns[n])}><${Cell} cell=${cell} /></td>`;
  const row = (cells, at) => html`<tr key=${at}>${cells.map(data)}</tr>`;
  return html`<${Section} id=${id} title=${title}>
    ${total > rows.length && html`<p>${rows.length} of ${total}; search to see others.</p>`}
    <div class="scroll" tabindex="0" role="group" aria-labelledby=${id}>
      <table>
        <thead><tr>${columns.map(head)}</tr></thead>
        <tbody>${rows.map(row)}</tbody>
      </table>
    </div>
  <//>`;
}

export function Detail({ detail }) {
  const title = useRef(null);
  // The keyboard continues at the object that was selected.
  useEffect(() => title.current.focus(), [detail.id]);
  return html`<article class="detail" aria-labelledby="detail">
    <h2 id="detail" tabindex="-1" ref=${title}>${detail.title}</h2>
    <p><${Health} health=${detail.health} /> ${detail.why}</p>
    ${detail.has_rates && html`<${Charts} key=${detail.id} id=${detail.id} />`}
    <h3>Commands</h3>
    <${Commands} commands=${detail.commands} />
    ${detail.actions && html`<${Actions} actions=${detail.actions} />`}
    ${detail.tables.map((table) => html`<${Table} key=${table.id} table=${table} />`)}
  </article>`;
}
