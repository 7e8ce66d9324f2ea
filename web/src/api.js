// Requests to the daemon. The browser adds the cookie of the session, which no script reads.

/** An answer of the daemon that is an error: `kind`, `source`, `at` and `next` as in its JSON. */
export class Refusal extends Error {
  constructor(status, error) {
    super(error.at ? `${error.op}: ${error.at}: ${error.source}` : `${error.op}: ${error.source}`);
    this.status = status;
    this.kind = error.kind;
    this.next = error.next ?? "";
  }

  /** The daemon does not know the caller, or the caller may not do this. */
  get needsToken() {
    return this.status === 401 || this.status === 403;
  }
}

/** Sends a request; throws a `Refusal`, or a `TypeError` if the daemon is not reached. */
export async function request(path, options = {}) {
  const answer = await fetch(path, options);
  // The daemon sends the browser elsewhere only after a login.
  if (answer.ok || answer.type === "opaqueredirect") return answer;
  const body = await answer.json().catch(() => null);
  const unknown = { kind: "protocol", op: path, source: `status ${answer.status}` };
  throw new Refusal(answer.status, body?.error ?? unknown);
}

/** Begins a session of a token; throws a `Refusal` if the daemon does not know it. */
export async function logIn(token) {
  await request("/login", {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams({ token }),
    redirect: "manual",
  });
}

export async function get(path) {
  return (await request(path)).json();
}

/** The lines of a body, as they arrive. */
export async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const all = (rest + value).split("\n");
    rest = all.pop();
    yield* all;
  }
}

/** Runs a verb; `progress` receives its progress. */
export async function verb(name, params, progress = () => {}) {
  const answer = await request(`/v1/verbs/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/x-ndjson" },
    body: JSON.stringify(params),
  });
  for await (const line of lines(answer)) {
    const one = JSON.parse(line);
    if (one.progress) progress(one.progress);
    if (one.error) throw new Refusal(200, one.error);
    if (one.answer) return one.answer;
  }
  throw new Refusal(200, { kind: "protocol", op: name, source: "the answer was cut short" });
}
