// Everything that the pages of one topology share: its plans, and its summaries over four times.

import { ApiError, common, get, place } from "./api.js";
import { keyOf, topologies } from "./live.js";
import { planOnly } from "./plan_only.js";
import { Signal, every } from "./signal.js";

const REFRESH_MS = 3_000;
const OTHERS_MS = 10_000;
const AFTER_MS = 1_500; // what is not chosen can wait until the page is there

export class Feed {
  /** What is known of the topology at `at`. Follows it until `signal` is aborted. */
  constructor(at, interval, signal) {
    Object.assign(this, { at, interval, signal, summaries: new Map(), good: new Map() });
    /** Notified after every change of `info`, `error` or a summary. */
    this.changed = new Signal(null);
    this.info = null;
    this.error = null;
    const version = () => {
      const summary = topologies.value?.get(keyOf(at));
      return summary?.id && JSON.stringify([summary.id, summary.plan_version, summary.status, summary.tmaster]);
    };
    let seen = version();
    topologies.listen(() => {
      const [before, now] = [seen, version()];
      seen = now ?? before;
      if (!before || seen === before) return;
      this.#load().then(() => this.refresh()).catch(() => {});
    }, signal);
    every(REFRESH_MS, () => this.#turn(), signal);
    const later = setTimeout(() => every(OTHERS_MS, () => this.#others(), signal), AFTER_MS);
    signal.addEventListener("abort", () => clearTimeout(later));
  }

  /** The last summary of the chosen interval that has numbers, with `at_ms`, their time; null if there is none. */
  get summary() {
    return this.good.get(this.interval) ?? null;
  }

  /** The last answer for the chosen interval, whatever it says. */
  get latest() {
    return this.summaries.get(this.interval) ?? [...this.summaries.values()].at(-1) ?? this.#planned();
  }

  /** `ok`, or what the Tracker says of the Topology Master. */
  get tmaster() {
    return this.latest?.tmaster ?? this.info?.runtime_state.tmaster ?? "ok";
  }

  /** Of a Topology Master that is silent the plan is known before the first summary. */
  #planned() {
    const { info } = this;
    return info && info.runtime_state.tmaster !== "ok" ? planOnly(info) : null;
  }

  async choose(interval) {
    if (interval === this.interval) return;
    this.interval = interval;
    this.changed.set(null);
    await this.refresh().catch(() => {});
  }

  async refresh() {
    await this.#take(this.interval);
  }

  async #turn() {
    await Promise.all([this.info ? null : this.#load(), this.refresh()]);
  }

  async #others() {
    const others = [600, 3600, 10800, -1].filter((interval) => interval !== this.interval);
    const taken = await Promise.allSettled(others.map((interval) => this.#take(interval))); // one that fails leaves no other stale
    const failed = taken.find((one) => one.status === "rejected");
    if (failed) throw failed.reason;
  }

  async #load() {
    await this.#guarded(async () => {
      this.info = await get("/topologies/info", common(this.at), { signal: this.signal });
    });
    this.changed.set(null);
  }

  async #take(interval) {
    await this.#guarded(async () => {
      const summary = await get(`${place(this.at)}/summary`, { interval }, { signal: this.signal });
      // While its Topology Master is silent the Tracker reports the last numbers that it knows: others may have asked later.
      if (this.id && this.id !== summary.id) { // submitted anew under the same name: these are another topology's numbers
        this.summaries.clear();
        this.good.clear();
      }
      this.id = summary.id;
      summary.at_ms = summary.as_of ? Date.parse(summary.as_of) : Date.now();
      this.summaries.set(interval, summary);
      const known = this.good.get(interval)?.at_ms ?? 0;
      if (summary.tmaster === "ok" || (summary.as_of && summary.at_ms > known)) this.good.set(interval, summary);
    });
    this.changed.set(null);
  }

  async #guarded(work) {
    try {
      await work();
      this.error = null;
    } catch (error) {
      if (this.signal.aborted) throw error;
      this.error = error instanceof ApiError && error.status === 404 ? error : this.error;
      this.changed.set(null);
      throw error;
    }
  }

  /** RAM in the packing plan of each instance, by component. */
  ram(component) {
    const packed = this.info?.packing_plan?.container_plans.flatMap((container) => container.instances);
    return packed?.find((one) => one.component_name === component)?.instance_resources.ram ?? null;
  }
}
