// The lines of a log file. Bounded: of very long ones the oldest are forgotten.

import { h, text } from "../dom.js";

const LINES_MAX = 5_000;
const LEVEL = /\b(?:(ERROR|CRITICAL|FATAL)|(WARNING|WARN))\b/;

export class LogView {
  /** `onscrollup`: the reader wants to stay where they are. */
  constructor(onscrollup) {
    this.words = "";
    this.partial = "";
    this.element = h("div", { class: "log", role: "log", tabindex: 0, "aria-label": "Log file", "aria-live": "off" });
    this.element.addEventListener("wheel", (event) => event.deltaY < 0 && onscrollup(), { passive: true });
    this.element.addEventListener("keydown", (event) => ["ArrowUp", "PageUp", "Home"].includes(event.key) && onscrollup());
  }

  clear() {
    this.partial = "";
    this.element.replaceChildren();
  }

  /** Add text at the end. `cut`: it begins in the middle of a line, which is left out. */
  append(data, cut) {
    const lines = (this.partial + data).split("\n");
    if (cut) lines.shift();
    this.element.querySelector(".partial")?.remove();
    this.partial = lines.pop() ?? "";
    const added = lines.map((line) => this.#line(line));
    if (this.partial) added.push(this.#line(this.partial, "partial"));
    this.element.append(...added);
    while (this.element.childElementCount > LINES_MAX) this.element.firstChild.remove();
  }

  /** Add text at the beginning. */
  prepend(data, cut) {
    const before = this.element.scrollHeight;
    const lines = data.split("\n");
    if (cut) lines.shift();
    if (lines.at(-1) === "") lines.pop();
    this.element.prepend(...lines.map((line) => this.#line(line)));
    this.element.scrollTop += this.element.scrollHeight - before;
  }

  search(words) {
    this.words = words.toLowerCase();
    for (const line of this.element.children) this.#mark(line, line.textContent);
  }

  onlyMatches(only) {
    this.element.classList.toggle("only", only);
  }

  get matches() {
    return this.element.querySelectorAll(".match").length;
  }

  toMatch() {
    this.element.querySelector(".match:last-of-type, .match")?.scrollIntoView({ block: "nearest" });
  }

  toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  #line(value, more = "") {
    const level = LEVEL.exec(value.slice(0, 80));
    const line = h("div", { class: `line ${level ? (level[1] ? "error" : "warning") : ""} ${more}` });
    this.#mark(line, value);
    return line;
  }

  /** Write the text, with what was searched for in marks. */
  #mark(line, value) {
    const found = this.words ? value.toLowerCase().split(this.words) : [value];
    line.classList.toggle("match", found.length > 1);
    if (found.length === 1) {
      text(line, value);
      return;
    }
    const parts = [];
    let at = 0;
    for (const [n, part] of found.entries()) {
      parts.push(value.slice(at, at + part.length));
      at += part.length;
      if (n < found.length - 1) parts.push(h("mark", {}, value.slice(at, at + this.words.length)));
      at += this.words.length;
    }
    line.replaceChildren(...parts);
  }
}
