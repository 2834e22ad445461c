// Small things that pages are made of.

import { h, set, text } from "./dom.js";

/** Buttons of which one is pressed. `options`: value → {label, tip}. */
export class Segments {
  constructor(label, options, onchoose) {
    this.buttons = Object.entries(options).map(([value, option]) =>
      h("button", { type: "button", value, tip: option.tip, onclick: () => onchoose(value) }, option.label));
    this.element = h("div", { class: "segments", role: "group", "aria-label": label }, this.buttons);
  }

  show(value) {
    for (const button of this.buttons) set(button, "aria-pressed", String(button.value === String(value)));
  }
}

export const INTERVALS = { 600: { label: "10 min" }, 3600: { label: "1 h" }, 10800: { label: "3 h" }, "-1": { label: "All" } };
export const intervalOf = (choice) => (choice.interval in INTERVALS ? Number(choice.interval) : 600);

/** A word with a shape and a colour: state of a topology. */
export function pill() {
  return h("span", { class: "pill" });
}

const LOOKS = { Running: "ok", Paused: "warn", Killed: "bad", Unknown: "unknown" };
export function showPill(element, status) {
  set(element, "class", `pill ${LOOKS[status] ?? "unknown"}`);
  text(element, status);
}

/** A number with its name and a line below. */
export class Figure {
  constructor(label, tip) {
    this.value = h("span", { class: "value" }, "–");
    this.note = h("span", { class: "note" });
    this.element = h("div", { class: "figure", tip, tabindex: tip ? 0 : null }, h("span", { class: "label" }, label), this.value, this.note);
    this.tip = tip;
  }

  show(value, note = "", { exact = "", look = "" } = {}) {
    text(this.value, value);
    text(this.note, note);
    set(this.element, "tip", [exact, this.tip].filter(Boolean).join("\n"));
    set(this.element, "class", `figure ${look}`);
  }
}

/** What a page says instead of data. */
export const notice = (title, ...lines) => h("div", { class: "empty" }, h("h2", {}, title), lines.map((line) => (line instanceof Node ? line : h("p", {}, line))));

export const loading = (what) => h("div", { class: "empty loading", "aria-busy": "true" }, h("span", { class: "spinner" }), `Loading ${what} …`);

export const panel = (title, controls, ...content) =>
  h("section", { class: "panel", "aria-label": title }, h("div", { class: "panel-head" }, h("h2", {}, title), controls), content);

export const search = (label, oninput, value = "") =>
  h("input", { type: "search", class: "search", placeholder: label, "aria-label": label, value, spellcheck: "false", autocomplete: "off",
    oninput: (event) => oninput(event.target.value) });
