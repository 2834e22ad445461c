// Charts of the whole topology.

import { ChartsView, allSources } from "../charts_view.js";
import { ordered } from "../layout.js";

export class ChartsPage {
  constructor(feed, _route, signal) {
    const order = () => ordered(feed.info.logical_plan).names;
    this.view = new ChartsView(feed, () => (feed.info ? allSources(feed.latest, order()) : []), undefined);
    this.element = this.view.element;
    this.drawn = false;
    this.view.start(signal);
  }

  route() {
    this.view.refresh().catch(() => {});
  }

  show() {
    if (!this.drawn) this.route();
    this.drawn = true;
  }
}
