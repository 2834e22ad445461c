// One instance: its numbers, all of its metrics, a look into its process.

import { GROUPS } from "../chart_groups.js";
import { ChartsView } from "../charts_view.js";
import { notice, panel } from "../controls.js";
import { h, text } from "../dom.js";
import * as f from "../format.js";
import { ordered } from "../layout.js";
import { shownSummary } from "../loads.js";
import { ProcessMetrics, ProcessView } from "../process_view.js";
import { to } from "../router.js";
import { every } from "../signal.js";
import { figures, hostsOf, showFigures } from "./component.js";
import { exceptionList } from "./exceptions.js";

const METRICS_MS = 5_000;

export class InstancePage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal, id: route.rest[0], choice: route.choice });
    this.head = h("div", { class: "subtitle" });
    this.figures = figures();
    this.process = new ProcessView(feed, this.id, signal);
    this.metrics = new ProcessMetrics(feed, this.id, signal);
    this.faults = exceptionList(feed, { component: "all", instance: this.id }, signal);
    this.charts = new ChartsView(feed, () => this.#sources(), route.choice, { groups: GROUPS.filter((group) => group.title !== "Stream Managers"), distributed: false });
    this.element = h("div", {}, this.head, h("div", { class: "figures" }, Object.values(this.figures).map((one) => one.element)),
      this.process.elements, panel("Exceptions", null, this.faults.element), this.charts.element, this.metrics.element);
    every(METRICS_MS, () => this.#load(), signal);
  }

  route(route) {
    this.choice = route.choice;
    this.charts.route(route);
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
        h("span", {}, `container ${found.container}${host ? ` on ${host}` : ""}, at `, h("a", { href: to(at, "process", [`stmgr-${found.container}`]) }, `stmgr-${found.container}`)), h("span", {}, `pid ${now.pid || "–"}`), this.uptime,
        h("a", { href: to(at, "logs", [], { container: found.container, file: `${this.id}.log` }) }, "Log file →"));
    }
    text(this.uptime, found.uptime_s === null ? "" : `up ${f.duration(found.uptime_s)}`);
  }

  async #load() {
    if (!this.component) return;
    this.loaded = true;
    await this.metrics.load(this.component);
  }
}
