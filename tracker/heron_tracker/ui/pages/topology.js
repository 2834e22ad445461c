// One topology: what all of its pages have at the top, and which of them is shown.

import { Actions } from "../actions.js";
import { connection } from "../api.js";
import { INTERVALS, Segments, intervalOf, loading, notice, pill, showPill } from "../controls.js";
import { h, set, text } from "../dom.js";
import * as f from "../format.js";
import { Feed } from "../feed.js";
import { keyOf, topologies } from "../live.js";
import { TABS, choose, to } from "../router.js";
import { Reasons, UNKNOWN, showVerdict } from "../verdict.js";
import { ChartsPage } from "./charts.js";
import { CheckpointsPage } from "./checkpoints.js";
import { ComponentPage } from "./component.js";
import { ConfigPage } from "./config.js";
import { ExceptionsPage } from "./exceptions.js";
import { InstancePage } from "./instance.js";
import { LogsPage } from "./logs.js";
import { OverviewPage } from "./overview.js";
import { PipelinePage } from "./pipeline.js";
import { ProcessPage } from "./process.js";

const PAGES = { overview: OverviewPage, charts: ChartsPage, exceptions: ExceptionsPage, logs: LogsPage, config: ConfigPage, checkpoints: CheckpointsPage, pipeline: PipelinePage, component: ComponentPage, instance: InstancePage, process: ProcessPage };
const LABELS = { overview: "Overview", charts: "Charts", exceptions: "Exceptions", logs: "Logs", config: "Configuration", checkpoints: "Checkpoints", pipeline: "Pipeline" };
const OPTIONAL = { checkpoints: "takes_checkpoints", pipeline: "has_pipeline" }; // by what a topology has
const TIMED = ["overview", "charts", "component", "instance"];

export class TopologyPage {
  constructor(route, signal) {
    Object.assign(this, { at: route.at, signal, inner: null });
    this.feed = new Feed(route.at, intervalOf(route.choice), signal);
    this.status = pill();
    this.health = h("span", { class: "pill", id: "health", tabindex: 0 });
    this.reasons = new Reasons();
    this.actions = new Actions(route.at, signal);
    this.facts = h("span", { class: "facts" });
    this.links = h("span", { class: "facts" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Pages of this topology" }, TABS.map((tab) => h("a", { hidden: tab in OPTIONAL }, LABELS[tab])));
    this.times = new Segments("Time", INTERVALS, (interval) => choose({ interval: interval === "600" ? null : interval }));
    this.aged = h("span", { class: "pill warn", id: "as-of", hidden: true });
    this.banner = h("div", { class: "banner bad", role: "alert", hidden: true, id: "tmaster-lost" });
    this.body = h("div", { class: "body" }, loading(route.at.name));
    this.element = h("div", { class: "page" },
      h("div", { class: "title" }, h("h1", {}, route.at.name), this.status, this.health, this.facts, this.links, h("span", { class: "space" }), this.actions.element),
      h("div", { class: "bar tabbed" }, this.tabs, h("span", { class: "bar" }, this.aged, this.times.element)), this.banner, this.reasons.element, this.body);
    this.feed.changed.listen(() => this.show(), signal);
    topologies.listen(() => this.show(), signal);
    connection.listen(() => this.show(), signal);
    this.route(route);
  }

  route(route) {
    this.current = route;
    const interval = intervalOf(route.choice);
    document.title = `${[...route.rest, this.at.name].join(" · ")} · heron`;
    this.times.show(interval);
    this.times.element.hidden = !TIMED.includes(route.tab);
    [...this.tabs.children].forEach((link, n) => {
      set(link, "href", to(this.at, TABS[n], [], { interval: route.choice.interval }));
      set(link, "aria-current", TABS[n] === route.tab || (!TABS.includes(route.tab) && n === 0) ? "page" : null);
    });
    this.started();
    this.feed.choose(interval);
    this.#inner(route);
    this.show();
  }

  /** Have the current tab in sight: a phone has no room for all of them. */
  started() {
    const tab = this.tabs.querySelector("[aria-current]")?.getBoundingClientRect();
    const box = this.tabs.getBoundingClientRect();
    if (tab) this.tabs.scrollLeft += Math.max(0, tab.right - box.right) - Math.max(0, box.left - tab.left);
  }

  #inner(route) {
    const key = JSON.stringify([route.tab, route.rest]);
    if (this.inner?.key === key) return this.inner.page.route?.(route);
    this.inner?.ended.abort();
    const ended = new AbortController();
    this.signal.addEventListener("abort", () => ended.abort());
    this.inner = { key, ended, page: new PAGES[route.tab](this.feed, route, ended.signal) };
    if (this.ready) this.body.replaceChildren(this.inner.page.element);
    scrollTo(0, 0);
    return undefined;
  }

  show() {
    const { feed } = this;
    const gone = feed.error || (topologies.value && !topologies.value.has(keyOf(this.at)));
    if (gone && !this.ready) {
      this.body.replaceChildren(notice("There is no such topology", feed.error?.message ?? `${this.at.name} is not among the topologies of ${this.at.cluster}/${this.at.role}/${this.at.environ}.`,
        h("p", {}, h("a", { href: "#/" }, "All topologies"))));
      this.times.element.hidden = true;
      return;
    }
    this.#heading(gone);
    this.#banner(gone);
    if (!feed.info || !feed.latest) {
      if (connection.value.state === "gone") this.body.replaceChildren(notice("The Tracker does not answer", "This page comes as soon as it does."));
      return;
    }
    if (!this.ready) {
      this.ready = true;
      this.body.replaceChildren(this.inner.page.element);
    }
    this.inner.page.show?.();
  }

  #heading(gone) {
    const summary = topologies.value?.get(keyOf(this.at));
    const state = this.feed.info?.execution_state;
    showPill(this.status, gone ? "Killed" : summary?.status ?? state?.status ?? "Unknown");
    this.actions.show(summary?.status ?? state?.status, Boolean(this.feed.info?.takes_checkpoints));
    const health = (gone ? null : this.feed.latest?.health) ?? UNKNOWN;
    showVerdict(this.health, health);
    this.reasons.show(health, Boolean(gone) || this.feed.tmaster !== "ok");
    if (!state) return;
    for (const [name, has] of Object.entries(OPTIONAL)) {
      const tab = this.tabs.children[TABS.indexOf(name)];
      if (tab.hidden !== Boolean(this.feed.info[has])) continue;
      tab.hidden = !this.feed.info[has];
      this.started();
    }
    const containers = this.feed.info.packing_plan?.container_plans.length ?? 0;
    text(this.facts, `${state.instances.toLocaleString("en")} instances in ${containers} ${containers === 1 ? "container" : "containers"} · submitted ${f.ago(state.submission_time * 1000)} by ${state.submission_user} · heronpy ${state.release_version}`);
    set(this.facts, "tip", `${this.feed.info.id}\nsubmitted ${new Date(state.submission_time * 1000).toISOString()}`);
    if (this.links.childElementCount !== state.extra_links.length) {
      this.links.replaceChildren(...state.extra_links.map((one) => h("a", { href: safe(one.url), rel: "noreferrer", target: "_blank" }, one.name)));
    }
  }

  #banner(gone) {
    const { feed } = this;
    const lost = feed.latest && feed.tmaster !== "ok";
    this.banner.hidden = !lost && !gone;
    document.body.classList.toggle("old", Boolean(lost || gone));
    this.aged.hidden = !(lost || gone) || !feed.summary || !TIMED.includes(this.current.tab);
    if (feed.summary) text(this.aged, `last known, as of ${f.clock(feed.summary.at_ms)}`);
    if (gone) return this.banner.replaceChildren(h("b", {}, "This topology was killed. "), "What you see is the last that was known of it.");
    if (!lost) return undefined;
    const since = /since (\S+)$/.exec(feed.tmaster)?.[1];
    const age = feed.summary ? `The numbers are the last known, as of ${f.clock(feed.summary.at_ms)}.` : "No numbers of it are known.";
    return this.banner.replaceChildren(h("b", {}, "The Topology Master does not answer"), since ? ` since ${f.clock(since)} (${f.ago(since)})` : `: ${feed.tmaster}`,
      `. The topology was ${feed.latest.status.toLowerCase()}, and its tuples may still flow. ${age}`);
  }
}

// An address of the Tracker's configuration; one that is no web address is not made a link.
const safe = (url) => (/^https?:\/\//i.test(url) ? url : null);
