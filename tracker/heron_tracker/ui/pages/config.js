// The whole configuration that is in force, with the origin of every value.

import { get, place } from "../api.js";
import { Segments, search } from "../controls.js";
import { h, text } from "../dom.js";
import { choose } from "../router.js";
import { every } from "../signal.js";
import { Table, loadInto } from "../table.js";

const REFRESH_MS = 30_000;
const HIDDEN = "********";
const WHICH = { all: { label: "All" }, set: { label: "Not default", tip: "What the cluster, the command line, the topology or a component set" } };
const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export class ConfigPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, settings: [] });
    this.table = new Table("Configuration", columns(), { empty: "nothing is configured", searched: (row) => `${row.name} ${row.of} ${row.value} ${row.origin}` });
    this.search = search("Search keys, values and origins …  ( / )", (words) => choose({ q: words }), route.choice.q ?? "");
    this.which = new Segments("Which", WHICH, (which) => choose({ which: which === "all" ? null : which }));
    this.counted = h("span", { class: "note", role: "status" });
    this.incomplete = h("div", { class: "banner warn", hidden: true });
    this.element = h("div", {}, h("div", { class: "bar" }, this.search, this.which.element, this.counted), this.incomplete, h("div", { class: "panel flush config" }, this.table.element));
    this.route(route);
    every(REFRESH_MS, () => loadInto(this.table, signal, async () => {
      const { settings, incomplete } = await get(`${place(feed.at)}/effectiveconfig`, {}, { signal });
      this.settings = settings.map((one) => ({ ...one, key: `${one.of} ${one.key}`, name: one.key, value: shown(one.value) }));
      this.incomplete.hidden = !incomplete;
      text(this.incomplete, incomplete ? `The engine's values, and who set the topology's, are not known here: ${incomplete}` : "");
      return this.#chosen();
    }), signal);
  }

  route({ choice }) {
    this.chosen = choice.which in WHICH ? choice.which : "all";
    this.which.show(this.chosen);
    this.table.filterBy(choice.q ?? "");
    if (this.settings.length) this.table.show(this.#chosen());
  }

  #chosen() {
    const rows = this.settings.filter((one) => this.chosen === "all" || one.origin !== "default");
    text(this.counted, `${rows.length} of ${this.settings.length} values`);
    return rows;
  }
}

function columns() {
  return [
    { key: "name", label: "Key", value: (row) => row.name, show: (row) => row.name, look: () => "mono" },
    { key: "value", label: "Value", value: (row) => row.value, show: (row) => row.value, exact: (row) => (row.value.includes(HIDDEN) ? "Hidden: it looks like a secret, or its key speaks of one" : null), look: () => "mono" },
    { key: "of", label: "Of", value: (row) => row.of, show: (row) => row.of },
    { key: "origin", label: "Origin", tip: "Defaults < files of the cluster < command line < topology < component", value: (row) => row.origin, show: (row) => row.origin, look: (row) => (row.origin === "default" ? "muted" : "") },
  ];
}
