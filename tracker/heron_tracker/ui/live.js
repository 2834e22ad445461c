// Which topologies there are and how they are: received as server-sent events, or polled while those do not come.
//
// EventSource cannot carry a bearer token, so that the stream is read by fetch. The other way, a cookie that the Tracker
// sets, would be one more secret to expire, and would make the Tracker accept what a browser sends by itself: requests of
// other sites' pages among them.

import { connection, get, request } from "./api.js";
import { Signal, every } from "./signal.js";

const POLL_MS = 5_000;
const RETRY_MS = 3_000;

export const keyOf = ({ cluster, role, environ, name }) => [cluster, role, environ, name].join("/");

/** By key: cluster, role, environ, name, id, status, plan_version, tmaster. Null before the first answer. */
export const topologies = new Signal(null);
/** By name: connected, error. */
export const stateManagers = new Signal({});
/** `live` (events), `polling`, or `off` before either. */
export const mode = new Signal("off");

export function follow(signal) {
  every(RETRY_MS, () => listen(signal), signal);
  every(POLL_MS, async () => {
    if (mode.value !== "live" && connection.value.state !== "token") await poll(signal);
  }, signal);
}

async function listen(signal) {
  if (connection.value.state === "token") return;
  const stream = new AbortController();
  const stop = () => stream.abort();
  signal.addEventListener("abort", stop);
  try {
    const response = await request("/events", {}, { signal: stream.signal, stream: true });
    for await (const { event, data } of events(response.body, stop)) {
      mode.set("live");
      take(event, data);
    }
  } catch (error) {
    if (error.name !== "AbortError" && error.name !== "TypeError") throw error; // cut off: listen again
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
    mode.set(mode.value === "live" ? "polling" : mode.value);
  }
}

const SILENCE_MS = 40_000; // a heartbeat comes every 15 s

async function* events(body, stop) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const timer = setTimeout(stop, SILENCE_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const blocks = (left + value).split("\n\n");
    left = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
      if (fields.event) yield { event: fields.event, data: JSON.parse(fields.data) };
    }
  }
}

function take(event, data) {
  if (event === "statemanagers") stateManagers.set(data);
  if (event === "topologies") topologies.set(known(data));
  if (event === "topology") {
    const now = new Map(topologies.value ?? []);
    now.set(keyOf(data), data);
    topologies.set(now);
  }
}

/** The topologies that are named, with what was known of them. */
function known(names) {
  const found = new Map();
  for (const [cluster, roles] of Object.entries(names)) {
    for (const [role, environs] of Object.entries(roles)) {
      for (const [environ, list] of Object.entries(environs)) {
        for (const name of list) {
          const key = keyOf({ cluster, role, environ, name });
          found.set(key, topologies.value?.get(key) ?? { cluster, role, environ, name, status: "Unknown", tmaster: "" });
        }
      }
    }
  }
  return found;
}

// The states of `/topologies/states` are by cluster, environment and name: of two roles it would report one.
async function poll(signal) {
  const [all, managers] = await Promise.all([get("/topologies/all", {}, { signal }), get("/statemanagers", {}, { signal })]);
  topologies.set(new Map(all.map((one) => [keyOf(one), one])));
  stateManagers.set(Object.fromEntries(managers.map((one) => [one.name, one])));
  if (mode.value === "off") mode.set("polling");
}
