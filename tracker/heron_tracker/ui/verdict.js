// The health of a topology, as its Topology Master assesses it: the same word and colour on every page.

import { h, set, text } from "./dom.js";

export const UNKNOWN = { state: "unknown", restarts: 0, reasons: [] };
/** Of a topology whose state in the state manager is damaged, or too large. */
export const unreadable = (why) => ({ state: "unreadable", restarts: null, reasons: [{ text: `its state cannot be read: ${why}` }] });
const LOOKS = { healthy: "ok", starting: "warn", degraded: "warn", unhealthy: "bad", unreadable: "bad" };
const ORDER = ["healthy", "unknown", "starting", "degraded", "unhealthy", "unreadable"];

export const lookOf = (health) => LOOKS[health.state] ?? "unknown";
export const isWell = (health) => ["healthy", "unknown", "starting"].includes(health.state);
/** By this, health is sorted: the larger, the worse. */
export const rankOf = (health) => ORDER.indexOf(health.state);
export const reasonsOf = (health) => health.reasons.map((one) => one.text).join("\n");

/** A pill with the word; its tooltip has the reasons. */
export function showVerdict(element, health) {
  set(element, "class", `pill ${lookOf(health)}`);
  set(element, "tip", reasonsOf(health) || null);
  text(element, health.state);
}

/** What is wrong, as a banner; hidden while nothing is. */
export class Reasons {
  constructor() {
    this.list = h("ul", {});
    this.element = h("div", { class: "banner", id: "reasons", role: "status", hidden: true }, this.list);
  }

  show(health, hidden) {
    this.element.hidden = hidden || !health.reasons.length;
    set(this.element, "class", `banner ${health.state === "unhealthy" ? "bad" : "warn"}`);
    const key = JSON.stringify(health.reasons);
    if (this.element.dataset.key === key) return;
    this.element.dataset.key = key;
    this.list.replaceChildren(...health.reasons.map((one) => h("li", {}, one.text)));
  }
}
