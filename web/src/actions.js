// Buttons that carry out verbs, each beside the command line that does the same.

import { signal } from "@preact/signals";
import { html } from "./html.js";
import { verb } from "./api.js";
import { refresh } from "./live.js";

/** The last action, by its command line, and how it ended. */
const ended = signal({ command: "", text: "" });
/** Command line of the refused action that the reader may confirm; empty if there is none. */
const asked = signal("");
const isBusy = signal(false);

/** The verb of the API that an action means, and its parameters. */
function requestOf(action, typed, isConfirmed) {
  const { class: of, verb: name, input, confirm } = action;
  const value = { ...action.value };
  if (isConfirmed && confirm) value[confirm] = true;
  if (!of) return [name, value];
  if (action.is_list) value[input] = [typed];
  const params = input && !action.is_list ? [`${input}=${typed}`] : [];
  return ["geom", { class: of, verb: name, params, value: { ...value, name: action.name } }];
}

/** Carries out an action; `typed` is the value of its input. */
async function carryOut(action, typed) {
  const { command, confirm, ask } = action;
  const isConfirmed = asked.value === command;
  if (ask && !isConfirmed) {
    asked.value = command;
    ended.value = { command, text: ask };
    return;
  }
  asked.value = "";
  isBusy.value = true;
  try {
    const answer = await verb(...requestOf(action, typed, isConfirmed));
    ended.value = { command, text: answer.answer?.message ?? answer.note ?? "Done." };
    await refresh();
  } catch (error) {
    const next = error.next ? ` next: ${error.next}` : "";
    if (confirm && !isConfirmed && error.kind === "usage") asked.value = command;
    ended.value = { command, text: `${error.message}${next}` };
  } finally {
    isBusy.value = false;
  }
}

function Action({ action }) {
  const { label, input, unit, command, confirm } = action;
  const isAsked = asked.value === command;
  const send = (event) => {
    event.preventDefault();
    const typed = input ? new FormData(event.currentTarget).get(input).trim() : "";
    carryOut(action, typed);
  };
  return html`<form class="verb" onSubmit=${send}>
    ${input &&
    html`<label>${unit} <input name=${input} size="8" autocomplete="off" required /></label>`}
    <button disabled=${isBusy.value}>${isAsked ? `${label} anyway` : label}</button>
    <code>${isAsked && confirm ? `${command} --${confirm}` : command}</code>
  </form>`;
}

export function Actions({ actions }) {
  const own = actions.find((one) => one.command === ended.value.command);
  return html`${actions.map((one) => html`<${Action} key=${one.label} action=${one} />`)}
    <p role="status">${own ? ended.value.text : ""}</p>`;
}
