// A look into a live process: its threads, memory and objects, a flame graph, and all of its metrics.

import { common, get, post } from "./api.js";
import { panel, search } from "./controls.js";
import { h, text } from "./dom.js";
import * as f from "./format.js";
import { ProfileView } from "./profile_view.js";
import { Table, loadInto } from "./table.js";

const LOOKS = { jstack: ["Stacks", "What each thread of the process does now"], jmap: ["Memory", "The memory of the process, and its garbage collector"],
  histo: ["Objects", "The objects of the process by type"], pmap: ["Mappings", "The memory of the process by mapping, as the kernel counts it"], pid: ["Process", "The pid of the process"] };

/** What can be looked into of the process `id`: buttons, their output, and the flame graph. */
export class ProcessView {
  constructor(feed, id, signal) {
    Object.assign(this, { feed, id, signal });
    this.output = h("pre", { class: "output", hidden: true, tabindex: 0, "aria-live": "polite" });
    const buttons = Object.entries(LOOKS).map(([path, [label, tip]]) => h("button", { type: "button", tip, onclick: (event) => this.#look(path, event.currentTarget) }, label));
    this.profile = new ProfileView(feed, id, signal);
    this.elements = [panel("Look into the process", h("div", { class: "buttons" }, buttons), this.output), this.profile.element];
  }

  async #look(path, button) {
    button.disabled = true;
    this.output.hidden = false;
    text(this.output, `${LOOKS[path][1]} …`);
    try {
      const { command, stdout, stderr } = await (path === "pid" ? get : post)(`/topologies/${path}`, { ...common(this.feed.at), instance: this.id }, { signal: this.signal });
      text(this.output, [`$ ${command}`, stdout, stderr].filter(Boolean).join("\n"));
    } catch (error) {
      if (!this.signal.aborted) text(this.output, `Could not be loaded: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  }
}

/** All metrics of one process. */
export class ProcessMetrics {
  constructor(feed, id, signal) {
    Object.assign(this, { feed, id, signal });
    this.table = new Table(`Metrics of ${id}`, metricColumns(), { sort: "key", empty: "nothing was reported yet" });
    this.element = panel("All metrics", search("Search metrics …  ( / )", (words) => this.table.filterBy(words)), this.table.element);
  }

  /** Ask for them. `component`: whose they are. */
  async load(component) {
    const parameters = { ...common(this.feed.at), component, instance: this.id, interval: this.feed.interval };
    await loadInto(this.table, this.signal, async () => {
      const found = await get("/topologies/metrics", parameters, { signal: this.signal });
      return Object.entries(found.metrics).map(([key, values]) => ({ key, value: Number(values[this.id]), exact: values[this.id] }));
    });
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
