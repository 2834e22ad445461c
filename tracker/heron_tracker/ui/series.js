// From the Tracker's history to lines of charts. Pure.
//
// Counters come as sums of a minute (or of more minutes): they are shown per second. The newest minute is not over, so it
// is divided by what has passed of it; just begun, it is left out. Counts of CPU seconds are gauges that only grow.

const BEGUN_S = 10;

/** Add up all streams of a metric (`name` or `name/…`): Map time in s → value. Means are weighed alike. */
export const total = (history, name) => added(history, (metric) => metric === name || metric.startsWith(`${name}/`));

/** One metric alone: Map time in s → value. */
export const alone = (history, name) => added(history, (metric) => metric === name);

/** A percentile of a latency over all of its streams: Map time in s → value. */
export const percentile = (history, name, which) => new Map(Object.entries(history.percentiles?.[name]?.[which] ?? {}).map(([time, value]) => [Number(time), value]));

/** Add up all metrics that a regular expression matches: Map time in s → value. */
export const matching = (history, pattern) => added(history, (metric) => pattern.test(metric));

function added(history, wanted) {
  const lines = history.lines.filter((line) => wanted(line.metric));
  const sums = new Map();
  for (const line of lines) {
    for (const [time, value] of Object.entries(line.data)) {
      const [sum, n] = sums.get(Number(time)) ?? [0, 0];
      sums.set(Number(time), [sum + value, n + 1]);
    }
  }
  const mean = lines.some((line) => line.kind === "mean");
  return new Map([...sums].sort(([a], [b]) => a - b).map(([time, [sum, n]]) => [time, mean ? sum / n : sum]));
}

/** A counter per second. */
export function perSecond(data, history) {
  const rates = new Map();
  for (const [time, value] of data) {
    const passed = Math.min(history.step, history.endtime - time);
    if (passed >= Math.min(BEGUN_S, history.step)) rates.set(time, value / passed);
  }
  return rates;
}

/** The growth per second of a gauge; a restart, which takes it back, leaves a gap. Time that is not over is left out. */
export function growth(data, history) {
  const rates = new Map();
  let before = null;
  for (const [time, value] of data) {
    if (time + history.step > history.endtime) break;
    if (before && value >= before[1]) rates.set(time, (value - before[1]) / (time - before[0]));
    before = [time, value];
  }
  return rates;
}

/** The timeline of one instance, as if it were a history. */
export function ofInstance(timeline, instance) {
  const lines = Object.entries(timeline.timeline).map(([metric, instances]) => ({ metric, kind: metric.includes("-latency") ? "mean" : "other", data: instances[instance] ?? {} }));
  return { starttime: timeline.starttime, endtime: timeline.endtime, step: 60, lines };
}

/** Two lines as one, where both are known. */
export function combine(one, other, how) {
  return new Map([...one].filter(([time]) => other.has(time)).map(([time, value]) => [time, how(value, other.get(time))]));
}

/** Two lines as one, where one of them is known. */
export const either = (one, other) => new Map([...new Set([...one.keys(), ...other.keys()])].sort((a, b) => a - b).map((time) => [time, (one.get(time) ?? 0) + (other.get(time) ?? 0)]));

export const scaled = (data, factor) => new Map([...data].map(([time, value]) => [time, value * factor]));
