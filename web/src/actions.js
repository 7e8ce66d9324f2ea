// Buttons that carry out verbs of classes, each beside the command line that does the same.

import { signal } from "@preact/signals";
import { html } from "./html.js";
import { verb } from "./api.js";
import { refresh } from "./live.js";

/** The last action, by its command line, and how it ended. */
const ended = signal({ command: "", text: "" });
const isBusy = signal(false);

/** Carries out an action; `typed` is the value of its input. */
async function carryOut(action, typed) {
  const { class: of, verb: name, command } = action;
  const params = action.input ? [`${action.input}=${typed}`] : [];
  isBusy.value = true;
  try {
    const value = { ...action.value, name: action.name };
    const { answer } = await verb("geom", { class: of, verb: name, params, value });
    ended.value = { command, text: answer.message ?? "Done." };
    await refresh();
  } catch (error) {
    const next = error.next ? ` next: ${error.next}` : "";
    ended.value = { command, text: `${error.message}${next}` };
  } finally {
    isBusy.value = false;
  }
}

function Action({ action }) {
  const { label, input, unit, command } = action;
  const send = (event) => {
    event.preventDefault();
    const typed = input ? new FormData(event.currentTarget).get(input).trim() : "";
    carryOut(action, typed);
  };
  return html`<form class="verb" onSubmit=${send}>
    ${input &&
    html`<label>${unit} <input name=${input} size="8" autocomplete="off" required /></label>`}
    <button disabled=${isBusy.value}>${label}</button>
    <code>${command}</code>
  </form>`;
}

export function Actions({ actions }) {
  const own = actions.find((one) => one.command === ended.value.command);
  return html`${actions.map((one) => html`<${Action} key=${one.label} action=${one} />`)}
    <p role="status">${own ? ended.value.text : ""}</p>`;
}
