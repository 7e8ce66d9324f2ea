// Values of the key at the cursor: from the JSON Schema of `ashlar.toml`, and names of objects.

import { KINDS, constant, forms, resolve } from "./keys.js";

/** First line of a section or key. */
const BEGIN = /^\s*(?:\[\[?\s*\w|[\w-]+\s*=)/;
const KEY = /^\s*([\w-]+)\s*=(.*)$/s;
const HEADER = /^\s*\[\[?\s*(\w+)\s*\]\]?/;
const NAME = /^\s*name\s*=\s*["']([^"']+)["']/;

/** Keys whose values are names, and the objects that have the names. */
const NAMED = { provider: "providers", members: "providers", luns: "providers", target: "targets" };

/** The end of a value up to the cursor: its begun word and open quote; null after a comment. */
function endOf(value) {
  let quote = "";
  let start = 0;
  let depth = 0;
  for (let at = 0; at < value.length; at += 1) {
    const one = value[at];
    if (quote) {
      if (one === "\\" && quote === '"') at += 1;
      else if (one === quote) quote = "";
    } else if (one === '"' || one === "'") {
      quote = one;
      start = at + 1;
    } else if (one === "#") {
      at = value.indexOf("\n", at);
      if (at < 0) return null;
    } else if (one === "[" || one === "{") depth += 1;
    else if (one === "]" || one === "}") depth -= 1;
  }
  if (value.includes("\n") && depth <= 0) return null;
  const word = quote ? value.slice(start) : /[\w.+-]*$/.exec(value)[0];
  const head = value.slice(0, value.length - word.length - quote.length).trimEnd();
  return { quote, word, head };
}

/** The key whose value is at a place of a document, with the begun word; null if there is none. */
export function valueAt(text, cursor) {
  const before = text.slice(0, cursor).split("\n");
  const first = before.findLastIndex((line) => BEGIN.test(line));
  const found = first < 0 ? null : KEY.exec(before.slice(first).join("\n"));
  const end = found && endOf(found[2]);
  if (!end || end.word.includes("\n")) return null;
  const { quote, word, head } = end;
  // After a whole value, and before `=` in a table, there is none.
  if (head !== "" && !/[[,{=]$/.test(head)) return null;
  if (/\{[^}]*$/.test(head) && !head.endsWith("=")) return null;
  return { key: found[1], word, quote };
}

/** Values that a schema lists, each with its description. */
function listed(schema, of) {
  const one = resolve(schema, of);
  if (!one) return [];
  if (one.const !== undefined) return [{ value: one.const, text: one.description ?? "" }];
  if (one.enum) return one.enum.map((value) => ({ value, text: "" }));
  if ([one.type].flat().includes("boolean")) return [true, false].map((value) => ({ value }));
  const inner = one.oneOf ?? one.anyOf ?? (one.items ? [one.items] : []);
  return inner.flatMap((part) => listed(schema, part));
}

/** Names that a document and the graph have: of providers and of targets. */
export function namesIn(text, graph) {
  const own = { disk: [], geom: [], target: [] };
  let section = "";
  for (const line of text.split("\n")) {
    section = HEADER.exec(line)?.[1] ?? section;
    const name = NAME.exec(line)?.[1];
    if (name) own[section]?.push(name);
  }
  const nodes = graph?.nodes ?? [];
  const shown = nodes.filter(({ kind, members }) => members === 1 && kind !== "session");
  const used = [...shown, ...(graph?.edges ?? [])].map(({ name }) => name).filter(Boolean);
  return { providers: [...own.disk, ...own.geom, ...used], targets: own.target };
}

/** Values that the key at a place can have: name, description and whether it is a text. */
export function valuesAt(schema, { section, kind, key, word }, names) {
  const all = forms(schema, section);
  const own = all.find((form) => [undefined, kind].includes(constant(form)));
  const isKind = KINDS.includes(key) && all.some((form) => constant(form) !== undefined);
  const found = isKind
    ? all.map((form) => ({ value: constant(form), text: form.description ?? "" }))
    : listed(schema, own?.properties?.[key]);
  // A bus of iSCSI uses a target of another machine.
  const isRemote = section === "bus" && kind !== "local";
  const named = isRemote ? [] : (names[NAMED[key]] ?? []);
  const entries = [...found, ...named.map((value) => ({ value, text: "" }))]
    .filter(({ value }) => value !== null && value !== undefined)
    .map(({ value, text }) => ({
      name: String(value),
      text: text ?? "",
      isText: typeof value === "string",
    }));
  const isFirst = ({ name }, at) => entries.findIndex((one) => one.name === name) === at;
  return entries.filter(isFirst).filter(({ name }) => name.startsWith(word));
}

/** The document with a value in place of the begun word, and the new place of the cursor. */
export function replace(text, cursor, { word, quote }, { name, isText }) {
  const mark = quote || (isText ? '"' : "");
  const head = text.slice(0, cursor - word.length - quote.length) + mark + name + mark;
  const rest = text.slice(cursor);
  const tail = quote && rest.startsWith(quote) ? rest.slice(1) : rest;
  return { text: head + tail, cursor: head.length };
}
