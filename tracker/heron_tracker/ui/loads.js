// Components and instances as rows of numbers: the columns that several tables share, and sums over components.

import { componentColor, healthColor } from "./colors.js";
import * as f from "./format.js";
import { HEALTH } from "./health.js";
import { blank } from "./plan_only.js";

const counter = (key, label, metric) => ({
  key, label, tip: `${metric}, over all streams`, num: true, value: (row) => row[key], show: (row) => f.count(row[key]),
  exact: (row) => `${metric}: ${f.exact(row[key])}`,
});
const latency = (key, label, metric) => ({
  key, label, tip: `${metric}, the mean`, num: true, value: (row) => row[key], show: (row) => f.latency(row[key]),
  exact: (row) => [`${metric}: ${f.exact(row[key])} ms`, percentiles(row[key.replace("_latency_ms", "_percentiles")])].filter(Boolean).join("\n"),
});

/** p50 1.2 ms · p95 3.4 ms · p99 5.6 ms; empty where they are not known. */
export const percentiles = (one) => (one ? `p50 ${f.latency(one.p50_ms)} · p95 ${f.latency(one.p95_ms)} · p99 ${f.latency(one.p99_ms)}` : "");
/** The percentiles that matter most: of a spout until acked, of a bolt until its ack, without acks its execution. */
export const mainPercentiles = (row) => row.complete_percentiles ?? row.process_percentiles ?? row.execute_percentiles ?? null;

const percentileColumn = (n) => {
  const value = (row) => mainPercentiles(row)?.[`p${n}_ms`] ?? null;
  return { key: `p${n}`, label: `p${n}`, tip: `${n} of 100 tuples take no longer: complete latency of spouts, process latency of bolts`, num: true,
    value, show: (row) => f.latency(value(row)), exact: (row) => percentiles(mainPercentiles(row)) || null };
};

/** Columns of loads. `feed`: for the time that they speak of. */
export function loadColumns(feed, { percentiles: withPercentiles = true } = {}) {
  const bar = (name, label, key, show) => ({
    key, label, tip: HEALTH[name].tip, num: true, value: (row) => row[key], show: (row) => show(row[key]), exact: (row) => `${f.exact(row[key])}\n${HEALTH[name].tip}`,
    share: (row) => {
      const share = feed.summary ? HEALTH[name].share(row, feed.summary, row.ram) : null;
      const filled = share === null ? null : share / HEALTH[name].full;
      return { share: filled, color: healthColor(filled) };
    },
  });
  return [
    counter("emitted", "Emitted", "__emit-count"),
    counter("executed", "Executed", "__execute-count"),
    counter("acked", "Acked", "__ack-count"),
    { ...counter("failed", "Failed", "__fail-count"), look: (row) => (row.failed ? "bad-text" : "") },
    { key: "restarts", label: "Restarts", tip: "Since they were started on purpose", num: true, value: (row) => row.restarts ?? null, show: (row) => f.count(row.restarts ?? null),
      exact: (row) => `${f.exact(row.recent_restarts)} in the last 10 minutes`, look: (row) => (row.recent_restarts ? "bad-text" : "") },
    latency("complete_latency_ms", "Complete", "__complete-latency"),
    latency("execute_latency_ms", "Execute", "__execute-latency"),
    latency("process_latency_ms", "Process", "__process-latency"),
    ...(withPercentiles ? [50, 95, 99].map(percentileColumn) : []),
    bar("capacity", "Capacity", "capacity", f.percent),
    bar("cpu", "CPU", "cpu_cores", f.percent),
    bar("memory", "Memory", "memory_bytes", f.bytes),
    bar("backpressure", "Backpressure", "backpressure_ms", (ms) => (ms === null ? f.NONE : f.duration(ms / 1000))),
  ];
}

/** The summary to show: the last good one, or the plan alone. */
export const shownSummary = (feed) => feed.summary ?? (feed.latest ? blank(feed.latest) : null);

/** Rows of components in the order of the plan. */
export function componentRows(feed, order) {
  const summary = shownSummary(feed);
  return summary.components.map((one) => ({ ...one, key: one.name, number: order.indexOf(one.name), ram: feed.ram(one.name) })).sort((a, b) => a.number - b.number);
}

export const chipOf = (row) => componentColor(row.number);

/** Sums of a topology: what its spouts emitted and got acknowledged, and what its bolts executed. */
export function whole(summary) {
  const spouts = summary.components.filter((one) => one.kind === "spout");
  const sum = (list, key) => list.reduce((found, one) => (one[key] === null ? found : (found ?? 0) + one[key]), null);
  const weighed = spouts.filter((one) => one.complete_latency_ms !== null);
  const weight = weighed.reduce((n, one) => n + (one.acked + one.failed || 1), 0);
  return {
    emitted: sum(spouts, "emitted"), rate: sum(spouts, "emit_rate"), acked: sum(spouts, "acked"), failed: sum(spouts, "failed"),
    executed: sum(summary.components, "executed"), execute_rate: sum(summary.components, "execute_rate"),
    complete_latency_ms: weight ? weighed.reduce((n, one) => n + one.complete_latency_ms * (one.acked + one.failed || 1), 0) / weight : null,
    cpu: sum(summary.components, "cpu_cores"), memory: sum(summary.components, "memory_bytes"),
    held_ms: sum(summary.components, "backpressure_ms"),
  };
}
