// Tables that are sorted, filtered and updated in place. Long ones show their first rows, and the others when asked.

import { Keyed, breakable, h, set, text } from "./dom.js";

const FIRST = 100;

/**
 * Columns: {key, label, tip, num, value(row): what it is sorted by, show(row): text, exact(row): tooltip,
 * href(row), chip(row): colour, share(row): length of a bar}. The first one names the row.
 */
export class Table {
  constructor(caption, columns, { sort = null, down = false, empty = "nothing", searched = (row) => row.key, onenter } = {}) {
    Object.assign(this, { columns, sort, down, empty, searched, onenter, rows: [], limit: FIRST, filter: "", loaded: false, failure: null });
    this.heads = columns.map((column) => this.#head(column));
    this.body = h("tbody", {});
    this.kept = new Keyed(this.body, () => this.#create(), (element, row) => this.#update(element, row));
    this.nothing = h("p", { class: "none" });
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.#grow() });
    this.element = h("div", { class: "table" },
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
        h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body)),
      this.nothing, this.more);
    this.element.addEventListener("keydown", (event) => this.#walk(event));
  }

  /** Show rows; each has a `key`. */
  show(rows) {
    Object.assign(this, { rows, loaded: true, failure: null });
    this.#render();
  }

  /** Say that the rows could not be asked for; those that were shown before stay. */
  failed(reason) {
    this.failure = reason;
    this.#render();
  }

  /** Show only rows in which every word of this occurs. */
  filterBy(words) {
    this.filter = words.toLowerCase();
    this.#render();
  }

  #head(column) {
    const button = h("button", { type: "button", tip: column.tip, onclick: () => this.#sortBy(column) }, column.label);
    return h("th", { scope: "col", class: column.num ? "num" : null }, button);
  }

  #sortBy(column) {
    this.down = this.sort === column.key ? !this.down : Boolean(column.num);
    this.sort = column.key;
    this.#render();
  }

  #grow() {
    this.limit += 10 * FIRST;
    this.#render();
  }

  #wanted() {
    const words = this.filter.split(/\s+/).filter(Boolean);
    const found = this.rows.filter((row) => {
      const searched = words.length && String(this.searched(row)).toLowerCase();
      return words.every((word) => searched.includes(word));
    });
    const column = this.columns.find((one) => one.key === this.sort);
    if (!column) return found;
    const order = this.down ? -1 : 1;
    return found.sort((a, b) => order * compare(column.value(a), column.value(b), order) || compare(a.key, b.key, 1));
  }

  #render() {
    const found = this.#wanted();
    this.columns.forEach((column, n) =>
      set(this.heads[n], "aria-sort", column.key === this.sort ? (this.down ? "descending" : "ascending") : null));
    this.kept.show(found.slice(0, this.limit), (row) => row.key);
    text(this.nothing, this.#note(found.length));
    this.nothing.hidden = !this.nothing.textContent;
    this.more.hidden = found.length <= this.limit;
    text(this.more, `Show more: ${this.limit} of ${found.length.toLocaleString("en")} are shown`);
  }

  /** What is said below the rows: nothing where all is well. */
  #note(found) {
    if (this.failure) return `${this.loaded ? "Could not be brought up to date" : "Could not be loaded"}: ${this.failure}`;
    if (!this.loaded) return "Loading …";
    if (found) return "";
    return this.rows.length ? `nothing matches “${this.filter}”` : this.empty;
  }

  #create() {
    return h("tr", {}, this.columns.map((column, n) => {
      const inner = column.href ? h("a", {}) : h("span", { class: "text" });
      const chip = column.chip ? h("i", { class: "chip" }) : null;
      const bar = column.share ? h("span", { class: "track" }, h("i", {})) : null;
      return h(n ? "td" : "th", { class: column.num ? "num" : null, scope: n ? null : "row" }, chip, inner, bar);
    }));
  }

  #update(element, row) {
    this.columns.forEach((column, n) => {
      const cell = element.children[n];
      const inner = cell.querySelector("a, .text");
      if (n) text(inner, column.show(row));
      else breakable(inner, column.show(row));
      if (column.href) set(inner, "href", column.href(row));
      if (column.look) set(inner, "class", `text ${column.look(row)}`);
      if (column.chip) cell.querySelector(".chip").style.background = column.chip(row);
      if (column.share) this.#bar(cell.querySelector(".track i"), column.share(row));
      set(cell, "tip", column.exact?.(row));
      if (column.num) set(cell, "data-value", column.value(row));
    });
    set(element, "class", row.look);
    set(element, "data-key", row.key);
  }

  #bar(bar, { share, color }) {
    bar.style.inlineSize = `${Math.min(1, share ?? 0) * 100}%`;
    bar.style.background = color;
  }

  /** Arrow keys go from row to row. */
  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...this.body.querySelectorAll("tr > :first-child a")];
    const next = links[links.indexOf(document.activeElement?.closest("tr")?.querySelector("a")) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}

/** Show the rows that `load` gives, or why there are none: an error is the Tracker's answer, or its silence. */
export async function loadInto(table, signal, load) {
  try {
    table.show(await load());
  } catch (error) {
    if (!signal.aborted) table.failed(error.message);
    throw error;
  }
}

// What is not known comes last, in whichever order.
function compare(a, b, order) {
  const none = (value) => value === null || value === undefined;
  if (none(a) || none(b)) return none(a) === none(b) ? 0 : none(a) ? order : -order;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
