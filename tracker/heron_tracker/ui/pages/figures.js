// The figures at the top of the overview.

import { Figure } from "../controls.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { percentiles, whole } from "../loads.js";

export class Figures {
  constructor() {
    this.emitted = new Figure("Emitted by spouts", "__emit-count of all spouts");
    this.acked = new Figure("Acked", "__ack-count of all spouts");
    this.failed = new Figure("Failed", "__fail-count of all spouts");
    this.latency = new Figure("Complete latency", "__complete-latency, the mean of all spouts");
    this.capacity = new Figure("Busiest", "The largest capacity: __execute-count × __execute-latency ÷ time");
    this.resources = new Figure("CPU and memory", "Of all instances: __py-user-cpu-time-secs + __py-sys-cpu-time-secs per second, and __py-physical-memory-byte");
    this.held = new Figure("Backpressure", "The longest __time_spent_back_pressure_by_compid");
    const all = [this.emitted, this.acked, this.failed, this.latency, this.capacity, this.resources, this.held];
    this.element = h("div", { class: "figures" }, all.map((one) => one.element));
  }

  show(summary) {
    const sum = whole(summary);
    const total = (value) => (sum.rate === null ? "" : `${f.count(value)} in ${f.duration(summary.interval)}`);
    this.emitted.show(sum.rate === null ? f.count(sum.emitted) : f.rate(sum.rate), total(sum.emitted), { exact: f.exact(sum.emitted) });
    if (summary.tracked === false) this.acked.show("n/a", "at most once: not tracked");
    else this.acked.show(f.count(sum.acked), share(sum.acked, sum.emitted, "of emitted"), { exact: f.exact(sum.acked) });
    this.failed.show(f.count(sum.failed), share(sum.failed, sum.acked + sum.failed, "of tracked"), { exact: f.exact(sum.failed), look: sum.failed ? "bad" : "" });
    const slowest = summary.components.map((one) => one.complete_percentiles).filter(Boolean).sort((a, b) => b.p99_ms - a.p99_ms)[0];
    this.latency.show(f.latency(sum.complete_latency_ms), slowest ? `mean · p99 ${f.latency(slowest.p99_ms)}` : "mean, until acked", { exact: [`${f.exact(sum.complete_latency_ms)} ms`, percentiles(slowest)].filter(Boolean).join("\n") });
    this.#busiest(summary);
    this.resources.show(sum.cpu === null ? f.NONE : `${f.cores(sum.cpu)} cores`, f.bytes(sum.memory), { exact: `${f.exact(sum.cpu)} cores, ${f.exact(sum.memory)} bytes` });
    const worst = summary.culprits[0];
    const shown = sum.held_ms === null ? f.NONE : worst ? f.duration(worst.held_ms / 1000) : "none";
    this.held.show(shown, worst?.instance ?? (sum.held_ms === null ? "" : "spouts not throttled"), { look: worst ? "warn" : "" });
  }

  #busiest(summary) {
    const busy = summary.components.filter((one) => one.capacity !== null).sort((a, b) => b.capacity - a.capacity)[0];
    this.capacity.show(busy ? f.percent(busy.capacity) : f.NONE, busy?.name ?? "", { exact: busy ? f.exact(busy.capacity) : "", look: busy?.capacity > 0.9 ? "warn" : "" });
  }
}

const share = (part, all, what) => (part !== null && all ? `${f.percent(part / all)} ${what}` : "");
