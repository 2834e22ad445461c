// Which charts there are, in the four groups of the Heron paper (section 6.3): health, resources, components, Stream
// Managers. `of(history, component)` makes the line of one component; `names` are the metrics that are asked for.

import * as f from "./format.js";
import { combine, either, growth, matching, perSecond, percentile, scaled, total } from "./series.js";

const NS = 1e-6;
const rate = (name) => ({ names: [name], of: (history) => perSecond(total(history, name), history), show: f.rate });
const latency = (name) => ({
  names: [name], show: f.latency, distributed: true,
  of: (history, _source, measure) => scaled(measure === "mean" ? total(history, name) : percentile(history, name, measure), NS),
});
const gauge = (name, show = f.count) => ({ names: [name], of: (history) => total(history, name), show });
const cpu = ["__py-user-cpu-time-secs", "__py-sys-cpu-time-secs"];

function capacity(history, component) {
  const executed = perSecond(total(history, "__execute-count"), history);
  return combine(executed, total(history, "__execute-latency"), (each, ns) => Math.min(1, (each * ns * 1e-9) / component.parallelism));
}

const chart = (title, kinds, definition) => ({ title, kinds, ...definition });
const ALL = ["spout", "bolt"];

/** What charts of latencies show. */
export const MEASURES = { mean: { label: "Mean" }, p50: { label: "p50" }, p95: { label: "p95" }, p99: { label: "p99" } };

export const GROUPS = [
  { title: "Health", charts: [
    chart("Failed tuples", ALL, rate("__fail-count")),
    chart("Complete latency", ["spout"], latency("__complete-latency")),
    chart("Capacity", ["bolt"], { names: ["__execute-count", "__execute-latency"], of: capacity, show: f.percent }),
    chart("Tuples in flight", ["spout"], gauge("__pending-acked-count")),
    chart("Time that backpressure took", ["stmgr"], {
      names: ["__server/__time_spent_back_pressure_initiated"], show: f.percent,
      of: (history) => scaled(perSecond(total(history, "__server/__time_spent_back_pressure_initiated"), history), 1e-3),
    }),
    chart("Full queues", ALL, rate("__out-queue-full-count")),
  ] },
  { title: "Resources", charts: [
    chart("CPU (cores)", [...ALL, "stmgr"], {
      names: cpu, of: (history) => growth(either(total(history, cpu[0]), total(history, cpu[1])), history), show: f.cores,
    }),
    chart("Memory", [...ALL, "stmgr"], gauge("__py-physical-memory-byte", f.bytes)),
    chart("Garbage collection (share of time)", [...ALL, "stmgr"], {
      names: ["__py-gc-collection-time-ms"], of: (history) => scaled(growth(total(history, "__py-gc-collection-time-ms"), history), 1e-3), show: f.percent,
    }),
    chart("Threads", [...ALL, "stmgr"], gauge("__py-thread-count")),
  ] },
  { title: "Components", charts: [
    chart("Emitted", ALL, rate("__emit-count")),
    chart("Executed", ["bolt"], rate("__execute-count")),
    chart("Acknowledged", ALL, rate("__ack-count")),
    chart("Execute latency", ["bolt"], latency("__execute-latency")),
    chart("Process latency", ["bolt"], latency("__process-latency")),
    chart("Waiting in inbound queues", ALL, gauge("__gateway-in-stream-queue-size", f.bytes)),
  ] },
  { title: "Stream Managers", charts: [
    chart("Tuples from instances", ["stmgr"], rate("__server/__tuples_from_workers")),
    chart("Tuples to instances", ["stmgr"], rate("__server/__tuples_to_workers")),
    chart("Tuples from other Stream Managers", ["stmgr"], rate("__server/__tuples_from_stmgrs")),
    chart("Bytes to other Stream Managers", ["stmgr"], {
      names: ["__client_*"], show: (value) => `${f.bytes(value)}/s`,
      of: (history) => perSecond(matching(history, /^__client_.*\/__bytes_to_stmgrs$/), history),
    }),
    chart("Lost on the way to instances", ["stmgr"], rate("__server/__tuples_to_workers_lost")),
    chart("Waiting for instances", ["stmgr"], gauge("__connection_buffer_by_instanceid", f.bytes)),
  ] },
];

/** The metrics that the charts of one kind need: exact names, and those of their streams. */
export function metricsOf(kind, groups = GROUPS) {
  const charts = groups.flatMap((group) => group.charts).filter((one) => one.kinds.includes(kind));
  return [...new Set(charts.flatMap((one) => one.names))].flatMap((name) => [name, `${name}/*`]);
}
