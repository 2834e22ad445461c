// All topologies.

import { connection, get } from "../api.js";
import { Segments, loading, notice, search } from "../controls.js";
import { h, set, text } from "../dom.js";
import * as f from "../format.js";
import { keyOf, topologies } from "../live.js";
import { choose, to } from "../router.js";
import { every } from "../signal.js";
import { Table } from "../table.js";

const REFRESH_MS = 15_000;
const STATES = { all: { label: "All" }, Running: { label: "Running" }, Paused: { label: "Paused" }, ill: { label: "In trouble" } };

const ill = (one) => one.tmaster && one.tmaster !== "ok";
const health = (one) => (ill(one) ? "Topology Master unreachable" : one.has_physical_plan === false ? "starting" : one.tmaster === "ok" ? "healthy" : "unknown");

export class ListPage {
  constructor(route, signal) {
    document.title = "Topologies · heron";
    this.choice = route.choice;
    this.facts = new Map();
    this.signal = signal;
    this.table = new Table("Topologies", columns(), {
      sort: "name", empty: "no topology runs", searched: (row) => [row.name, row.cluster, row.role, row.environ, row.user, row.status, row.health].join(" "),
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
      const all = await get("/topologies/all", {}, { signal: this.signal });
      this.facts = new Map(all.map((one) => [keyOf(one), one]));
      this.show();
    } catch (error) {
      if (!["ApiError", "GoneError", "AbortError"].includes(error.constructor.name) && !this.signal.aborted) throw error;
    }
  }

  show() {
    if (!topologies.value) {
      if (connection.value.state === "gone") this.body.replaceChildren(notice("The Tracker does not answer", "It is asked again every few seconds."));
      return;
    }
    const all = [...topologies.value.values()];
    if (!all.length) {
      this.body.replaceChildren(notice("No topology runs", "Submit one, and it appears here:", h("pre", {}, "heron submit local words.py WordCount")));
      text(this.counted, "");
      return;
    }
    const rows = all.map((one) => this.#row(one)).filter((row) => this.#wanted(row));
    if (this.table.element.parentElement !== this.body) this.body.replaceChildren(this.table.element);
    this.table.show(rows);
    text(this.counted, `${rows.length} of ${all.length} ${all.length === 1 ? "topology" : "topologies"}`);
    set(this.body, "data-count", rows.length);
  }

  #row(one) {
    const facts = this.facts.get(keyOf(one));
    return { ...one, key: keyOf(one), health: health(one), instances: facts?.instances, submitted: facts?.submission_time, user: facts?.submission_user ?? "",
      version: facts?.release_version ?? "", look: ill(one) ? "ill" : null };
  }

  #wanted(row) {
    const state = this.choice.state;
    return !state || state === "all" || (state === "ill" ? row.look === "ill" : row.status === state);
  }
}

const LOOKS = { Running: "ok", Paused: "warn", Killed: "bad" };

function columns() {
  return [
    { key: "name", label: "Topology", value: (row) => row.name, show: (row) => row.name, href: (row) => to(row) },
    { key: "status", label: "State", value: (row) => row.status, show: (row) => row.status, look: (row) => `pill ${LOOKS[row.status] ?? "unknown"}` },
    { key: "health", label: "Health", value: (row) => row.health, show: (row) => row.health, exact: (row) => (ill(row) ? row.tmaster : null), look: (row) => (ill(row) ? "bad-text" : "") },
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

