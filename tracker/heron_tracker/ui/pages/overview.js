// The overview of a topology: figures, who causes backpressure, both plans, and the counters.

import { componentColor, healthColor } from "../colors.js";
import { Segments, panel } from "../controls.js";
import { Keyed, h, set, text } from "../dom.js";
import * as f from "../format.js";
import { HEALTH } from "../health.js";
import { ordered } from "../layout.js";
import { chipOf, componentRows, loadColumns, shownSummary } from "../loads.js";
import { LogicalPlan } from "../logical.js";
import { PhysicalPlan } from "../physical.js";
import { hosts } from "../rings.js";
import { choose, to } from "../router.js";
import { Table } from "../table.js";
import { Figures } from "./figures.js";
import { Windows } from "./windows.js";

const CULPRITS = 6;

export class OverviewPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal });
    this.figures = new Figures();
    this.culprits = h("ol", { class: "culprits" });
    this.kept = new Keyed(this.culprits, () => culpritElement(), (element, one) => this.#culprit(element, one));
    this.blame = panel("Backpressure is caused by", null, this.culprits);
    this.colors = new Segments("Colour by", HEALTH, (color) => choose({ color: color === "component" ? null : color }));
    this.scale = h("span", { class: "scale" });
    this.logical = new LogicalPlan((name) => choose({ focus: this.focus === name ? null : name }));
    this.physical = new PhysicalPlan({ onopen: (arc) => (location.hash = to(feed.at, "instance", [arc.id], { interval: this.choice.interval })), tip: (arc) => this.#tip(arc) });
    this.physical.start(signal);
    this.open = h("a", { class: "open", hidden: true });
    this.table = new Table("Components", this.#columns(), { empty: "no components" });
    this.windows = new Windows();
    this.element = h("div", { class: "overview" }, this.figures.element, this.blame,
      h("div", { class: "bar" }, h("span", { class: "note" }, "Colour by"), this.colors.element, this.scale),
      h("div", { class: "plans" },
        panel("Logical plan", this.open, h("div", { class: "drawing-room" }, this.logical.element)),
        panel("Physical plan", h("span", { class: "note" }, "hosts, containers, instances"), this.physical.element)),
      panel("Components", null, this.table.element), panel("Counters", h("span", { class: "note" }, "of the whole topology"), this.windows.element));
    const seen = new ResizeObserver(() => this.plan && this.show());
    seen.observe(this.logical.element.parentElement);
    signal.addEventListener("abort", () => seen.disconnect());
    document.addEventListener("heron:theme", () => this.plan && this.show(), { signal });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.focus && choose({ focus: null }), { signal });
    this.route(route);
  }

  route(route) {
    this.choice = route.choice;
    this.color = route.choice.color in HEALTH ? route.choice.color : "component";
    this.focus = route.choice.focus ?? null;
    this.colors.show(this.color);
    if (this.plan) this.show();
  }

  show() {
    const { info } = this.feed;
    if (this.plan !== info.logical_plan) {
      this.plan = info.logical_plan;
      this.order = ordered(this.plan).names;
      this.logical.plan(this.plan);
    }
    if (!this.order.includes(this.focus)) this.focus = null;
    const summary = shownSummary(this.feed);
    this.rows = componentRows(this.feed, this.order);
    this.figures.show(summary);
    this.#blame(summary);
    this.#scale();
    this.logical.show(this.#looks(summary), this.focus);
    this.#rings(summary);
    this.table.show(this.rows.map((row) => ({ ...row, look: row.name === this.focus ? "chosen" : null })));
    this.windows.show(this.feed.good, Date.now() / 1000 - info.execution_state.submission_time);
    this.open.hidden = !this.focus;
    if (this.focus) {
      set(this.open, "href", to(this.feed.at, "component", [this.focus], { interval: this.choice.interval }));
      text(this.open, `Open ${this.focus} →`);
    }
  }

  #columns() {
    const column = (key, label, more) => ({ key, label, value: (row) => row[key], show: (row) => String(row[key]), ...more });
    return [
      column("name", "Component", { value: (row) => row.number, chip: chipOf, exact: (row) => this.#chain(row.name), href: (row) => to(this.feed.at, "component", [row.name], { interval: this.choice.interval }) }),
      column("kind", "Kind"), column("parallelism", "Instances", { num: true }), ...loadColumns(this.feed),
    ];
  }

  /** What a component of a streamlet program runs. */
  #chain(name) {
    const { chain, operators } = this.plan.spouts[name] ?? this.plan.bolts[name];
    return operators.length > 1 ? `runs ${chain}` : null;
  }

  #share(load, ram) {
    const health = HEALTH[this.color];
    if (!health.share) return undefined;
    const share = this.feed.summary ? health.share(load, this.feed.summary, ram) : null;
    return share === null ? null : share / health.full;
  }

  #looks(summary) {
    const worst = summary.culprits[0] && this.#componentOf(summary, summary.culprits[0].instance);
    return new Map(this.rows.map((row) => {
      const share = this.#share(row, row.ram);
      const done = row.kind === "spout" ? ["emitted", row.emit_rate ?? row.emitted] : ["executed", row.execute_rate ?? row.executed];
      const rate = (row.kind === "spout" ? row.emit_rate : row.execute_rate) !== null;
      const lines = [`×${row.parallelism} · ${rate ? f.rate(done[1]) : f.count(done[1])}`, latencyLine(row)];
      const tip = [`${row.kind} ${row.name}`, this.#chain(row.name), ...lines, share === undefined ? null : `${HEALTH[this.color].label}: ${share === null ? "not reported" : f.percent(share * HEALTH[this.color].full)}`,
        worst === row.name ? "It causes the most backpressure" : null].filter(Boolean).join("\n");
      return [row.name, { color: componentColor(row.number), share, fill: healthColor(share), kind: `${row.kind}${worst === row.name ? " blamed" : ""}`, lines, tip }];
    }));
  }

  #componentOf(summary, id) {
    return summary.components.find((one) => one.instances.some((instance) => instance.id === id))?.name;
  }

  #rings(summary) {
    const number = new Map(this.order.map((name, n) => [name, n]));
    const tree = hosts(this.feed.info.physical_plan, summary);
    const count = summary.components.reduce((n, one) => n + one.instances.length, 0);
    const ram = new Map(this.order.map((name) => [name, this.feed.ram(name)]));
    this.physical.show(tree, {
      colorOf: ({ instance }) => {
        const share = this.#share(instance.load, ram.get(instance.component));
        return share === undefined ? componentColor(number.get(instance.component)) : healthColor(share);
      },
      lit: (arc) => !this.focus || (arc.ring === 2 ? arc.instance.component === this.focus : true),
      center: [count.toLocaleString("en"), count === 1 ? "instance" : "instances"],
    });
  }

  #tip(arc) {
    if (arc.ring === 0) return `host ${arc.host.id}\n${arc.host.containers.length} containers`;
    if (arc.ring === 1) return `container ${arc.container.number}\n${arc.container.stmgr ? `${arc.container.stmgr.id} at ${f.address(arc.host.id, arc.container.stmgr.port)}, pid ${arc.container.stmgr.pid}` : arc.host.id}\n${arc.container.instances.length} instances`;
    const { load, component } = arc.instance;
    const lines = Object.entries(HEALTH).filter(([, one]) => one.share).map(([, one]) => {
      const share = this.feed.summary ? one.share(load, this.feed.summary, this.feed.ram(component)) : null;
      return `${one.label}: ${share === null ? "not reported" : one.show(share)}`;
    });
    const done = `emitted ${f.exact(load.emitted)}, executed ${f.exact(load.executed)}, failed ${f.exact(load.failed)}`;
    return [arc.id, load.attached ? `runs, pid ${load.pid}` : "is not attached to its Stream Manager", done, ...lines].join("\n");
  }

  #scale() {
    const health = HEALTH[this.color];
    this.scale.hidden = !health.share;
    if (!health.share) return;
    const key = `${this.color} ${document.documentElement.dataset.theme}`;
    if (this.scale.dataset.key === key) return;
    this.scale.dataset.key = key;
    const steps = Array.from({ length: 24 }, (_, n) => {
      const step = h("i", {});
      step.style.background = healthColor(n / 23);
      return step;
    });
    this.scale.replaceChildren("0", h("span", { class: "ramp", tip: health.tip }, steps), `${f.percent(health.full)}${health.full < 1 ? " and more" : ""}`);
  }

  #blame(summary) {
    this.blame.hidden = !summary.culprits.length;
    this.most = summary.culprits[0]?.held_ms ?? 1;
    this.kept.show(summary.culprits.slice(0, CULPRITS), (one) => one.instance);
  }

  #culprit(element, one) {
    const [link, bar, held] = element.children;
    const name = this.#componentOf(shownSummary(this.feed), one.instance);
    set(link, "href", to(this.feed.at, "instance", [one.instance], { interval: this.choice.interval }));
    text(link.lastChild, one.instance);
    link.firstChild.style.background = componentColor(Math.max(0, this.order.indexOf(name)));
    bar.firstChild.style.inlineSize = `${(100 * one.held_ms) / this.most}%`;
    text(held, `throttled the spouts for ${f.duration(one.held_ms / 1000)}`);
    set(element, "tip", `__time_spent_back_pressure_by_compid/${one.instance}: ${f.exact(one.held_ms)} ms`);
  }
}

function culpritElement() {
  return h("li", {}, h("a", {}, h("i", { class: "chip" }), h("span", {})), h("span", { class: "held" }, h("i", {})), h("span", { class: "note" }));
}

function latencyLine(row) {
  if (row.kind === "spout") return row.complete_latency_ms === null ? "spout" : `complete ${f.latency(row.complete_latency_ms)}`;
  return row.execute_latency_ms === null ? "bolt" : `execute ${f.latency(row.execute_latency_ms)}`;
}
