// "Flame graph": has a process sample itself for some seconds, and shows where its threads spent their time.

import { common, post } from "./api.js";
import { Segments, panel, search } from "./controls.js";
import { h, text } from "./dom.js";
import { FlameGraph, ownerColor } from "./flame_graph.js";
import * as f from "./format.js";
import { OWNERS, collapsed, threadsOf, treeOf } from "./profile.js";

const SECONDS = { 2: { label: "2 s" }, 5: { label: "5 s" }, 10: { label: "10 s" }, 30: { label: "30 s" } };
const WEIGHTS = { cpu: { label: "CPU time", tip: "Only what threads computed" }, wall: { label: "Time", tip: "Waiting, too" } };
const ANSWER_MS = 20_000;

export class ProfileView {
  /** Of the process `id` of the topology of `feed`. */
  constructor(feed, id, signal) {
    Object.assign(this, { feed, id, signal, seconds: "5", by: "cpu", thread: null, profile: null });
    this.durations = new Segments("For how long", SECONDS, (seconds) => this.durations.show((this.seconds = seconds)));
    this.durations.show(this.seconds);
    this.record = h("button", { type: "button", class: "primary", tip: "The process samples its own stacks, a hundred times a second", onclick: () => this.#record() }, "Record");
    this.weights = new Segments("Weight", WEIGHTS, (by) => this.#choose({ by, thread: null }));
    this.threads = h("select", { "aria-label": "Thread", onchange: (event) => this.#choose({ thread: event.target.value || null }) });
    this.search = search("Mark functions or files …", (words) => this.#mark(words));
    this.marked = h("span", { class: "note" });
    this.save = h("button", { type: "button", tip: "Collapsed stacks, as flame graph tools read them", onclick: () => this.#save() }, "Download");
    this.status = h("p", { class: "none", role: "status" }, "Nothing was recorded yet.");
    this.legend = h("span", { class: "legend" });
    this.graph = new FlameGraph(signal);
    this.tools = h("div", { class: "bar flame-tools", hidden: true }, this.weights.element, this.threads, this.search, this.marked, h("span", { class: "space" }), this.legend, this.save);
    this.graph.element.hidden = true;
    this.element = panel("Flame graph", h("div", { class: "bar" }, this.durations.element, this.record), this.tools, this.graph.element, this.status);
    document.addEventListener("heron:theme", () => this.profile && this.#legend(), { signal });
  }

  async #record() {
    const seconds = Number(this.seconds);
    this.record.disabled = true;
    const began = Date.now();
    const tick = () => text(this.status, `Sampling ${this.id}: ${Math.min(seconds, Math.round((Date.now() - began) / 1000))} of ${seconds} s …`);
    const timer = setInterval(tick, 500);
    tick();
    try {
      const parameters = { ...common(this.feed.at), instance: this.id, seconds };
      this.profile = await post("/topologies/profile", parameters, { signal: this.signal, timeoutMs: 1000 * seconds + ANSWER_MS });
      clearInterval(timer);
      this.#choose({ thread: null });
    } catch (error) {
      clearInterval(timer);
      if (!this.signal.aborted) text(this.status, `Could not be recorded: ${error.message}`);
    } finally {
      this.record.disabled = false;
    }
  }

  #choose(changes) {
    Object.assign(this, changes);
    this.weights.show(this.by);
    const threads = threadsOf(this.profile, this.by);
    const option = (value, label) => h("option", { value, selected: value === (this.thread ?? "") }, label);
    const total = threads.reduce((sum, [, weight]) => sum + weight, 0);
    this.threads.replaceChildren(option("", "All threads"), ...threads.map(([name, weight]) => option(name, `${name} (${f.percent(total ? weight / total : 0)})`)));
    this.tools.hidden = this.graph.element.hidden = false;
    this.graph.show(treeOf(this.profile, this.by, this.thread));
    this.#mark(this.search.value);
    this.#legend();
    text(this.status, this.#summary(total));
  }

  #summary(total) {
    const { samples, seconds, cost_cpu_s: cost, dropped, pid } = this.profile;
    return [this.by === "cpu" && !total ? "It used no CPU time: choose “Time” to see where it waits" : null,
      `${f.count(samples)} samples in ${f.duration(seconds)} of pid ${pid}`, this.by === "cpu" ? `${f.percent(total / 1000 / seconds)} of a core` : null,
      `sampling took ${f.percent(cost / seconds)} of a core`, dropped ? `${f.count(dropped)} rare stacks left out` : null].filter(Boolean).join(" · ");
  }

  #legend() {
    this.legend.replaceChildren(...Object.entries(OWNERS).map(([owner, label]) => {
      const chip = h("i", { class: "chip" });
      chip.style.background = ownerColor(owner);
      return h("span", { class: "note" }, chip, label);
    }));
  }

  #mark(words) {
    const share = this.graph.mark(words.trim());
    text(this.marked, words.trim() ? `${f.percent(share)} of what is shown` : "");
  }

  #save() {
    const url = URL.createObjectURL(new Blob([collapsed(this.profile, this.by)], { type: "text/plain" }));
    h("a", { href: url, download: `${this.id}-${this.by}.collapsed.txt` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}
