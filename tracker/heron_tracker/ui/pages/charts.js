// Charts of the whole topology.

import { ChartsView, allSources } from "../charts_view.js";
import { h } from "../dom.js";
import { ordered } from "../layout.js";
import { UserMetrics } from "../user_metrics.js";

export class ChartsPage {
  constructor(feed, route, signal) {
    const order = () => ordered(feed.info.logical_plan).names;
    const sources = () => (feed.info ? allSources(feed.latest, order()) : []);
    this.view = new ChartsView(feed, sources, route.choice);
    this.own = new UserMetrics(feed, sources, null, signal);
    this.element = h("div", {}, this.view.element, this.own.element);
    this.drawn = false;
    this.view.start(signal);
  }

  route(route) {
    this.view.route(route);
    this.own.refresh().catch(() => {});
  }

  show() {
    if (!this.drawn) {
      this.view.refresh().catch(() => {});
      this.own.refresh().catch(() => {});
    }
    this.drawn = true;
  }
}
