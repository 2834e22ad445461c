// Exceptions: by class, and one by one with their stacks.

import { common, get } from "../api.js";
import { panel, search } from "../controls.js";
import { Keyed, h, set, text } from "../dom.js";
import * as f from "../format.js";
import { choose, to } from "../router.js";
import { every } from "../signal.js";
import { Table, loadInto } from "../table.js";

const REFRESH_MS = 5_000;
const SHOWN = 200;

export class ExceptionsPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal });
    this.summary = new Table("Exceptions by class", summaryColumns(), { sort: "count", down: true, empty: "No exceptions were reported." });
    this.list = exceptionList(feed, { component: "all" }, signal);
    this.search = search("Search exceptions …  ( / )", (words) => choose({ q: words }), route.choice.q ?? "");
    this.element = h("div", {}, panel("By class", null, this.summary.element), panel("Where, and how", this.search, this.list.element));
    every(REFRESH_MS, () => this.#load(), signal);
    this.route(route);
  }

  route(route) {
    this.list.filterBy(route.choice.q ?? "");
  }

  async #load() {
    await loadInto(this.summary, this.signal, async () => {
      const found = await get("/topologies/exceptionsummary", { ...common(this.feed.at), component: "all" }, { signal: this.signal });
      return found.map((one) => ({ ...one, key: one.class_name }));
    });
  }
}

function summaryColumns() {
  const when = (key, label) => ({ key, label, num: true, value: (row) => row[key], show: (row) => f.ago(row[key]), exact: (row) => row[key] });
  return [{ key: "key", label: "Class", value: (row) => row.key, show: (row) => row.key, look: () => "mono" },
    { key: "count", label: "Count", num: true, value: (row) => row.count, show: (row) => f.count(row.count), exact: (row) => f.exact(row.count) },
    when("firsttime", "First"), when("lasttime", "Last")];
}

/** A list that keeps itself up to date: {element, filterBy(words)}. `of`: the component and instance that are asked for. */
export function exceptionList(feed, of, signal) {
  const list = h("div", { class: "faults" });
  const nothing = h("p", { class: "none" }, "Loading …");
  const element = h("div", {}, nothing, list);
  const kept = new Keyed(list, () => fault(), (item, one) => showFault(item, one, feed.at));
  let all = [];
  let words = [];
  const show = () => {
    const found = all.filter((one) => words.every((word) => `${one.stacktrace} ${one.instance_id}`.toLowerCase().includes(word))).slice(0, SHOWN);
    kept.show(found, (one) => `${one.instance_id} ${one.firsttime} ${one.stacktrace}`);
    nothing.hidden = found.length > 0;
    text(nothing, all.length ? "Nothing matches." : "No exceptions were reported.");
  };
  every(REFRESH_MS, async () => {
    try {
      const found = await get("/topologies/exceptions", { ...common(feed.at), ...of }, { signal });
      all = found.reverse(); // the latest first
      show();
    } catch (error) {
      if (signal.aborted || !["ApiError", "GoneError"].includes(error.constructor.name)) throw error;
      nothing.hidden = all.length > 0;
      text(nothing, `Could not be loaded: ${error.message}`);
    }
  }, signal);
  return {
    element,
    filterBy(wanted) {
      words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
      if (all.length) show();
    },
  };
}

function fault() {
  return h("details", { class: "fault" },
    h("summary", {}, h("span", { class: "message" }), h("span", { class: "count" }), h("span", { class: "note" })), h("p", { class: "facts" }), h("pre", { tabindex: 0 }));
}

function showFault(element, one, at) {
  const [head, facts, stack] = element.children;
  const lines = one.stacktrace.trim().split("\n");
  text(head.children[0], lines.at(-1));
  text(head.children[1], `${f.count(one.count)}×`);
  text(head.children[2], `${one.instance_id} · ${f.ago(one.lasttime)}`);
  set(head, "tip", `first ${one.firsttime}\nlast ${one.lasttime}`);
  if (!facts.childElementCount) facts.append(h("a", { href: to(at, "instance", [one.instance_id]) }, one.instance_id), h("span", {}), h("span", {}));
  text(facts.children[1], ` on ${one.hostname || "an unknown host"} · `);
  text(facts.children[2], `first ${f.clock(one.firsttime)}, last ${f.clock(one.lasttime)}, ${f.exact(one.count)} times${one.logging ? ` · ${one.logging}` : ""}`);
  text(stack, one.stacktrace);
}
