// By what components and instances can be coloured. Each gives a share from 0 (well) to 1 (badly), or null.

import * as f from "./format.js";

const failures = (load) => {
  const done = (load.executed || load.acked) + load.failed;
  return done ? load.failed / done : null;
};

/** The seconds that a load speaks of. */
export const seconds = (load, summary) => (summary.interval > 0 ? summary.interval : load.uptime_s ?? null);

const held = (load, summary) => {
  const over = seconds(load, summary);
  return load.backpressure_ms ? Math.min(1, load.backpressure_ms / 1000 / (over || load.backpressure_ms / 1000)) : 0;
};

// An instance asks for so much memory in the packing plan; a component's bar is that of its worst instance.
const memory = (load, ram) => (load.memory_bytes !== null && ram ? load.memory_bytes / ram : null);

const worst = (share) => (load, summary, ram) => {
  const shares = (load.instances ?? [load]).map((one) => share(one, summary, ram)).filter((one) => one !== null);
  return shares.length ? Math.max(...shares) : null;
};

export const HEALTH = {
  component: { label: "Component", tip: "One colour for each component" },
  capacity: {
    label: "Capacity", tip: "__execute-count × __execute-latency ÷ time: the share of the time in process()",
    share: worst((load) => load.capacity), full: 1, show: f.percent,
  },
  failures: {
    label: "Failures", tip: "__fail-count ÷ (__execute-count + __fail-count), of spouts ÷ (__ack-count + __fail-count)",
    share: worst(failures), full: 0.05, show: f.percent,
  },
  cpu: {
    label: "CPU", tip: "__py-user-cpu-time-secs + __py-sys-cpu-time-secs per second: 100 % is one core",
    share: worst((load) => load.cpu_cores), full: 1, show: f.percent,
  },
  memory: {
    label: "Memory", tip: "__py-physical-memory-byte ÷ the RAM in the packing plan",
    share: worst((load, _summary, ram) => memory(load, ram)), full: 1, show: f.percent,
  },
  backpressure: {
    label: "Backpressure", tip: "__time_spent_back_pressure_by_compid ÷ time: how long it throttled the spouts",
    share: worst(held), full: 0.5, show: f.percent,
  },
};
