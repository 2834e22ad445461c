// A Stream Manager: where it runs, a look into its process, its metrics.

import { notice } from "../controls.js";
import { h } from "../dom.js";
import { address } from "../format.js";
import { ProcessMetrics, ProcessView } from "../process_view.js";
import { to } from "../router.js";
import { every } from "../signal.js";

const METRICS_MS = 5_000;
const COMPONENT = "__stmgr__";

export class ProcessPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, id: route.rest[0], signal });
    this.head = h("div", { class: "subtitle" });
    this.process = new ProcessView(feed, this.id, signal);
    this.metrics = new ProcessMetrics(feed, this.id, signal);
    this.element = h("div", {}, this.head, this.process.elements, this.metrics.element);
    every(METRICS_MS, () => this.metrics.load(COMPONENT), signal);
  }

  route() {
    this.metrics.load(COMPONENT).catch(() => {});
  }

  show() {
    const { at, info } = this.feed;
    const found = info.physical_plan?.stmgrs[this.id];
    if (!found) {
      this.element.replaceChildren(notice(`There is no Stream Manager ${this.id}`, h("p", {}, h("a", { href: to(at) }, "The topology"))));
      return;
    }
    const container = this.id.replace(/^\D*/, "");
    const key = JSON.stringify(found);
    if (this.head.dataset.key === key) return;
    this.head.dataset.key = key;
    const instances = found.instance_ids.map((id, n) => [n ? ", " : "", h("a", { href: to(at, "instance", [id]) }, id)]);
    this.head.replaceChildren(h("h2", {}, this.id), h("span", { class: "pill unknown" }, "Stream Manager"), h("span", {}, `container ${container} on ${address(found.host, found.port)}`),
      h("span", {}, `pid ${found.pid}`), h("span", {}, "of ", instances), h("a", { href: to(at, "logs", [], { container, file: `${this.id}.log` }) }, "Log file →"));
  }
}
