// One component: its place in the plan, its instances, its streams, its charts.

import { common, get } from "../api.js";
import { GROUPS } from "../chart_groups.js";
import { ChartsView } from "../charts_view.js";
import { componentColor } from "../colors.js";
import { Figure, notice, panel, search } from "../controls.js";
import { h, set } from "../dom.js";
import * as f from "../format.js";
import { ordered } from "../layout.js";
import { loadColumns, shownSummary } from "../loads.js";
import { to } from "../router.js";
import { every } from "../signal.js";
import { Table, loadInto } from "../table.js";
import { UserMetrics } from "../user_metrics.js";
import { exceptionList } from "./exceptions.js";

const STREAMS_MS = 10_000;
const LABELS = { "__emit-count": "Emitted", "__execute-count": "Executed", "__ack-count": "Acked", "__fail-count": "Failed",
  "__complete-latency": "Complete", "__execute-latency": "Execute", "__process-latency": "Process" };
const PER_STREAM = Object.keys(LABELS);

export class ComponentPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal, name: route.rest[0], choice: route.choice });
    this.head = h("div", { class: "subtitle" });
    this.figures = figures();
    this.table = new Table(`Instances of ${this.name}`, this.#columns(), { sort: "id", empty: "no instances", searched: (row) => `${row.id} ${row.host}` });
    this.search = search("Search instances …  ( / )", (words) => this.table.filterBy(words));
    this.streams = new Table("Streams", streamColumns(), { sort: "key", empty: "nothing was reported yet" });
    this.faults = exceptionList(feed, { component: this.name }, signal);
    this.charts = new ChartsView(feed, () => this.#sources(), route.choice, { groups: GROUPS.filter((group) => group.title !== "Stream Managers") });
    this.own = new UserMetrics(feed, () => this.#sources(), this.name, signal);
    this.element = h("div", {}, this.head, h("div", { class: "figures" }, Object.values(this.figures).map((one) => one.element)),
      panel("Instances", this.search, this.table.element), panel("Streams", null, this.streams.element), panel("Exceptions", null, this.faults.element), this.own.element, this.charts.element);
    every(STREAMS_MS, () => this.#streams(), signal);
  }

  route(route) {
    this.choice = route.choice;
    this.charts.route(route);
    this.own.refresh().catch(() => {});
    this.#streams().catch(() => {});
  }

  show() {
    const row = shownSummary(this.feed).components.find((one) => one.name === this.name);
    if (!row) {
      this.element.replaceChildren(notice(`There is no component ${this.name}`, h("p", {}, h("a", { href: to(this.feed.at) }, "All components"))));
      return;
    }
    this.#head(row);
    showFigures(this.figures, row);
    const hosts = hostsOf(this.feed.info);
    const ram = this.feed.ram(this.name);
    const now = this.feed.latest.components.find((one) => one.name === this.name);
    const attached = new Map(now.instances.map((one) => [one.id, one.attached]));
    this.table.show(row.instances.map((one) => ({ ...one, key: one.id, ram, host: hosts.get(one.container) ?? "–", attached: attached.get(one.id) })));
    if (!this.started) {
      this.charts.start(this.signal);
      this.own.refresh().catch(() => {});
    }
    this.started = true;
  }

  #head(row) {
    const { logical_plan: plan } = this.feed.info;
    const at = (name) => h("a", { href: to(this.feed.at, "component", [name], { interval: this.choice.interval }) }, name);
    const readers = Object.entries(plan.bolts).filter(([, bolt]) => bolt.inputComponents.includes(this.name)).map(([name]) => name);
    const inputs = plan.bolts[this.name]?.inputs ?? [];
    const chip = h("i", { class: "chip large" });
    chip.style.background = componentColor(ordered(plan).names.indexOf(this.name));
    const list = (label, items) => (items.length ? h("span", {}, `${label} `, items) : null);
    const parts = [h("h2", {}, chip, this.name), h("span", { class: "pill unknown" }, row.kind), h("span", {}, `${row.parallelism} ${row.parallelism === 1 ? "instance" : "instances"}`),
      list("reads", inputs.map((input, n) => [n ? ", " : "", at(input.component_name), ` ${input.stream_name} (${input.grouping.toLowerCase()})`]).flat()),
      list("runs", chainOf(plan, this.name)),
      list("read by", readers.map((name, n) => [n ? ", " : "", at(name)]).flat())];
    const key = JSON.stringify([row.parallelism, this.choice.interval, document.documentElement.dataset.theme]);
    if (this.head.dataset.key === key) return;
    this.head.dataset.key = key;
    this.head.replaceChildren(...parts.filter(Boolean));
  }

  #columns() {
    const { at } = this.feed;
    return [
      { key: "id", label: "Instance", value: (row) => row.id, show: (row) => row.id, href: (row) => to(at, "instance", [row.id], { interval: this.choice.interval }) },
      { key: "attached", label: "State", value: (row) => String(row.attached), show: (row) => (row.attached ? "runs" : "away"), look: (row) => `pill ${row.attached ? "ok" : "bad"}`,
        exact: (row) => (row.attached ? `attached to its Stream Manager, pid ${row.pid}` : "not attached to its Stream Manager") },
      { key: "container", label: "Container", num: true, value: (row) => row.container, show: (row) => String(row.container), exact: (row) => `host ${row.host}` },
      { key: "uptime_s", label: "Uptime", num: true, value: (row) => row.uptime_s, show: (row) => f.duration(row.uptime_s), exact: (row) => `__uptime-secs: ${f.exact(row.uptime_s)}` },
      ...loadColumns(this.feed, { percentiles: false }), // distributions are kept by component
    ];
  }

  #sources() {
    const { info, latest } = this.feed;
    const row = latest?.components.find((one) => one.name === this.name);
    return row ? [{ name: row.name, kind: row.kind, parallelism: row.parallelism, number: ordered(info.logical_plan).names.indexOf(row.name) }] : [];
  }

  async #streams() {
    const parameters = { ...common(this.feed.at), component: this.name, metricname: PER_STREAM.map((name) => `${name}/*`), interval: this.feed.interval };
    await loadInto(this.streams, this.signal, async () => {
      try {
        return streamRows((await get("/topologies/metrics", parameters, { signal: this.signal })).metrics);
      } catch (error) {
        if (error.status === 404) return []; // nothing was ever reported
        throw error;
      }
    });
  }
}

const chainOf = (plan, name) => [(plan.spouts[name] ?? plan.bolts[name])?.chain].filter(Boolean);

/** One row a stream. Means are weighed by the counts of their instances. */
function streamRows(metrics) {
  const rows = new Map();
  for (const [name, values] of Object.entries(metrics)) {
    const [metric, ...rest] = name.split("/");
    const key = rest.join("/");
    if (!rows.has(key)) rows.set(key, { key });
    const weights = metrics[`${metric.includes("complete") ? "__ack-count" : "__execute-count"}/${key}`] ?? {};
    rows.get(key)[metric] = metric.endsWith("latency") ? mean(values, weights) : Object.values(values).reduce((sum, value) => sum + Number(value), 0);
  }
  return [...rows.values()];
}

function mean(values, weights) {
  let [sum, all] = [0, 0];
  for (const [instance, value] of Object.entries(values)) {
    const weight = Number(weights[instance] ?? 1) || 1;
    sum += Number(value) * weight;
    all += weight;
  }
  return all ? sum / all / 1e6 : null;
}

function streamColumns() {
  const column = (metric, label, show) => ({ key: metric, label, num: true, value: (row) => row[metric] ?? null, show: (row) => show(row[metric]),
    exact: (row) => `${metric}/${row.key}: ${f.exact(row[metric])}${metric.endsWith("latency") ? " ms" : ""}` });
  return [{ key: "key", label: "Stream", value: (row) => row.key, show: (row) => row.key },
    ...PER_STREAM.map((metric) => column(metric, LABELS[metric], metric.endsWith("latency") ? f.latency : f.count))];
}

export function figures() {
  return { emitted: new Figure("Emitted", "__emit-count"), executed: new Figure("Executed", "__execute-count"), acked: new Figure("Acked", "__ack-count"),
    failed: new Figure("Failed", "__fail-count"), latency: new Figure("Latency", "__complete-latency of a spout, __execute-latency of a bolt"),
    capacity: new Figure("Capacity", "__execute-count × __execute-latency ÷ time"), resources: new Figure("CPU and memory", "__py-user-cpu-time-secs + __py-sys-cpu-time-secs per second, __py-physical-memory-byte"),
    held: new Figure("Backpressure", "__time_spent_back_pressure_by_compid") };
}

export function showFigures(all, row) {
  const counted = (figure, value, rate, look = "") => figure.show(f.count(value), rate === null ? "" : f.rate(rate), { exact: f.exact(value), look });
  counted(all.emitted, row.emitted, row.emit_rate);
  counted(all.executed, row.executed, row.execute_rate);
  counted(all.acked, row.acked, null);
  counted(all.failed, row.failed, null, row.failed ? "bad" : "");
  const spout = row.complete_latency_ms !== null;
  const latency = spout ? row.complete_latency_ms : row.execute_latency_ms;
  all.latency.show(f.latency(latency), latency === null ? "" : spout ? "complete" : `process ${f.latency(row.process_latency_ms)}`, { exact: `${f.exact(latency)} ms` });
  all.capacity.show(f.percent(row.capacity), row.instances ? "of the busiest" : "", { exact: f.exact(row.capacity), look: row.capacity > 0.9 ? "warn" : "" });
  all.resources.show(row.cpu_cores === null ? f.NONE : `${f.cores(row.cpu_cores)} cores`, f.bytes(row.memory_bytes), { exact: `${f.exact(row.cpu_cores)} cores, ${f.exact(row.memory_bytes)} bytes` });
  all.held.show(row.backpressure_ms === null ? f.NONE : row.backpressure_ms ? f.duration(row.backpressure_ms / 1000) : "none", row.backpressure_ms ? "throttled the spouts" : "",
    { exact: `${f.exact(row.backpressure_ms)} ms`, look: row.backpressure_ms ? "warn" : "" });
}

/** The host of each container. */
export function hostsOf(info) {
  return new Map(Object.values(info.physical_plan?.stmgrs ?? {}).map((one) => [Number(one.id.replace(/^\D*/, "")), one.host]));
}
