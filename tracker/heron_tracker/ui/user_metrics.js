// "Metrics of yours": charts of what the topology registered itself. Counters per second, all others as they are.
//
// There may be thousands (a counter per key): the Tracker searches and counts them, and only the first are drawn.

import { get, place } from "./api.js";
import { Chart } from "./chart.js";
import { componentColor } from "./colors.js";
import { search } from "./controls.js";
import { Keyed, h, text } from "./dom.js";
import * as f from "./format.js";
import { alone, perSecond } from "./series.js";
import { every } from "./signal.js";

const REFRESH_MS = 15_000;
const FIRST = 6;
const FOUND = 12; // a search wants them: all seven values of a timer
const MOST = 96; // charts on one page: who wants others searches
const TYPING_MS = 250;
const HOURS_3 = 10_800;

export class UserMetrics {
  /** Of one component, or of all if it is null. `sources()`: [{name, number}], the components that there are. */
  constructor(feed, sources, component, signal) {
    Object.assign(this, { feed, sources, component, signal, words: "", limit: FIRST, histories: new Map() });
    this.search = search("Search these metrics …", (words) => this.#type(words));
    this.counted = h("span", { class: "note", role: "status" });
    this.nothing = h("p", { class: "none" }, "Loading …");
    this.charts = h("div", { class: "charts" });
    this.kept = new Keyed(this.charts, (one) => this.#create(one), (element, one) => this.#draw(element, one));
    this.drawn = new Map();
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.#grow() }, "Show more");
    this.element = h("section", { class: "chart-group own", "aria-label": "Metrics of yours" },
      h("div", { class: "own-head" }, h("h2", {}, "Metrics of yours"), this.search, this.counted), this.nothing, this.charts, h("div", {}, this.more));
    every(REFRESH_MS, () => this.refresh(), signal);
    signal.addEventListener("abort", () => clearTimeout(this.typing));
  }

  async refresh() {
    const sources = this.sources();
    if (!sources.length) return;
    const asked = [this.words, this.limit].join();
    try {
      const parameters = { component: this.component, search: this.words, limit: this.limit };
      const found = await get(`${place(this.feed.at)}/usermetrics`, parameters, { signal: this.signal });
      this.interval = this.feed.interval > 0 ? this.feed.interval : HOURS_3;
      const components = [...new Set(found.metrics.flatMap((one) => one.components))];
      const histories = await Promise.all(components.map((name) => this.#history(name, found.metrics)));
      if (asked !== [this.words, this.limit].join()) return; // somebody has typed on meanwhile
      this.histories = new Map(components.map((name, n) => [name, histories[n]]));
      this.#show(found, sources);
    } catch (error) {
      if (this.signal.aborted) throw error;
      text(this.nothing, `They cannot be brought up to date: ${error.message}`); // keeps what was drawn
      this.nothing.hidden = false;
      throw error;
    }
  }

  #history(component, metrics) {
    const metricname = metrics.filter((one) => one.components.includes(component)).map((one) => one.metric);
    return get(`${place(this.feed.at)}/history`, { component, metricname, interval: this.interval, points: 180 }, { signal: this.signal });
  }

  #show({ total, metrics }, sources) {
    this.colors = new Map(sources.map(({ name, number }) => [name, number]));
    this.kept.show(metrics, (one) => one.metric);
    const shown = new Set(metrics.map((one) => one.metric));
    for (const [metric, { ended }] of this.drawn) {
      if (shown.has(metric)) continue;
      ended.abort();
      this.drawn.delete(metric);
    }
    const none = this.words ? `nothing matches “${this.words}”` : "None were reported: context.register_metric() and the classes of heronpy.api.metrics make them.";
    text(this.nothing, none);
    this.nothing.hidden = total > 0;
    this.search.hidden = !this.words && total <= 1;
    text(this.counted, total ? `${metrics.length.toLocaleString("en")} of ${total.toLocaleString("en")} ${total === 1 ? "metric" : "metrics"}${total > MOST && metrics.length >= MOST ? ": search for the others" : ""}` : "");
    this.more.hidden = metrics.length >= Math.min(total, MOST);
  }

  #create({ metric, kind }) {
    const counted = kind === "counter";
    const chart = new Chart(metric, { show: counted ? f.rate : f.count, tip: `${metric}, ${counted ? "a counter: per second" : kind}` });
    const ended = new AbortController();
    this.signal.addEventListener("abort", () => ended.abort(), { signal: ended.signal });
    chart.start(ended.signal);
    this.drawn.set(metric, { chart, ended });
    return chart.element;
  }

  #draw(_element, { metric, kind, components }) {
    const lines = components.map((name) => {
      const history = this.histories.get(name);
      const data = alone(history, metric);
      return { name, color: () => componentColor(this.colors.get(name) ?? 0), data: kind === "counter" ? perSecond(data, history) : data };
    });
    const now = Math.floor(Date.now() / 1000);
    this.drawn.get(metric).chart.show(lines, now - this.interval, now);
  }

  #type(words) {
    clearTimeout(this.typing);
    this.words = words.trim();
    this.limit = this.words ? FOUND : FIRST;
    this.typing = setTimeout(() => this.refresh().catch(() => {}), TYPING_MS);
  }

  #grow() {
    this.limit = Math.min(MOST, 2 * this.limit);
    this.refresh().catch(() => {});
  }
}
