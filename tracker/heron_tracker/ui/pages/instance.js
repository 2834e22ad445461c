// One instance: its numbers, all of its metrics, a look into its process.

import { common, get } from "../api.js";
import { GROUPS } from "../chart_groups.js";
import { ChartsView } from "../charts_view.js";
import { notice, panel, search } from "../controls.js";
import { h, text } from "../dom.js";
import * as f from "../format.js";
import { ordered } from "../layout.js";
import { shownSummary } from "../loads.js";
import { to } from "../router.js";
import { every } from "../signal.js";
import { Table } from "../table.js";
import { figures, hostsOf, showFigures } from "./component.js";
import { exceptionList } from "./exceptions.js";

const METRICS_MS = 5_000;
const LOOKS = { jstack: ["Stacks", "What each thread of the process does now"], jmap: ["Memory", "The memory of the process, and its garbage collector"],
  histo: ["Objects", "The objects of the process by type"], pid: ["Process", "The pid of the process"] };

export class InstancePage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal, id: route.rest[0], choice: route.choice });
    this.head = h("div", { class: "subtitle" });
    this.figures = figures();
    this.metrics = new Table(`Metrics of ${this.id}`, metricColumns(), { sort: "key", empty: "nothing was reported yet" });
    this.search = search("Search metrics …  ( / )", (words) => this.metrics.filterBy(words));
    this.output = h("pre", { class: "output", hidden: true, tabindex: 0, "aria-live": "polite" });
    this.buttons = Object.entries(LOOKS).map(([path, [label, tip]]) => h("button", { type: "button", tip, onclick: (event) => this.#look(path, event.currentTarget) }, label));
    this.faults = exceptionList(feed, { component: "all", instance: this.id }, signal);
    this.charts = new ChartsView(feed, () => this.#sources(), GROUPS.filter((group) => group.title !== "Stream Managers"));
    this.element = h("div", {}, this.head, h("div", { class: "figures" }, Object.values(this.figures).map((one) => one.element)),
      panel("Look into the process", h("div", { class: "buttons" }, this.buttons), this.output),
      panel("Exceptions", null, this.faults.element), this.charts.element, panel("All metrics", this.search, this.metrics.element));
    every(METRICS_MS, () => this.#load(), signal);
  }

  route(route) {
    this.choice = route.choice;
    this.charts.refresh().catch(() => {});
    this.#load().catch(() => {});
  }

  show() {
    const found = shownSummary(this.feed).components.flatMap((one) => one.instances.map((instance) => ({ ...instance, component: one.name }))).find((one) => one.id === this.id);
    if (!found) {
      this.element.replaceChildren(notice(`There is no instance ${this.id}`, h("p", {}, h("a", { href: to(this.feed.at) }, "The topology"))));
      return;
    }
    const now = this.feed.latest.components.flatMap((one) => one.instances).find((one) => one.id === this.id);
    if (!this.component) {
      this.component = found.component;
      this.charts.start(this.signal);
    }
    this.#head(found, now);
    showFigures(this.figures, found);
    if (!this.loaded) this.#load().catch(() => {});
  }

  #sources() {
    const { info, latest } = this.feed;
    const row = latest.components.find((one) => one.name === this.component);
    const number = ordered(info.logical_plan).names.indexOf(this.component);
    return [{ name: row.name, label: this.id, kind: row.kind, parallelism: 1, number, instance: this.id }];
  }

  #head(found, now) {
    const { at, info } = this.feed;
    const host = hostsOf(info).get(found.container);
    const key = JSON.stringify([now.attached, now.pid, host, this.choice.interval]);
    if (this.head.dataset.key !== key) {
      this.head.dataset.key = key;
      this.uptime = h("span", {});
      this.head.replaceChildren(h("h2", {}, this.id), h("span", { class: `pill ${now.attached ? "ok" : "bad"}` }, now.attached ? "runs" : "away"),
        h("span", {}, "of ", h("a", { href: to(at, "component", [found.component], { interval: this.choice.interval }) }, found.component)),
        h("span", {}, `container ${found.container}${host ? ` on ${host}` : ""}`), h("span", {}, `pid ${now.pid || "–"}`), this.uptime,
        h("a", { href: to(at, "logs", [], { container: found.container, file: `${this.id}.log` }) }, "Log file →"));
    }
    text(this.uptime, found.uptime_s === null ? "" : `up ${f.duration(found.uptime_s)}`);
  }

  async #load() {
    if (!this.component) return;
    this.loaded = true;
    const parameters = { ...common(this.feed.at), component: this.component, instance: this.id, interval: this.feed.interval };
    const found = await get("/topologies/metrics", parameters, { signal: this.signal });
    this.metrics.show(Object.entries(found.metrics).map(([key, values]) => ({ key, value: Number(values[this.id]), exact: values[this.id] })));
  }

  async #look(path, button) {
    button.disabled = true;
    this.output.hidden = false;
    text(this.output, `${LOOKS[path][1]} …`);
    try {
      const { command, stdout, stderr } = await get(`/topologies/${path}`, { ...common(this.feed.at), instance: this.id }, { signal: this.signal });
      text(this.output, [`$ ${command}`, stdout, stderr].filter(Boolean).join("\n"));
    } catch (error) {
      if (!this.signal.aborted) text(this.output, `It cannot be told: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  }
}

// Units are in the names of metrics, as Heron gives them.
function human({ key, value }) {
  const name = key.split("/")[0];
  if (name.endsWith("-latency")) return f.latency(value / 1e6);
  if (name.endsWith("-ns")) return f.latency(value / 1e6);
  if (/-(byte|bytes|size)$/.test(key) || (name.includes("queue") && name.endsWith("capacity"))) return f.bytes(value);
  if (name.endsWith("-ms")) return f.latency(value);
  if (name.endsWith("-secs")) return f.duration(value);
  return f.count(value);
}

function metricColumns() {
  return [{ key: "key", label: "Metric", value: (row) => row.key, show: (row) => row.key, look: () => "mono" },
    { key: "value", label: "Value", num: true, value: (row) => row.value, show: human, exact: (row) => `${row.key}: ${row.exact}` },
    { key: "exact", label: "Exact", num: true, value: (row) => row.value, show: (row) => row.exact, look: () => "mono" }];
}
