// Editor of the document: completion of keys and values, and errors at their place while typing.

import { signal } from "@preact/signals";
import { html } from "./html.js";
import { verb } from "./api.js";
import { insert, keysAt, placeAt } from "./keys.js";
import { view } from "./live.js";
import { namesIn, replace, valueAt, valuesAt } from "./values.js";

/** Time without a change after which the document is checked, in milliseconds. */
const CHECK_DELAY = 800;

/** The document; null until it is loaded. */
export const text = signal(null);
/** JSON Schema of the document; null until it is loaded. */
export const schema = signal(null);
/** The error of the document as it is, if it has a place in it; otherwise null. */
const mistake = signal(null);
/** Place of the cursor in the document. */
const cursor = signal(0);
/** Number of the marked entry of the completion; -1 if none is marked. */
const chosen = signal(-1);

/** The line and column that an error names, from 1; null if it names none. */
function placeOf(error) {
  const place = /document:(\d+):(\d+)/.exec(error?.message ?? "");
  return place && { line: Number(place[1]), column: Number(place[2]) };
}

/** Shows a document, or the error of the present one. */
export function setText(value) {
  text.value = value;
  mistake.value = null;
  chosen.value = -1;
}

/** Marks the place of an error; returns whether it has one. */
export function mark(error) {
  if (!placeOf(error)) return false;
  mistake.value = error;
  return true;
}

let timer = null;
let isChecking = false;
/** The caller may ask for plans: each refused call counts as a failed login. */
let mayCheck = true;

function checkLater() {
  clearTimeout(timer);
  if (mayCheck) timer = setTimeout(check, CHECK_DELAY);
}

/** Asks for the plan of the document, whose errors name their place. */
async function check() {
  if (isChecking) return checkLater();
  const checked = text.value;
  isChecking = true;
  try {
    await verb("plan", { document: checked });
    if (text.value === checked) mistake.value = null;
  } catch (error) {
    if (error.needsToken) mayCheck = false;
    else if (text.value === checked) mark(error);
  } finally {
    isChecking = false;
  }
}

/** The entries that fit at the cursor, and the change that takes one. */
function completion() {
  if (!schema.value) return { entries: [] };
  const place = placeAt(text.value, cursor.value);
  const value = valueAt(text.value, cursor.value);
  if (value) {
    const names = namesIn(text.value, view.value?.graph);
    const entries = valuesAt(schema.value, { ...place, ...value }, names);
    const take = (entry) => replace(text.value, cursor.value, value, entry);
    return { of: `Values of ${value.key}`, entries, word: value.word, take };
  }
  const of = place.section ? `Keys of ${place.section} ${place.kind ?? ""}` : "Sections";
  const take = (entry) => insert(text.value, cursor.value, place, entry);
  return { of, entries: keysAt(schema.value, place), word: place.word ?? "", take };
}

/** Puts an entry into the document. */
function take(entry, onEdit) {
  const next = completion().take(entry);
  const area = document.getElementById("document");
  area.value = next.text;
  area.focus();
  area.setSelectionRange(next.cursor, next.cursor);
  setText(next.text);
  cursor.value = next.cursor;
  onEdit();
  checkLater();
}

/** The entries of the completion; a button or a key takes one. */
function Entries({ of, entries, onEdit }) {
  const marked = entries[chosen.value];
  const hint = marked ? `Tab inserts ${marked.name}.` : "Ctrl-Space marks an entry.";
  if (entries.length === 0) return null;
  return html`<ul class="keys" tabindex="0" aria-label=${of}>
      ${entries.map(
        (entry) => html`<li key=${entry.name} aria-current=${entry === marked}>
          <button type="button" onClick=${() => take(entry, onEdit)}>${entry.name}</button>
          ${entry.isRequired && " required"} ${entry.text}
        </li>`,
      )}
    </ul>
    <p id="hint" role="status">${hint}</p>`;
}

/** The document without its letters, with the place of the error marked. */
function Mark({ place }) {
  const lines = text.value.split("\n");
  const blank = (part) => part.replace(/[^\n\t]/g, " ");
  const own = lines[place.line - 1] ?? "";
  const start = lines.slice(0, place.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const from = start + Math.min(place.column - 1, own.length);
  const word = /^[\w."'-]+/.exec(own.slice(place.column - 1))?.[0] ?? " ";
  const rest = text.value.slice(from + word.length);
  return html`<pre aria-hidden="true">${blank(text.value.slice(0, from))}<mark
      >${blank(word)}</mark
    >${blank(rest)}</pre>`;
}

/** The editor; `onEdit` is called for each change of the document. */
export function Editor({ onEdit }) {
  const shown = completion();
  const place = placeOf(mistake.value);
  const edit = ({ currentTarget: area }) => {
    setText(area.value);
    cursor.value = area.selectionStart;
    chosen.value = completion().word ? 0 : -1;
    onEdit();
    checkLater();
  };
  const move = ({ currentTarget: area }) => {
    if (area.selectionStart === cursor.value) return;
    cursor.value = area.selectionStart;
    chosen.value = -1;
  };
  const press = (event) => {
    const { entries } = shown;
    const entry = entries[chosen.value];
    if (event.key === " " && event.ctrlKey && entries.length > 0) {
      event.preventDefault();
      chosen.value = (chosen.value + 1) % entries.length;
    } else if (event.key === "Tab" && !event.shiftKey && entry) {
      event.preventDefault();
      take(entry, onEdit);
    } else if (event.key === "Escape") {
      chosen.value = -1;
    }
  };
  const scroll = ({ currentTarget: area }) => {
    const behind = area.parentElement.querySelector("pre");
    behind?.scrollTo(area.scrollLeft, area.scrollTop);
  };
  return html`<label for="document">Configuration (ashlar.toml)</label>
    <p id="keys-help">
      Ctrl-Space marks an entry of the list, Tab inserts it, and Escape removes the mark.
    </p>
    <div class="editor">
      ${place && html`<${Mark} place=${place} />`}
      <textarea id="document" rows="24" spellcheck="false" autocapitalize="off"
        aria-invalid=${mistake.value !== null} aria-describedby="keys-help mistake"
        value=${text.value} onInput=${edit} onKeyDown=${press} onKeyUp=${move} onClick=${move}
        onScroll=${scroll}></textarea>
    </div>
    <p id="mistake" role="status" class="fault">
      ${place && `Line ${place.line}, column ${place.column}: ${mistake.value.message}`}
      ${place && mistake.value.next && ` next: ${mistake.value.next}`}
    </p>
    <${Entries} of=${shown.of} entries=${shown.entries} onEdit=${onEdit} />`;
}
