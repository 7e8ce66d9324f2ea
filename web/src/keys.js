// Keys of the section at the cursor, from the JSON Schema of `ashlar.toml`.

/** Keys that select the kind of a section. */
export const KINDS = ["kind", "class", "driver"];
const HEADER = /^\s*\[\[?\s*(\w+)\s*\]\]?/;
const KIND = /^\s*(?:kind|class|driver)\s*=\s*["']([^"']*)["']/;

/** Section, kind and begun word at a place of a document. */
export function placeAt(text, cursor) {
  const before = text.slice(0, cursor).split("\n");
  const first = before.findLastIndex((line) => HEADER.test(line));
  const word = /^\s*([\w-]*)$/.exec(before.at(-1));
  if (first < 0) return { section: null, kind: null, word: word?.[1] ?? null };
  const rest = text.split("\n").slice(first + 1);
  const end = rest.findIndex((line) => /^\s*\[/.test(line));
  const own = end < 0 ? rest : rest.slice(0, end);
  const kind = own.map((line) => KIND.exec(line)?.[1]).find((found) => found !== undefined);
  return { section: HEADER.exec(before[first])[1], kind: kind ?? null, word: word?.[1] ?? null };
}

/** A schema with its reference replaced. */
export function resolve(schema, of) {
  const path = of?.$ref ?? of?.allOf?.[0]?.$ref;
  return path ? schema.$defs[path.replace("#/$defs/", "")] : of;
}

/** Schemas of the forms of a section, with references replaced. */
export function forms(schema, section) {
  const one = schema.properties?.[section];
  const found = resolve(schema, one?.items ?? one);
  return found?.oneOf ?? (found ? [found] : []);
}

/** The kind that a form of a section is for; undefined if it is for all. */
export const constant = (form) => KINDS.map((key) => form.properties?.[key]?.const).find(Boolean);

/** Keys that can stand at a place: name, description and whether the key is required. */
export function keysAt(schema, { section, kind, word }) {
  if (word === null) return [];
  const begins = ({ name }) => name.startsWith(word);
  if (section === null) {
    const all = Object.entries(schema.properties ?? {});
    const head = ([name, of]) => ({
      name,
      text: of.description ?? "",
      isHeader: true,
      isList: of.type === "array",
    });
    return all.map(head).filter(begins);
  }
  const all = forms(schema, section);
  const own = all.find((form) => constant(form) === undefined || constant(form) === kind);
  if (own) {
    const required = own.required ?? [];
    const keys = Object.entries(own.properties ?? {});
    const key = ([name, of]) => ({
      name,
      text: of.description ?? "",
      isRequired: required.includes(name),
    });
    return keys.map(key).filter(begins).sort((a, b) => b.isRequired - a.isRequired);
  }
  const name = KINDS.find((key) => all[0]?.properties?.[key]);
  return name ? [{ name, text: all.map(constant).join(", "), isRequired: true }] : [];
}

/** The document with a key in place of the begun word, and the new place of the cursor. */
export function insert(text, cursor, { word }, key) {
  const header = key.isList ? `[[${key.name}]]\n` : `[${key.name}]\n`;
  const head = text.slice(0, cursor - word.length) + (key.isHeader ? header : `${key.name} = `);
  return { text: head + text.slice(cursor), cursor: head.length };
}
