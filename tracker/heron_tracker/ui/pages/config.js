// The configuration of a topology and of its components.

import { common, get } from "../api.js";
import { search } from "../controls.js";
import { h } from "../dom.js";
import { choose } from "../router.js";
import { every } from "../signal.js";
import { Table } from "../table.js";

const REFRESH_MS = 30_000;
const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export class ConfigPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, config: {} });
    this.table = new Table("Configuration", [
      { key: "name", label: "Key", value: (row) => row.name, show: (row) => row.name, look: () => "mono" },
      { key: "of", label: "Of", value: (row) => row.of, show: (row) => row.of },
      { key: "value", label: "Value", value: (row) => row.value, show: (row) => row.value, exact: (row) => (row.value === "********" ? "Hidden: its key speaks of a secret" : null), look: () => "mono" },
    ], { empty: "nothing is configured", searched: (row) => `${row.name} ${row.of} ${row.value}` });
    this.search = search("Search keys and values …  ( / )", (words) => choose({ q: words }), route.choice.q ?? "");
    this.element = h("div", {}, h("div", { class: "bar" }, this.search), h("div", { class: "panel flush" }, this.table.element));
    every(REFRESH_MS, async () => {
      this.config = await get("/topologies/config", common(feed.at), { signal });
      this.show();
    }, signal);
    this.route(route);
  }

  route(route) {
    this.table.filterBy(route.choice.q ?? "");
  }

  show() {
    const plan = this.feed.info?.logical_plan;
    const parts = [["topology", this.config]];
    for (const one of Object.entries({ ...plan?.spouts, ...plan?.bolts })) parts.push([one[0], one[1].config]);
    this.table.show(parts.flatMap(([of, config]) =>
      Object.entries(config).map(([name, value]) => ({ key: `${of} ${name}`, of, name, value: shown(value) }))));
  }
}
