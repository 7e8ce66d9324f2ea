// Builds the page into dist/, or with --check compares dist/ with a new build.

import { readFile, rm, writeFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import path from "node:path";
import { build } from "esbuild";

/** Size of script and style together, compressed by gzip, in bytes. */
const LIMIT = 60_000;

const root = path.dirname(fileURLToPath(import.meta.url));
const inRoot = (...names) => path.join(root, ...names);

async function bundle() {
  const common = {
    absWorkingDir: root,
    bundle: true,
    minify: true,
    write: false,
    legalComments: "none",
    charset: "utf8",
    logLevel: "error",
    target: ["es2022"],
  };
  const script = await build({ ...common, format: "esm", entryPoints: ["src/main.js"] });
  const style = await build({ ...common, entryPoints: ["src/style.css"] });
  const licences = await readFile(inRoot("src", "licences.txt"), "utf8");
  const head = `/*!\n${licences.trimEnd()}\n*/\n`;
  return new Map([
    ["page.js", head + script.outputFiles[0].text],
    ["page.css", style.outputFiles[0].text],
    ["icon.svg", await readFile(inRoot("src", "icon.svg"), "utf8")],
  ]);
}

const files = await bundle();
const sizes = [...files.values()].map((text) => gzipSync(text, { level: 9 }).length);
const core = sizes.reduce((sum, size) => sum + size, 0);
if (core > LIMIT) {
  console.error(`web/dist: ${core} bytes compressed, at most ${LIMIT}`);
  console.error("next: remove a library or a part of the page");
  process.exit(1);
}
if (process.argv.includes("--check")) {
  for (const [name, text] of files) {
    const committed = await readFile(inRoot("dist", name), "utf8").catch(() => "");
    if (committed !== text) {
      console.error(`web/dist/${name}: differs from a new build`);
      console.error("next: npm --prefix web ci && npm --prefix web run build");
      process.exit(1);
    }
  }
} else {
  await rm(inRoot("dist"), { recursive: true, force: true });
  await mkdir(inRoot("dist"), { recursive: true });
  for (const [name, text] of files) await writeFile(inRoot("dist", name), text);
}
console.log(`web/dist: ${core} bytes compressed`);
