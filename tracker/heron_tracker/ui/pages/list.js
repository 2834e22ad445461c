// All topologies.

import { connection, get } from "../api.js";
import { Segments, loading, notice, search } from "../controls.js";
import { h, set, text } from "../dom.js";
import * as f from "../format.js";
import { keyOf, stateManagers, topologies } from "../live.js";
import { choose, to } from "../router.js";
import { every } from "../signal.js";
import { Table } from "../table.js";
import { UNKNOWN, isWell, lookOf, rankOf, reasonsOf, unreadable } from "../verdict.js";

const REFRESH_MS = 15_000;
const STATES = { all: { label: "All" }, Running: { label: "Running" }, Paused: { label: "Paused" }, ill: { label: "In trouble" } };

export class ListPage {
  constructor(route, signal) {
    document.title = "Topologies · heron";
    this.choice = route.choice;
    this.facts = new Map();
    this.verdicts = new Map();
    this.signal = signal;
    this.table = new Table("Topologies", columns(), {
      sort: "name", empty: "no topology runs", searched: (row) => [row.name, row.cluster, row.role, row.environ, row.user, row.status, row.health.state].join(" "),
    });
    this.search = search("Search by name, cluster, user …  ( / )", (words) => choose({ q: words }), route.choice.q ?? "");
    this.segments = new Segments("State", STATES, (state) => choose({ state: state === "all" ? null : state }));
    this.counted = h("span", { class: "note" });
    this.body = h("div", { class: "panel flush" });
    this.element = h("div", { class: "page" }, h("h1", { class: "unseen" }, "Topologies"), h("div", { class: "bar" }, this.search, this.segments.element, this.counted), this.body);
    this.body.append(loading("topologies"));
    topologies.listen(() => {
      this.show();
      this.#ask();
    }, signal);
    connection.listen(() => this.show(), signal);
    stateManagers.listen(() => this.show(), signal);
    every(REFRESH_MS, () => this.#ask(), signal);
    this.route(route);
  }

  route(route) {
    this.choice = route.choice;
    this.segments.show(route.choice.state ?? "all");
    this.table.filterBy(route.choice.q ?? "");
    this.show();
  }

  async #ask() {
    try {
      const options = { signal: this.signal };
      // Separately: a user with many topologies sees them before the last of their Topology Masters has answered.
      const [all] = await Promise.all([get("/topologies/all", {}, options), this.#assess(options)]);
      this.facts = new Map(all.map((one) => [keyOf(one), one]));
      this.show();
    } catch (error) {
      if (!["ApiError", "GoneError", "AbortError"].includes(error.constructor.name) && !this.signal.aborted) throw error;
    }
  }

  async #assess(options) {
    const all = await get("/topologies/health", {}, options);
    this.verdicts = new Map(all.map((one) => [keyOf(one), one]));
    this.show();
  }

  show() {
    if (!topologies.value) {
      if (connection.value.state === "gone") this.body.replaceChildren(notice("The Tracker does not answer", "It is asked again every few seconds."));
      return;
    }
    const all = this.#all();
    if (!all.length) {
      this.body.replaceChildren(notice("No topology runs", "Submit one, and it appears here:", h("pre", {}, "heron submit local words.py WordCount")));
      text(this.counted, "");
      return;
    }
    const rows = all.filter((row) => this.#wanted(row));
    if (this.table.element.parentElement !== this.body) this.body.replaceChildren(this.table.element);
    this.table.show(rows);
    text(this.counted, `${rows.length} of ${all.length} ${all.length === 1 ? "topology" : "topologies"}`);
    set(this.body, "data-count", rows.length);
  }

  /** Rows of all topologies, those whose state cannot be read among them: of some, an earlier state is known. */
  #all() {
    const damaged = new Map(Object.entries(stateManagers.value).flatMap(([manager, { damaged: found }]) =>
      Object.entries(found ?? {}).map(([name, why]) => [`${manager} ${name}`, { manager, name, why }])));
    const rows = [...topologies.value.values()].map((one) => {
      const id = `${one.statemgr} ${one.name}`;
      const why = damaged.get(id)?.why;
      damaged.delete(id);
      return this.#row(one, why);
    });
    return [...rows, ...[...damaged].map(([id, { manager, name, why }]) =>
      ({ key: `unreadable ${id}`, name, status: "Unreadable", cluster: manager, role: "", environ: "", user: "", version: "", health: unreadable(why), look: "ill" }))];
  }

  #row(one, why) {
    const facts = this.facts.get(keyOf(one));
    const health = why ? unreadable(why) : this.verdicts.get(keyOf(one)) ?? UNKNOWN;
    return { ...one, key: keyOf(one), health, instances: facts?.instances, submitted: facts?.submission_time, user: facts?.submission_user ?? "",
      version: facts?.release_version ?? "", look: isWell(health) ? null : "ill" };
  }

  #wanted(row) {
    const state = this.choice.state;
    return !state || state === "all" || (state === "ill" ? row.look === "ill" : row.status === state);
  }
}

const reason = ({ reasons }) => `${reasons[0]?.text ?? ""}${reasons.length > 1 ? ` (+${reasons.length - 1})` : ""}`;

const LOOKS = { Running: "ok", Paused: "warn", Killed: "bad" };

function columns() {
  return [
    { key: "name", label: "Topology", value: (row) => row.name, show: (row) => row.name, href: (row) => (row.id ? to(row) : null) },
    { key: "status", label: "State", value: (row) => row.status, show: (row) => row.status, look: (row) => `pill ${LOOKS[row.status] ?? "unknown"}` },
    { key: "health", label: "Health", value: (row) => rankOf(row.health), show: (row) => row.health.state, exact: (row) => reasonsOf(row.health) || null, look: (row) => `pill ${lookOf(row.health)}` },
    { key: "why", label: "Why", value: (row) => row.health.reasons[0]?.text ?? "", show: (row) => reason(row.health), exact: (row) => reasonsOf(row.health) || null, look: () => "why" },
    { key: "restarts", label: "Restarts", tip: "Of all processes, in the last 10 minutes", num: true, value: (row) => row.health.restarts, show: (row) => f.count(row.health.restarts), look: (row) => (row.health.restarts ? "bad-text" : "") },
    { key: "cluster", label: "Cluster", value: (row) => row.cluster, show: (row) => row.cluster },
    { key: "role", label: "Role", value: (row) => row.role, show: (row) => row.role },
    { key: "environ", label: "Environment", value: (row) => row.environ, show: (row) => row.environ },
    { key: "instances", label: "Instances", num: true, value: (row) => row.instances, show: (row) => f.count(row.instances) },
    { key: "submitted", label: "Submitted", num: true, value: (row) => row.submitted, show: (row) => (row.submitted ? f.ago(row.submitted * 1000) : f.NONE),
      exact: (row) => (row.submitted ? new Date(row.submitted * 1000).toISOString() : null) },
    { key: "user", label: "By", value: (row) => row.user, show: (row) => row.user },
    { key: "version", label: "Version", value: (row) => row.version, show: (row) => row.version },
  ];
}

