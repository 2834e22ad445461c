// One chart: lines over time, with a legend that shows the values under the cursor.

import { h, set, text } from "./dom.js";
import { themeColor } from "./colors.js";
import { clock } from "./format.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const HEIGHT = 170;
const BINARY = Array.from({ length: 45 }, (_, n) => 2 ** n); // steps of an axis of bytes
const together = uPlot.sync("charts");

export class Chart {
  /** `show(value)`: a value as text; `tip`: the names of the metrics behind it. */
  constructor(title, { show, tip }) {
    Object.assign(this, { format: show, hidden: new Set(), lines: [], plot: null });
    this.legend = h("div", { class: "legend" });
    this.drawing = h("div", { class: "drawing" });
    this.nothing = h("p", { class: "none" }, "Loading …");
    this.title = h("figcaption", { tip }, title);
    this.element = h("figure", { class: "chart" }, this.title, this.drawing, this.nothing, this.legend);
  }

  name(title) {
    text(this.title, title);
  }

  start(signal) {
    this.drawn = "";
    const seen = new ResizeObserver(() => this.plot?.setSize({ width: this.drawing.clientWidth || 300, height: HEIGHT }));
    seen.observe(this.drawing);
    document.addEventListener("heron:theme", () => this.#draw(true), { signal });
    signal.addEventListener("abort", () => {
      seen.disconnect();
      this.plot?.destroy();
    });
  }

  /** Say that nothing could be asked; what was drawn before stays. */
  failed() {
    if (!this.lines.length) text(this.nothing, "Could not be loaded");
  }

  /** Show lines: [{name, color, data: Map time in s → value}], over a time in s. */
  show(lines, from, to) {
    this.lines = lines.filter((line) => line.data.size);
    this.range = [from, to];
    text(this.nothing, "nothing was reported in this time");
    this.nothing.hidden = this.lines.length > 0;
    this.drawing.hidden = this.lines.length === 0;
    this.#draw(false);
  }

  #draw(again) {
    if (!this.lines.length) {
      this.plot?.destroy();
      this.plot = null;
      this.legend.replaceChildren();
      this.drawn = "";
      return;
    }
    const times = [...new Set(this.lines.flatMap((line) => [...line.data.keys()]))].sort((a, b) => a - b);
    const data = [times, ...this.lines.map((line) => times.map((time) => line.data.get(time) ?? null))];
    const drawn = JSON.stringify(this.lines.map((line) => [line.name, line.color()]));
    if (this.plot && drawn === this.drawn && !again) return this.plot.setData(data);
    this.drawn = drawn;
    this.plot?.destroy();
    this.#legend();
    this.plot = new uPlot(this.#options(), data, this.drawing);
    return undefined;
  }

  #options() {
    const axis = { stroke: themeColor("muted"), grid: { stroke: themeColor("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif", gap: 6 };
    const binary = this.format(1024).includes("KiB") ? { incrs: BINARY } : {};
    return {
      width: this.drawing.clientWidth || 300,
      height: HEIGHT,
      padding: [10, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: together.key }, points: { size: 6 }, drag: { x: false, y: false }, y: false },
      scales: { x: { range: () => this.range }, y: { range: (_plot, low, high) => range(low, high) } },
      axes: [
        { ...axis, space: 70, size: 24, values: (_plot, at) => at.map((time) => clock(time * 1000).slice(0, -3)) },
        { ...axis, ...binary, size: 66, space: 32, values: (_plot, at) => at.map((value) => this.format(value)) },
      ],
      series: [{}, ...this.lines.map((line) => ({
        label: line.name, stroke: line.color(), width: 1.6, show: !this.hidden.has(line.name), spanGaps: false, points: { show: line.data.size < 3, size: 5 },
      }))],
      hooks: { setCursor: [(plot) => this.#values(plot.cursor.idx)] },
    };
  }

  #legend() {
    this.entries = this.lines.map((line, n) => {
      const value = h("b", {});
      const chip = h("i", { class: "chip" });
      chip.style.background = line.color();
      const entry = h("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.name)), onclick: () => this.#toggle(line.name, n) }, chip, line.name, value);
      return { entry, value };
    });
    this.legend.replaceChildren(...this.entries.map(({ entry }) => entry));
  }

  #toggle(name, n) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    set(this.entries[n].entry, "aria-pressed", String(!this.hidden.has(name)));
    this.plot.setSeries(n + 1, { show: !this.hidden.has(name) });
  }

  #values(index) {
    this.entries.forEach(({ value }, n) => {
      const found = index === null || index === undefined ? undefined : this.plot?.data[n + 1]?.[index];
      text(value, found === undefined || found === null ? "" : this.format(found));
    });
  }
}

// From zero, so that heights can be compared; below it only for what is negative.
function range(low, high) {
  const [from, to] = [Math.min(0, low * 1.08), Math.max(0, high * 1.08)];
  return from === to ? [0, 1] : [from, to];
}
