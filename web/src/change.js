// Editor of the configuration: plan with risks, consent by typing names, apply and undo.

import { signal } from "@preact/signals";
import { html } from "./html.js";
import { get, verb } from "./api.js";
import { Editor, mark, schema, setText, text } from "./editor.js";
import { refresh } from "./live.js";
import { Commands, Section } from "./parts.js";

/** The plan that is shown: the verb that would carry it out, its parameters and its answer. */
const plan = signal(null);
/** Typed names by name. */
const typed = signal({});
const message = signal("");
const fault = signal(null);
const isBusy = signal(false);

/** Runs one request at a time and shows how it ended. */
async function run(what) {
  if (isBusy.value) return;
  isBusy.value = true;
  fault.value = null;
  message.value = "";
  try {
    await what();
  } catch (error) {
    fault.value = error;
    if (mark(error)) document.getElementById("document")?.focus();
  } finally {
    isBusy.value = false;
  }
}

const load = () =>
  run(async () => {
    schema.value ??= await get("/v1/schema");
    setText((await verb("export", {})).document);
    plan.value = null;
  });

function show(name, params, answer) {
  plan.value = { name, params, answer };
  typed.value = {};
}

const makePlan = () =>
  run(async () => {
    const params = { document: text.value };
    show("apply", params, await verb("plan", params));
  });

const planUndo = () =>
  run(async () => show("undo", {}, await verb("undo", { dry_run: true })));

/** Names whose data the plan loses. */
function names({ answer }) {
  return [...new Set(answer.steps.flatMap((step) => step.consent_names ?? []))];
}

const carryOut = () =>
  run(async () => {
    const { name, params, answer } = plan.value;
    const all = { ...params, yes_destroy: names(plan.value) };
    if (name === "apply") all.if_generation = answer.generation;
    const done = await verb(name, all, (line) => {
      message.value = line.total ? `${line.what} (${line.done} of ${line.total})` : line.what;
    });
    plan.value = null;
    message.value = `${done.steps.length} steps done, generation ${done.generation}.`;
    if (done.waiting) message.value += ` The daemon waits for ${done.waiting} of them.`;
    setText((await verb("export", {})).document);
    refresh().catch(() => {});
  });

/** The command line that does the same as the shown plan. */
function commandLine({ name, answer }) {
  const words = name === "apply" ? ["ashlar apply new.toml"] : ["ashlar undo"];
  if (name === "apply") words.push(`--if-generation ${answer.generation}`);
  return [...words, ...names({ answer }).map((one) => `--yes-destroy ${one}`)].join(" ");
}

function Consent({ name }) {
  const change = (event) => {
    typed.value = { ...typed.value, [name]: event.currentTarget.value };
  };
  return html`<label class="consent">
    The data on <strong>${name}</strong> will be lost. Type its name:
    <input
      autocomplete="off"
      spellcheck="false"
      value=${typed.value[name] ?? ""}
      onInput=${change}
    />
  </label>`;
}

function Steps({ steps }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Steps of the plan">
    <table>
      <thead><tr><th scope="col">step</th><th scope="col">risk</th><th scope="col">hosts</th>
        <th scope="col">why</th></tr></thead>
      <tbody>${steps.map(
        (step, at) => html`<tr key=${at}>
          <td>${step.what}</td>
          <td><span class=${`risk ${step.risk}`}>${step.risk}</span></td>
          <td>${(step.hosts ?? []).join(", ")}</td>
          <td>${step.why}</td>
        </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

function Plan({ shown }) {
  const { answer } = shown;
  const refused = answer.refused ?? [];
  const all = names(shown);
  const isReady = refused.length === 0 && all.every((name) => typed.value[name] === name);
  return html`<div class="plan">
    <h3>Plan</h3>
    ${answer.notes.map((note) => html`<p key=${note}>${note}</p>`)}
    ${refused.map((why) => html`<p key=${why} class="fault">Refused: ${why}</p>`)}
    ${answer.steps.length === 0
      ? html`<p>No changes.</p>`
      : html`<${Steps} steps=${answer.steps} />
          ${all.map((name) => html`<${Consent} key=${name} name=${name} />`)}
          <button type="button" id="apply" disabled=${!isReady || isBusy.value} onClick=${carryOut}>
            ${shown.name === "apply" ? "Apply" : "Undo"}
          </button>`}
    <p>The same with the command line:</p>
    <${Commands} commands=${[commandLine(shown)]} />
  </div>`;
}

export function Fault({ error }) {
  return html`<p class="fault" role="alert">
    ${error.message}${error.next && html`<br />next: ${error.next}`}
  </p>`;
}

export function Change() {
  const edit = () => {
    plan.value = null;
    fault.value = null;
  };
  const isLoaded = text.value !== null;
  return html`<${Section} id="change" title="Change">
    <p class="buttons">
      <button type="button" id="load" onClick=${load}>Edit the configuration</button>
      ${isLoaded && html`<button type="button" id="plan" onClick=${makePlan}>Plan</button>`}
      <button type="button" id="undo" onClick=${planUndo}>Plan an undo</button>
    </p>
    ${isLoaded &&
    html`<${Editor} onEdit=${edit} />
      <p>The file on the server does not change. The same with the command line:</p>
      <${Commands} commands=${["ashlar export > new.toml", "ashlar plan new.toml"]} />`}
    ${fault.value && html`<${Fault} error=${fault.value} />`}
    <p role="status">${message}</p>
    ${plan.value && html`<${Plan} shown=${plan.value} />`}
  <//>`;
}
