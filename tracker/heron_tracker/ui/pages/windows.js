// The counters of a whole topology over ten minutes, an hour, three hours and all time, side by side.

import { h, set, text } from "../dom.js";
import * as f from "../format.js";
import { whole } from "../loads.js";

const WINDOWS = [[600, "10 min"], [3600, "1 h"], [10800, "3 h"], [-1, "All time"]];
const ROWS = [
  ["emitted", "Emitted by spouts", "__emit-count", f.count], ["acked", "Acked", "__ack-count", f.count], ["failed", "Failed", "__fail-count", f.count],
  ["executed", "Executed by bolts", "__execute-count", f.count], ["rate", "Emitted per second", "__emit-count ÷ time", f.rate],
  ["complete_latency_ms", "Complete latency", "__complete-latency in ms", f.latency], ["held_ms", "Backpressure", "__time_spent_back_pressure_by_compid in ms", (ms) => f.duration(ms === null ? null : ms / 1000)],
];

export class Windows {
  constructor() {
    this.cells = new Map();
    const row = ([key, label, metric]) => h("tr", {}, h("th", { scope: "row", tip: metric }, label), WINDOWS.map(([interval]) => {
      const cell = h("td", { class: "num", "data-counter": `${key} ${interval}` }, f.NONE);
      this.cells.set(`${key} ${interval}`, cell);
      return cell;
    }));
    this.element = h("div", { class: "table" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Counters" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Counter"), WINDOWS.map(([, label]) => h("th", { scope: "col", class: "num" }, label)))), h("tbody", {}, ROWS.map(row)))));
  }

  /** `summaries`: Map interval → summary, of those that are there; `age_s`: of the topology. */
  show(summaries, age_s) {
    for (const [n, [interval, label]] of WINDOWS.entries()) {
      const summary = summaries.get(interval);
      if (!summary) continue;
      // Of a topology that is younger than the column before this one, this one would only say the same again.
      if (interval > 0 && n && age_s < WINDOWS[n - 1][0]) {
        this.#blank(interval, `The topology is younger than ${label}`);
        continue;
      }
      const sums = whole(summary);
      for (const [key, , metric, show] of ROWS) {
        const cell = this.cells.get(`${key} ${interval}`);
        text(cell, show(sums[key]));
        set(cell, "tip", `${metric}: ${f.exact(sums[key])}`);
        set(cell, "data-value", sums[key]);
      }
    }
  }

  #blank(interval, why) {
    for (const [key] of ROWS) {
      const cell = this.cells.get(`${key} ${interval}`);
      text(cell, f.NONE);
      set(cell, "tip", why);
      set(cell, "data-value", null);
    }
  }
}
