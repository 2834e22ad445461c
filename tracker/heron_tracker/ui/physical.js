// The physical plan on a canvas: thousands of arcs are one element, and drawn in a few milliseconds.

import { h, set, text } from "./dom.js";
import { themeColor } from "./colors.js";
import { arcs, hit } from "./rings.js";
import { hideTip, showTip } from "./tooltip.js";

/** Inner and outer radius of hosts, containers and instances, as shares of half the side. */
const RADII = [[0.3, 0.42], [0.43, 0.6], [0.61, 0.97]];

/** Thin arcs lap over the next by so much, or the background shines through between them. */
const SEAM = 0.003;

export class PhysicalPlan {
  /** `onopen(arc)`: an instance was pressed; `tip(arc)`: what its tooltip says. */
  constructor({ onopen, tip }) {
    Object.assign(this, { onopen, tip, zoom: null, cursor: -1, found: [], tree: [] });
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Physical plan: arrow keys go from instance to instance, Enter opens one" });
    this.said = h("p", { class: "unseen", "aria-live": "polite" });
    this.back = h("button", { type: "button", class: "zoom-out", hidden: true, onclick: () => this.#zoomTo(null) }, "Whole topology");
    this.element = h("div", { class: "physical" }, this.canvas, this.back, this.said);
    this.canvas.addEventListener("pointermove", (event) => this.#over(this.#at(event), event));
    this.canvas.addEventListener("pointerleave", () => this.#over(null));
    this.canvas.addEventListener("click", (event) => this.#press(this.#at(event)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("blur", () => this.#move(-1));
  }

  start(signal) {
    const seen = new ResizeObserver(() => this.draw());
    seen.observe(this.element);
    signal.addEventListener("abort", () => seen.disconnect());
    document.addEventListener("heron:theme", () => this.draw(), { signal });
  }

  /** Show hosts (of `rings.hosts`). `colorOf(arc)`: its fill; `lit(arc)`: whether it is among what is selected. */
  show(tree, { colorOf, lit, center }) {
    Object.assign(this, { tree, colorOf, lit, center });
    this.found = arcs(tree, this.zoom);
    this.draw();
  }

  draw() {
    const side = Math.min(this.element.clientWidth, 420);
    if (!side || !this.colorOf) return;
    const ratio = devicePixelRatio;
    this.side = side;
    if (this.canvas.width !== Math.round(side * ratio)) {
      this.canvas.width = this.canvas.height = Math.round(side * ratio);
      this.canvas.style.inlineSize = this.canvas.style.blockSize = `${side}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, side, side);
    context.translate(side / 2, side / 2);
    const colors = { line: themeColor("panel"), text: themeColor("text"), muted: themeColor("muted"), ring: themeColor("ring"), strong: themeColor("text") };
    const instances = this.found.filter((arc) => arc.ring === 2);
    for (const arc of this.found) this.#arc(context, arc, colors, this.found.length > 400);
    const marked = instances[this.cursor] ?? this.hovered;
    if (marked) this.#outline(context, marked, colors.strong);
    this.#labels(context, colors);
  }

  #path(context, arc, more = 0) {
    const [inner, outer] = RADII[arc.ring].map((share) => (share * this.side) / 2);
    context.beginPath();
    context.arc(0, 0, outer, arc.from, arc.to + more);
    context.arc(0, 0, inner, arc.to + more, arc.from, true);
    context.closePath();
  }

  #arc(context, arc, colors, many) {
    const lit = this.lit(arc);
    this.#path(context, arc, many && lit && arc.ring === 2 ? SEAM : 0);
    context.globalAlpha = lit ? 1 : 0.22;
    context.fillStyle = arc.ring === 2 ? this.colorOf(arc) : colors.ring;
    context.fill();
    context.globalAlpha = 1;
    if (arc.ring === 2 && many) return; // lines would hide what is between them
    context.strokeStyle = colors.line;
    context.lineWidth = arc.ring === 2 ? 1 : 1.5;
    context.stroke();
  }

  #outline(context, arc, color) {
    this.#path(context, arc);
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.stroke();
  }

  #labels(context, colors) {
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.center.forEach((line, n) => {
      context.fillStyle = n ? colors.muted : colors.text;
      context.font = `${n ? 11.5 : "600 14"}px system-ui, sans-serif`;
      context.fillText(line, 0, (n - (this.center.length - 1) / 2) * 17);
    });
    for (const arc of this.found) this.#label(context, arc, colors);
  }

  /** Names of hosts and containers along their arcs, where there is room. */
  #label(context, arc, colors) {
    if (arc.ring === 2) return;
    const [inner, outer] = RADII[arc.ring].map((share) => (share * this.side) / 2);
    const radius = (inner + outer) / 2;
    const label = arc.ring ? String(arc.container.number) : arc.host.id;
    context.font = `${arc.ring ? "600 12" : 11}px system-ui, sans-serif`;
    const room = (arc.to - arc.from) * radius;
    if (context.measureText(label).width + 8 > room) return;
    context.fillStyle = arc.ring ? colors.text : colors.muted;
    const middle = arc.to - arc.from > 6 ? -Math.PI / 2 : (arc.from + arc.to) / 2;
    context.save();
    context.rotate(middle);
    context.translate(radius, 0);
    context.rotate(Math.sin(middle) > 0.01 ? -Math.PI / 2 : Math.PI / 2);
    context.fillText(label, 0, 0);
    context.restore();
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const half = this.side / 2;
    const radii = RADII.map((ring) => ring.map((share) => share * half));
    return hit(this.found, radii, event.clientX - box.left - half, event.clientY - box.top - half);
  }

  #over(arc, event) {
    if (arc !== this.hovered) {
      this.hovered = arc?.ring === 2 ? arc : null;
      this.canvas.style.cursor = arc ? "pointer" : "";
      this.draw();
    }
    if (arc && event) showTip(this.tip(arc), event.clientX, event.clientY);
    else hideTip();
  }

  #press(arc) {
    if (arc?.ring === 2) this.onopen(arc);
    else this.#zoomTo(arc && arc.id !== this.zoom ? arc.id : null);
  }

  #zoomTo(id) {
    this.zoom = id;
    this.cursor = -1;
    this.found = arcs(this.tree, id);
    this.back.hidden = !id;
    this.draw();
  }

  #key(event) {
    const instances = this.found.filter((arc) => arc.ring === 2);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && instances.length) {
      event.preventDefault();
      this.#move((this.cursor + step + instances.length + (this.cursor < 0 && step < 0 ? 1 : 0)) % instances.length);
      const arc = instances[this.cursor];
      const box = this.canvas.getBoundingClientRect();
      const middle = (arc.from + arc.to) / 2;
      text(this.said, this.tip(arc));
      showTip(this.tip(arc), box.left + this.side / 2 + Math.cos(middle) * this.side * 0.4, box.top + this.side / 2 + Math.sin(middle) * this.side * 0.4);
    } else if (event.key === "Enter" && instances[this.cursor]) this.onopen(instances[this.cursor]);
    else if (event.key === "Escape" && this.zoom) this.#zoomTo(null);
  }

  #move(cursor) {
    this.cursor = cursor;
    set(this.canvas, "data-instance", this.found.filter((arc) => arc.ring === 2)[cursor]?.id);
    this.draw();
  }
}
