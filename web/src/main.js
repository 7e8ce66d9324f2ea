// Page of the daemon: replaces the contents that the daemon rendered by live ones.

import { render } from "preact";
import { html } from "./html.js";
import { logIn } from "./api.js";
import { Change, Fault } from "./change.js";
import { problem, refresh, start, view } from "./live.js";
import { Detail, GraphPart, Section, Status, Table } from "./parts.js";

/** Asks for the token of a caller whom the daemon does not know. */
function Token({ error }) {
  const send = (event) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget).get("token").trim();
    logIn(token).then(refresh).catch((refused) => (problem.value = refused));
  };
  return html`<${Section} id="status" title="No access">
    <${Fault} error=${error} />
    <form id="token" onSubmit=${send}>
      <label>Token <input type="password" name="token" autocomplete="off" required /></label>
      <button>Log in</button>
    </form>
  <//>`;
}

function App() {
  const error = problem.value;
  if (error?.needsToken) return html`<${Token} error=${error} />`;
  const shown = view.value;
  if (!shown) return error && html`<${Fault} error=${error} />`;
  const { status, detail, graph, query, tables } = shown;
  const lost = query.at && !detail;
  const late = error && new Error(`The daemon does not answer: ${error.message}`);
  return html`
    ${late && html`<${Fault} error=${late} />`}
    <${Status} status=${status} />
    ${detail && html`<${Detail} detail=${detail} />`}
    ${lost && html`<p role="alert">${query.at}: no object has this identifier.</p>`}
    <${GraphPart} key=${query.find} graph=${graph} query=${query} />
    ${tables.map((table) => html`<${Table} key=${table.id} table=${table} />`)}
    <${Change} />
  `;
}

const main = document.getElementById("main");
let isReplaced = false;

/** The rendered contents stay until the first live view, or the first refusal, is here. */
function replace() {
  if (isReplaced || (view.value === null && problem.value === null)) return;
  isReplaced = true;
  main.replaceChildren();
  render(html`<${App} />`, main);
}

view.subscribe(replace);
problem.subscribe(replace);
view.subscribe((shown) => {
  if (shown) document.title = `Ashlar: ${shown.status.health}`;
});
start();
