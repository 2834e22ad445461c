// Asking the Tracker. Knows whether it answers, and carries the token.

import { Signal } from "./signal.js";

const TIMEOUT_MS = 20_000;
const ACTION_MS = 70_000; // the Tracker itself gives up after 60 s
const TOKEN = "heron.token";

/** An answer that is an error; `reason` is the Tracker's own sentence. */
export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The Tracker did not answer. */
export class GoneError extends Error {}

/** `ok`, `gone` (with `since`, in ms) or `token`. */
export const connection = new Signal({ state: "ok", since: null });

export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
  connection.set({ state: "ok", since: null });
}

// The browser's own credentials are left out, so that it does not ask by itself: the page asks for the token. Only where
// a proxy wants credentials for the page itself has the browser asked already, and then it goes on answering.
let credentials = "omit";

async function behindAProxy() {
  const page = await fetch("index.html", { credentials: "omit", cache: "no-store" });
  return page.status === 401;
}

/** Fetch with the token. */
export async function request(path, parameters = {}, { signal, timeoutMs = TIMEOUT_MS, stream = false, method = "GET" } = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null) query.append(name, one);
  }
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (method === "POST") headers["x-heron-request"] = "1"; // no other page can send it
  const waiting = new AbortController();
  const stop = () => waiting.abort(signal?.reason);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  const timer = setTimeout(() => waiting.abort(new GoneError("the Tracker does not answer")), timeoutMs);
  let response;
  try {
    response = await fetch(`${path}?${query}`, { method, headers, credentials, cache: "no-store", signal: waiting.signal });
    if (!stream && response.ok) return await response.blob();
  } catch (error) {
    if (signal?.aborted) throw error;
    gone();
    throw new GoneError("the Tracker does not answer");
  } finally {
    clearTimeout(timer);
    if (!stream || !response?.ok) signal?.removeEventListener("abort", stop);
  }
  if (response.status === 401 && !token && credentials === "omit" && (await behindAProxy())) {
    credentials = "same-origin";
    return request(path, parameters, { signal, timeoutMs, stream, method });
  }
  if (!response.ok) await refuse(response);
  answered();
  return response;
}

/** Have something done; its answer as JSON. */
export const post = (path, parameters, options) => get(path, parameters, { timeoutMs: ACTION_MS, ...options, method: "POST" });

/** An answer as JSON. */
export async function get(path, parameters, options) {
  const blob = await request(path, parameters, options);
  answered();
  return JSON.parse(await blob.text());
}

async function refuse(response) {
  if (response.status === 401) {
    connection.set({ state: "token", since: null, wrong: sessionStorage.getItem(TOKEN) !== null });
    throw new ApiError(401, "authentication required");
  }
  if (response.status === 502 || response.status === 504) {
    gone(); // a proxy in between speaks
    throw new GoneError("the Tracker does not answer");
  }
  answered();
  const said = await response.text();
  let reason = said;
  try {
    reason = String(JSON.parse(said)).replace(/^request failed: /, "");
  } catch {
    // not JSON: somebody in between
  }
  throw new ApiError(response.status, reason);
}

function gone() {
  if (connection.value.state !== "gone") connection.set({ state: "gone", since: Date.now() });
}

function answered() {
  if (connection.value.state !== "ok") connection.set({ state: "ok", since: null });
}

/** Where a topology is, as parameters of Heron's paths. */
export const common = ({ cluster, role, environ, name }) => ({ cluster, role, environ, topology: name });

/** Its own path. */
export const place = ({ cluster, role, environ, name }) =>
  `/topologies/${[cluster, role, environ, name].map(encodeURIComponent).join("/")}`;
