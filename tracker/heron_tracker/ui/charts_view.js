// The groups of charts, for all components of a topology or for one.

import { common, get, place } from "./api.js";
import { Chart } from "./chart.js";
import { GROUPS, MEASURES, metricsOf } from "./chart_groups.js";
import { componentColor } from "./colors.js";
import { Segments } from "./controls.js";
import { h } from "./dom.js";
import { choose } from "./router.js";
import { ofInstance } from "./series.js";
import { every } from "./signal.js";

const REFRESH_MS = 15_000;
const HOURS_3 = 10_800;

export class ChartsView {
  /** `sources()`: [{name, kind, number, parallelism}], of which the lines are drawn. `distributed`: they have percentiles. */
  constructor(feed, sources, choice, { groups = GROUPS, distributed = true } = {}) {
    Object.assign(this, { feed, sources, distributed });
    this.charts = [];
    this.error = h("p", { class: "none", role: "alert", hidden: true });
    const sections = groups.map((group) => h("section", { class: "chart-group", "aria-label": group.title },
      h("h2", {}, group.title), h("div", { class: "charts" }, group.charts.map((one) => this.#chart(one)))));
    this.measures = new Segments("Latencies", MEASURES, (measure) => choose({ latency: measure === "mean" ? null : measure }));
    this.element = h("div", {}, distributed ? h("div", { class: "bar" }, h("span", { class: "note" }, "Latencies"), this.measures.element) : null, this.error, sections);
    this.#choose(choice);
  }

  /** Follow what is chosen on the page. */
  route({ choice }) {
    this.#choose(choice);
    this.refresh().catch(() => {});
  }

  #choose(choice) {
    this.measure = this.distributed && choice.latency in MEASURES ? choice.latency : "mean";
    this.measures.show(this.measure);
    for (const { definition, drawn } of this.charts) if (definition.distributed) drawn.name(this.measure === "mean" ? definition.title : `${definition.title}, ${this.measure}`);
  }

  start(signal) {
    this.signal = signal;
    for (const { drawn } of this.charts) drawn.start(signal);
    every(REFRESH_MS, () => this.refresh(), signal);
  }

  #chart(definition) {
    const drawn = new Chart(definition.title, { show: definition.show, tip: definition.names.join("\n") });
    this.charts.push({ definition, drawn });
    return drawn.element;
  }

  async refresh() {
    const sources = this.sources();
    if (!sources.length) return;
    const { measure } = this;
    const interval = this.feed.interval > 0 ? this.feed.interval : HOURS_3;
    const answers = await Promise.allSettled(sources.map((one) => this.#history(one, interval)));
    if (measure !== this.measure) return; // another one was chosen meanwhile
    const failed = answers.filter((one) => one.status === "rejected" && one.reason.status !== 404);
    this.error.hidden = !failed.length;
    if (failed.length) {
      this.error.textContent = `Charts cannot be brought up to date: ${failed[0].reason.message}`;
      if (failed.length === answers.length) {
        for (const { drawn } of this.charts) drawn.failed();
        return; // keeps what was drawn
      }
    }
    const histories = sources.map((source, n) => ({ source, history: answers[n].value })).filter((one) => one.history);
    const now = Math.floor(Date.now() / 1000);
    for (const { definition, drawn } of this.charts) {
      drawn.element.hidden = !sources.some(({ kind }) => definition.kinds.includes(kind));
      const lines = histories.filter(({ source }) => definition.kinds.includes(source.kind)).map(({ source, history }) => ({
        name: source.label ?? source.name, color: () => componentColor(source.number), data: definition.of(history, source, measure),
      }));
      drawn.show(lines, now - interval, now);
      if (failed.length) drawn.failed();
    }
  }

  async #history(source, interval) {
    if (source.instance) return this.#timeline(source, interval);
    const parameters = { component: source.name, metricname: metricsOf(source.kind), interval, points: 180, percentiles: this.measure !== "mean" };
    return get(`${place(this.feed.at)}/history`, parameters, { signal: this.signal });
  }

  async #timeline({ name, instance, kind }, interval) {
    const endtime = Math.floor(Date.now() / 1000);
    const parameters = { ...common(this.feed.at), component: name, instance, metricname: metricsOf(kind), starttime: endtime - interval, endtime };
    return ofInstance(await get("/topologies/metrics/timeline", parameters, { signal: this.signal }), instance);
  }
}

/** What the charts of a whole topology show: its components and its Stream Managers. */
export function allSources(summary, order) {
  if (!summary) return [];
  const components = summary.components.map((one) => ({ name: one.name, kind: one.kind, parallelism: one.parallelism, number: order.indexOf(one.name) }));
  return [...components, { name: "__stmgr__", label: "Stream Managers", kind: "stmgr", parallelism: 1, number: components.length }];
}
