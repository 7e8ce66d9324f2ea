// Test of the page in headless Chromium.
//
//   node test/page.mjs --socket PATH --network URL --token TOKEN [--screenshots FOLDER]
//   node test/page.mjs --url URL --token TOKEN [--screenshots FOLDER]
//
// With a certificate of an own CA, name the CA in NODE_EXTRA_CA_CERTS.
// The daemon must have a disk `d0`, a bus, a webhook, a LUN with a medium that can be ejected and
// with a registration, one session that uses it, and a file server `main`, in which the test makes
// users and dumps. The test ends the session and the registration. It adds disks `page1` to `page3`
// and `page9` and a mirror `pages`, and removes them again.
// With --socket, the test serves the Unix socket on a port of 127.0.0.1. --network is the address
// of the same daemon's API over TCP, where the test logs in. The token has the role admin.

import { readFile } from "node:fs/promises";
import http from "node:http";
import path from "node:path";
import { parseArgs } from "node:util";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";
import { placeAt } from "../src/keys.js";
import { costOf, dueAfter } from "../src/pace.js";
import { namesIn, replace, valueAt, valuesAt } from "../src/values.js";

const { values: options } = parseArgs({
  options: {
    socket: { type: "string" },
    network: { type: "string" },
    url: { type: "string" },
    token: { type: "string" },
    screenshots: { type: "string" },
  },
});

/** Longest wait for a change to be shown, in milliseconds. */
const LIMIT = 20_000;
/** Width of a small phone, in pixels. */
const PHONE = 360;
/** Width of a wall display, in pixels. */
const WALL = 2560;
const DISK = '\n[[disk]]\nname = "page9"\nkind = "memory"\nsize = "8MiB"\n';

/** Disks of the mirror `pages`. */
const MEMBERS = ["page1", "page2", "page3"]
  .map((name) => `\n[[disk]]\nname = "${name}"\nkind = "memory"\nsize = "8MiB"\n`)
  .join("");

/** Streams of events that pass the test, and calls that wait for the next one. */
const streams = { open: new Set(), waiting: [] };

/** The number after which the next stream of events begins. */
const nextStream = () => new Promise((done) => streams.waiting.push(done));

/** Serves the Unix socket over TCP. */
async function forward(socketPath) {
  const server = http.createServer((request, response) => {
    const { method, headers, url } = request;
    if (url.startsWith("/v1/events")) {
      streams.open.add(response);
      response.on("close", () => streams.open.delete(response));
      streams.waiting.splice(0).forEach((done) => done(Number(headers["last-event-id"])));
    }
    const passed = http.request({ socketPath, path: url, method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    request.pipe(passed);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return `http://127.0.0.1:${server.address().port}/`;
}

function check(condition, what) {
  if (!condition) throw new Error(`failed: ${what}`);
  console.log(`ok ${what}`);
}

async function axe(page, what) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const found = violations.map((one) => `${one.id}: ${one.nodes[0]?.html}`);
  check(found.length === 0, `${what}: axe-core reports no violation ${found.join("; ")}`);
}

/** Checks a page in both colour schemes. */
async function axeInBoth(page, what) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await axe(page, `${what}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

/** Checks that a page needs no horizontal scrolling at a width. */
async function fits(page, width, what) {
  const before = page.viewportSize();
  await page.setViewportSize({ width, height: 800 });
  const used = await page.evaluate(() => document.documentElement.scrollWidth);
  check(used <= width, `${what} is ${used} pixels wide at ${width}`);
  await page.setViewportSize(before);
}

async function screenshot(page, name) {
  if (!options.screenshots) return;
  const file = path.join(options.screenshots, `page-${name}.png`);
  await page.screenshot({ path: file, fullPage: true });
}

/** Runs a verb without the page. */
async function verb(url, name, params) {
  const answer = await fetch(new URL(`/v1/verbs/${name}`, url), {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${options.token}` },
    body: JSON.stringify(params),
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(`${name}: ${JSON.stringify(body)}`);
  return body;
}

/** Times of views, in milliseconds. */
function pace() {
  const due = (cost, eventAt, isHidden) => dueAfter({ end: 1000, cost }, eventAt, isHidden) - 1000;
  const plain = [1, 50, 5000].map((cost) => due(cost, null, false));
  check(plain.join() === "2000,5000,60000", `views take a hundredth of the time: ${plain}`);
  const after = [1, 300, 5000].map((cost) => due(cost, 1500, false));
  check(after.join() === "700,3000,50000", `views after events take a tenth: ${after}`);
  check(due(1, 5000, false) === 2000, "an event does not delay a view");
  const hidden = [due(1, null, true), due(1, 1500, true)];
  check(hidden.join() === "60000,60000", `a hidden tab has a view each minute: ${hidden}`);
  const costs = [costOf("view;dur=12.345", 90), costOf("view", 90), costOf(null, 90)];
  check(costs.join() === "12.345,90,90", `time of an answer: ${costs}`);
}

/** Completion of values, from a small schema. */
function values() {
  const kind = (name) => ({
    properties: {
      kind: { const: name },
      mode: { $ref: "#/$defs/Mode" },
      create: { type: "boolean" },
      members: { type: "array", items: { type: "string" } },
    },
  });
  const schema = {
    properties: {
      disk: { type: "array", items: { oneOf: [kind("file"), kind("memory")] } },
      access: { items: { properties: { luns: {}, target: { type: "string" } } } },
    },
    $defs: { Mode: { oneOf: [{ const: "ro" }, { const: "rw" }] } },
  };
  const graph = { nodes: [{ kind: "disk", name: "live", members: 1 }], edges: [] };
  const completed = (text) => {
    const value = valueAt(text, text.length);
    if (!value) return null;
    const place = { ...placeAt(text, text.length), ...value };
    const entries = valuesAt(schema, place, namesIn(text, graph));
    return entries.map((entry) => replace(text, text.length, value, entry).text.split("\n").at(-1));
  };
  const named = '[[disk]]\nname = "d0"\nkind = "file"\n';
  const target = '[[target]]\nname = "iqn.a:t"\n[[access]]\n';
  for (const [text, expected] of [
    ["[[disk]]\nkind = ", ['kind = "file"', 'kind = "memory"']],
    ['[[disk]]\nkind = "m', ['kind = "memory"']],
    [`${named}create = t`, ["create = true"]],
    [`${named}mode = 'r`, ["mode = 'ro'", "mode = 'rw'"]],
    [`${named}members = ["d`, ['members = ["d0"']],
    [`${named}members = [\n  "d0", l`, ['  "d0", "live"']],
    [`${named}mode = "ro" `, null],
    [`${named}mode = "ro"\ncreate`, null],
    [`${named}create = # t`, null],
    [`${target}target = i`, ['target = "iqn.a:t"']],
    [`${named}${target}luns = { 0 = "d`, ['luns = { 0 = "d0"']],
    [`${named}${target}luns = { 0 = "d0", `, null],
  ]) {
    const found = completed(text);
    check(JSON.stringify(found) === JSON.stringify(expected), `values after ${text}: ${found}`);
  }
}

/** An answer of the daemon has the time that it needed. */
async function timing(url) {
  const headers = { authorization: `Bearer ${options.token}` };
  const answer = await fetch(new URL("/v1/view", url), { headers });
  const cost = costOf(answer.headers.get("server-timing"), NaN);
  check(cost > 0, `the daemon needed ${cost} ms for a view`);
}

const node = (page, id) => page.locator(`svg a[href="/?at=${encodeURIComponent(id)}"]`);

async function withoutScript(browser, url) {
  const context = await browser.newContext({
    javaScriptEnabled: false,
    ignoreHTTPSErrors: true,
    extraHTTPHeaders: { authorization: `Bearer ${options.token}` },
  });
  const page = await context.newPage();
  const answer = await page.goto(url);
  const policy = answer.headers()["content-security-policy"] ?? "";
  check(policy.startsWith("default-src 'none'"), "policy allows nothing by default");
  check((await node(page, "disk:d0").count()) === 1, "graph without a script");
  check((await page.locator("h2#luns + div table tbody tr").count()) > 0, "LUNs without a script");
  await node(page, "disk:d0").click();
  check((await page.locator("#detail").textContent()) === "disk d0", "detail without a script");
  const charts = page.locator("figure svg[role=img]");
  check((await charts.count()) === 3, "three charts of the last hour without a script");
  const label = await charts.first().getAttribute("aria-label");
  check(label.startsWith("Requests per second of the last hour: read "), `text: ${label}`);
  const percentiles = page.locator("h2#hour + div table thead th:text-is('p99')");
  check((await percentiles.count()) === 1, "percentiles of the last hour without a script");
  await page.fill("input[name=find]", "no such name");
  await page.click("form[role=search] button");
  check((await page.locator("svg a").count()) === 0, "search without a script");
  await page.click('nav a:text-is("Access matrix")');
  check((await page.locator('table td:text-is("0 rw")').count()) === 1, "access matrix");
  await axeWithoutScript(browser, page.url(), "access matrix");
  await fits(page, PHONE, "access matrix");
  await page.fill("input[name=initiator]", "iqn.2026-11.org.example:host");
  await page.click("form button");
  check((await page.locator("h2#check").count()) === 1, "LUNs of an initiator");
  await axeWithoutScript(browser, page.url(), "LUNs of an initiator");
  await fits(page, PHONE, "LUNs of an initiator");
  await context.close();
}

/** Runs a verb of the file server to its end. */
const fs = (url, name, params) =>
  verb(url, "geom", { class: "fs", verb: name, value: { name: "main", ...params } });

/** Pages of files, without a script. */
async function files(browser, url) {
  await fs(url, "newuser", { user: "rob" });
  await fs(url, "dump", {});
  await fs(url, "newuser", { user: "ken" });
  const context = await browser.newContext({
    javaScriptEnabled: false,
    ignoreHTTPSErrors: true,
    extraHTTPHeaders: { authorization: `Bearer ${options.token}` },
  });
  const page = await context.newPage();
  await page.goto(url);
  await page.click('nav a:text-is("Files")');
  await page.click('ul a:text-is("main")');
  const day = page.locator('table a[href^="/files/folder"]');
  check((await day.count()) === 1, "calendar has the dump");
  await axeWithoutScript(browser, page.url(), "calendar");
  await screenshot(page, "files-calendar");
  await day.click();
  await page.click('td a:text-is("adm/")');
  check((await page.locator("h2#folder").textContent()).includes("/dump/"), "folder of a dump");
  await axeWithoutScript(browser, page.url(), "folder");
  await page.click('td a:text-is("users")');
  check((await page.locator("table tbody tr").count()) === 2, "versions of a file");
  await axeWithoutScript(browser, page.url(), "versions");
  const [download] = await Promise.all([
    page.waitForEvent("download", { timeout: LIMIT }),
    page.locator('td a:text-is("Download")').first().click(),
  ]);
  const saved = await readFile(await download.path(), "utf8");
  check(download.suggestedFilename() === "users" && saved.includes("ken"), "download of a file");
  await page.click('td a:text-is("Compare with the older one")');
  check((await page.locator("pre").textContent()).includes("ken"), "comparison of two versions");
  await axeWithoutScript(browser, page.url(), "comparison");
  await screenshot(page, "files-comparison");
  await fits(page, PHONE, "comparison");
  await context.close();
}

/** Checks a page that has no script of its own, in a browser that runs that of axe-core. */
async function axeWithoutScript(browser, url, what) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    extraHTTPHeaders: { authorization: `Bearer ${options.token}` },
  });
  const page = await context.newPage();
  await page.goto(url);
  await axe(page, what);
  await context.close();
}

/** The token form, the session that it begins, and its end. */
async function login(browser, url) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto(url);
  // The form of the script has no method.
  await page.locator("#token:not([method])").waitFor({ timeout: LIMIT });
  check((await page.locator("svg").count()) === 0, "no graph without a token");
  await axeInBoth(page, "token form");
  await page.fill("input[name=token]", "wrong");
  await page.click("#token button");
  await page.locator("[role=alert]:has-text('not valid')").waitFor({ timeout: LIMIT });
  await page.fill("input[name=token]", options.token);
  await page.keyboard.press("Enter");
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  check(true, "graph with a token");
  const cookies = await context.cookies();
  const [cookie] = cookies;
  const isStrict = cookies.length === 1 && cookie.httpOnly && cookie.sameSite === "Strict";
  check(isStrict && !cookie.value.includes(options.token), "the session has a cookie of its own");
  check((await page.evaluate(() => document.cookie)) === "", "no script reads the cookie");
  await page.click('nav a:text-is("Files")');
  await page.locator('ul a:text-is("main")').waitFor({ timeout: LIMIT });
  await page.click('nav a:text-is("Log in")');
  await axe(page, "login");
  const logout = page.locator('button:text-is("Log out")');
  await logout.click();
  await logout.waitFor({ state: "detached", timeout: LIMIT });
  await page.goto(url);
  await page.locator("#token").waitFor({ timeout: LIMIT });
  check((await context.cookies()).length === 0, "the logout ends the session");
  await context.close();
  await loginWithoutScript(browser, url);
}

async function loginWithoutScript(browser, url) {
  const context = await browser.newContext({ javaScriptEnabled: false, ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto(new URL("/access?find=d0", url).href);
  await page.fill("input[name=token]", options.token);
  await page.click("#token button");
  await page.locator('table td:text-is("0 rw")').waitFor({ timeout: LIMIT });
  check(page.url().endsWith("/access?find=d0"), `the login leads to the page: ${page.url()}`);
  await context.close();
}

/** A context whose pages have the token. */
function knownContext(browser, more) {
  const extraHTTPHeaders = { authorization: `Bearer ${options.token}` };
  return browser.newContext({ ignoreHTTPSErrors: true, extraHTTPHeaders, ...more });
}

/** Opens the detail of an object. */
async function opens(page, url, id) {
  await page.goto(new URL(`/?at=${encodeURIComponent(id)}`, url).href);
  await page.locator("#detail").waitFor({ timeout: LIMIT });
  await axeInBoth(page, `detail of ${id}`);
}

/** Details of the objects that are no nodes of the graph. */
async function details(browser, url) {
  const headers = { authorization: `Bearer ${options.token}` };
  const shown = await (await fetch(new URL("/v1/view", url), { headers })).json();
  const cells = shown.tables.flatMap((table) => table.rows.flat());
  const ids = cells.map((cell) => cell.at).filter(Boolean);
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  for (const kind of ["target", "group", "core", "bus", "listener", "webhook"]) {
    const id = ids.find((one) => one.startsWith(`${kind}:`));
    check(id !== undefined, `a list leads to a ${kind}`);
    await opens(page, url, id);
  }
  await context.close();
}

/** Ends the session after the refusal that names its risk. */
async function sessions(browser, url) {
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  await page.goto(url);
  const row = page.locator("h2#sessions + div table tbody tr");
  const end = (label) => row.locator(`button:text-is("${label}")`);
  await end("End").waitFor({ timeout: LIMIT });
  check((await page.locator("h2#cores + div table tbody tr").count()) > 0, "cores are listed");
  await axeInBoth(page, "sessions");
  await fits(page, PHONE, "sessions");
  const initiator = await row.locator("a").first().textContent();
  await opens(page, url, `initiator:${initiator}`);
  await page.goto(url);
  await end("End").click();
  await end("End anyway").waitFor({ timeout: LIMIT });
  const asked = await row.textContent();
  check(asked.includes("disruptive") && asked.includes("--yes"), `risk of the end: ${asked}`);
  await screenshot(page, "sessions");
  await end("End anyway").click();
  await row.waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the page ends a session");
  await context.close();
}

async function looks(browser, url, colorScheme) {
  const context = await knownContext(browser, { colorScheme });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (line) => line.type() === "error" && faults.push(line.text()));
  await page.goto(url);
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  await axe(page, `status, ${colorScheme}`);
  await fits(page, PHONE, `status with tables, ${colorScheme}`);
  await screenshot(page, `status-${colorScheme}`);
  await node(page, "disk:d0").focus();
  await page.keyboard.press("Enter");
  await page.locator(".uplot").nth(2).waitFor({ timeout: LIMIT });
  const titles = await page.locator(".uplot .u-title").allTextContents();
  check(titles.join() === "Requests per second,Bytes per second,Latency", `charts: ${titles}`);
  check((await page.locator("h2#hour").count()) === 1, "table of the last hour with a script");
  await axe(page, `detail, ${colorScheme}`);
  await screenshot(page, `detail-${colorScheme}`);
  await fits(page, PHONE, `detail, ${colorScheme}`);
  check(faults.length === 0, `no faults ${faults.join("; ")}`);
  await context.close();
}

/** A wall display has tables side by side. */
async function wall(browser, url) {
  const context = await knownContext(browser, { viewport: { width: WALL, height: 1440 } });
  const page = await context.newPage();
  await page.goto(url);
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  const top = async (id) => (await page.locator(`h2#${id}`).boundingBox()).y;
  check((await top("luns")) === (await top("access")), "tables are side by side");
  await fits(page, WALL, "status");
  await axe(page, "wall display");
  await screenshot(page, "wall");
  await context.close();
}

/** The page by the keyboard alone. */
async function keyboard(browser, url) {
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  await page.goto(url);
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  await page.keyboard.press("Tab");
  check((await focused()) === "Skip to the contents", `first stop: ${await focused()}`);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  const isInside = await page.evaluate(() => document.activeElement.closest("main") !== null);
  check(isInside, "the first link leads into the contents");
  await page.locator("input[name=find]").focus();
  await page.keyboard.type("d0");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/?find=d0", { timeout: LIMIT });
  await node(page, "disk:d0").focus();
  await page.keyboard.press("Enter");
  await page.locator("h2#detail:focus").waitFor({ timeout: LIMIT });
  const title = await focused();
  check(title === "disk d0", `the keyboard continues at the detail: ${title}`);
  await page.goBack();
  await page.locator("h2#detail").waitFor({ state: "detached", timeout: LIMIT });
  check(page.url().endsWith("?find=d0"), "the history of the browser leads back");
  await page.locator("#load").focus();
  await page.keyboard.press("Enter");
  await page.locator("#document").waitFor({ timeout: LIMIT });
  await page.locator("#plan").focus();
  await page.keyboard.press("Enter");
  await page.locator('.plan p:text-is("No changes.")').waitFor({ timeout: LIMIT });
  check(true, "plan by the keyboard");
  await context.close();
}

/** A cut stream of events is continued after the last event. */
async function resumes(browser, url) {
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  const opened = nextStream();
  await page.goto(url);
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  const first = await opened;
  const before = (await verb(url, "export", {})).document;
  await verb(url, "apply", { document: before + DISK });
  await node(page, "disk:page9").waitFor({ timeout: LIMIT });
  const again = nextStream();
  streams.open.forEach((response) => response.destroy());
  const last = await again;
  check(last > 0 && last >= first, `events continue after ${last}, first ${first}`);
  await verb(url, "apply", { document: before, yes_destroy: ["page9"] });
  await node(page, "disk:page9").waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the page follows the daemon after a cut");
  await context.close();
}

/** Values and keys by the keyboard, and an error that is marked while the document is typed. */
async function completes(page) {
  await page.fill("#document", "[[disk]]\nki");
  await page.press("#document", "Tab");
  await page.press("#document", "Control+Space");
  await axeInBoth(page, "completion");
  await page.press("#document", "Tab");
  const taken = await page.inputValue("#document");
  check(/^\[\[disk\]\]\nkind = "\w+"$/.test(taken), `keys take a key and a value: ${taken}`);
  await page.fill("#document", '[[disk]]\nname = "x"\nkind = "memory"\nsize = "1MiB"\nnmae = 1\n');
  await page.locator(".editor mark").waitFor({ timeout: LIMIT });
  const mistake = await page.locator("#mistake").textContent();
  check(mistake.includes("Line 5"), `an error is marked while typing: ${mistake}`);
  await axeInBoth(page, "error in the editor");
  await fits(page, PHONE, "editor");
  await page.press("#document", "Escape");
  await page.press("#document", "Tab");
  const isLeft = await page.evaluate(() => document.activeElement.id !== "document");
  check(isLeft, "Tab leaves the editor when no entry is marked");
}

async function changes(browser, url) {
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  await page.goto(url);
  await node(page, "disk:d0").waitFor({ timeout: LIMIT });
  const before = (await verb(url, "export", {})).document;
  await verb(url, "apply", { document: before + DISK });
  await node(page, "disk:page9").waitFor({ timeout: LIMIT });
  check(true, "a disk that was added elsewhere appears");
  // An empty disk in memory would lose nothing.
  const label = { name: "page9", provider: "page9" };
  await verb(url, "geom", { class: "label", verb: "label", value: label });

  await page.click("#load");
  await page.locator("#document").waitFor({ timeout: LIMIT });
  await page.fill("#document", `${before}\n[[disk]]\nnmae = 1\n`);
  await page.click("#plan");
  await page.locator("#change ~ [role=alert]").waitFor({ timeout: LIMIT });
  check(true, "a wrong key is refused beside the editor");
  await page.fill("#document", '[[disk]]\nkind = "file"\npa');
  await page.click('.keys button:text-is("path")');
  const completed = await page.inputValue("#document");
  check(completed.endsWith("\npath = "), "a key of the schema completes the begun word");
  await completes(page);
  await page.fill("#document", before);
  await page.click("#plan");
  await page.locator(".risk.destroys").waitFor({ timeout: LIMIT });
  check(await page.locator("#apply").isDisabled(), "apply waits for the name");
  const command = await page.locator(".plan .commands code").textContent();
  check(command.includes("--yes-destroy page9"), `command line: ${command}`);
  await axeInBoth(page, "plan");
  await fits(page, PHONE, "plan");
  await screenshot(page, "plan");
  await page.fill(".consent input", "page9");
  await page.click("#apply");
  await node(page, "disk:page9").waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the disk is removed by the page");
  await page.click("#undo");
  await page.locator(".plan .commands code").waitFor({ timeout: LIMIT });
  const undo = await page.locator(".plan .commands code").textContent();
  check(undo.startsWith("ashlar undo"), `command line: ${undo}`);
  await axeInBoth(page, "undo");
  await context.close();
}

/** Runs a verb of the class `mirror`. */
const mirror = (url, name, value) => verb(url, "geom", { class: "mirror", verb: name, value });

/** Deactivates a member after the consequence was shown. */
async function deactivates(page) {
  await node(page, "mirror:pages").click();
  const button = (label) => page.locator(`article button:text-is("${label}")`);
  await button("Deactivate page2").click();
  await button("Deactivate page2 anyway").waitFor({ timeout: LIMIT });
  const asked = await page.locator("article").textContent();
  check(asked.includes("page2 is not written until it is activated"), "the consequence is shown");
  await axe(page, "confirmation");
  await button("Deactivate page2 anyway").click();
  await button("Deactivate page2 anyway").waitFor({ state: "detached", timeout: LIMIT });
  await button("Deactivate page1").waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the last member cannot be deactivated");
}

/** The form of the selected object whose button has a label. */
const form = (page, label) =>
  page.locator("article form.verb", { has: page.locator(`button:text-is("${label}")`) });

/** Presses the button of a form, and confirms the consequence if there is one. */
async function press(page, label, typed, isAsked) {
  const own = form(page, label);
  if (typed) await own.locator("input").fill(typed);
  await own.locator("button").click();
  if (isAsked) await form(page, `${label} anyway`).locator("button").click();
}

/** Activates the member that was deactivated, inserts another one, and shrinks the mirror. */
async function activates(page) {
  await press(page, "Activate", "page2", false);
  await form(page, "Deactivate page2").waitFor({ timeout: LIMIT });
  check(true, "the page activates a member");
  await press(page, "Insert", "page3", true);
  await form(page, "Deactivate page3").waitFor({ timeout: LIMIT });
  check(true, "the page inserts a member");
  await press(page, "Resize", "4MiB", true);
  await page.locator("article [role=status]:has-text('4194304')").waitFor({ timeout: LIMIT });
  check(true, "the page resizes the mirror");
}

/** Forms of a file server and of a LUN. */
async function operates(browser, url) {
  const context = await knownContext(browser, {});
  const page = await context.newPage();
  await page.goto(url);
  await node(page, "fs:main").click();
  await press(page, "Dump now", "", false);
  await page.locator("article [role=status]:has-text('/dump/')").waitFor({ timeout: LIMIT });
  check(true, "the page takes a dump");
  await press(page, "Halt", "", true);
  await press(page, "Start", "", false);
  await form(page, "Halt").waitFor({ timeout: LIMIT });
  check(true, "the page halts and starts a file server");
  await page.locator("h2#luns + div table tbody tr a").first().click();
  await press(page, "Clear reservations", "", true);
  const clear = page.locator('article button:has-text("Clear reservations")');
  await clear.waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the page ends a registration");
  await press(page, "Eject", "", true);
  await axe(page, "LUN without a medium");
  await press(page, "Load", "", false);
  await form(page, "Eject").waitFor({ timeout: LIMIT });
  check(true, "the page ejects and loads a medium");
  await context.close();
}

async function rebuild(browser, url) {
  const before = (await verb(url, "export", {})).document;
  await verb(url, "apply", { document: before + MEMBERS });
  const members = ["page1", "page2"];
  await mirror(url, "label", { name: "pages", members, assume_same: true });
  await mirror(url, "configure", { name: "pages", sync_rate: 1 });
  await mirror(url, "rebuild", { name: "pages", members: ["page2"] });

  const context = await knownContext(browser, {});
  const page = await context.newPage();
  await page.goto(url);
  const row = page.locator("h2#rebuilds + div table tbody tr");
  await row.locator('button:text-is("Pause")').waitFor({ timeout: LIMIT });
  check((await row.textContent()).includes("page2"), "the rebuild of page2 is listed");
  check((await row.locator("progress").count()) === 1, "the rebuild has a progress bar");
  const commands = await row.locator("code").allTextContents();
  check(commands.includes("ashlar mirror pause pages"), `command lines: ${commands.join("; ")}`);
  await axeInBoth(page, "rebuild");
  await fits(page, PHONE, "rebuild");
  await row.locator('button:text-is("Pause")').click();
  await row.locator('button:text-is("Resume")').waitFor({ timeout: LIMIT });
  check((await row.textContent()).includes("paused"), "the page pauses the rebuild");
  await screenshot(page, "rebuild");
  await row.locator("input[name=sync_rate]").fill("much");
  await row.locator('button:text-is("Limit")').click();
  await row.locator("[role=status]:has-text('sync_rate')").waitFor({ timeout: LIMIT });
  check(true, "a wrong limit is refused beside the button");
  await row.locator("input[name=sync_rate]").fill("0");
  await row.locator('button:text-is("Limit")').click();
  await row.locator('td:text-is("none")').waitFor({ timeout: LIMIT });
  await row.locator('button:text-is("Resume")').click();
  await row.waitFor({ state: "detached", timeout: LIMIT });
  check(true, "the page resumes the rebuild, which ends");
  await deactivates(page);
  await activates(page);
  await context.close();
  await mirror(url, "stop", { names: ["pages"] });
  await verb(url, "apply", { document: before, yes_destroy: [...members, "page3"] });
}

const url = options.url ?? (await forward(options.socket));
const guarded = options.url ?? options.network;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // As root, as in a container, Chromium does not start with its sandbox.
  args: ["--no-sandbox"],
});
let failure = null;
try {
  pace();
  values();
  await timing(url);
  // First: the host of the session answers no ping of the daemon.
  await sessions(browser, url);
  await withoutScript(browser, url);
  await details(browser, url);
  await files(browser, url);
  await login(browser, guarded);
  await looks(browser, url, "light");
  await looks(browser, url, "dark");
  await wall(browser, url);
  await keyboard(browser, url);
  if (options.socket) await resumes(browser, url);
  await changes(browser, url);
  await rebuild(browser, url);
  await operates(browser, url);
} catch (error) {
  failure = error;
  console.error(error);
} finally {
  await browser.close();
}
process.exit(failure ? 1 : 0);
