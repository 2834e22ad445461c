// The logical plan: boxes and arrows. Pressing a component selects it, and its instances light up in the other plan.

import { Keyed, pressable, s, set, text } from "./dom.js";
import { placed } from "./layout.js";

const WIDTH = 150;
const HEIGHT = 54;
const LINE = 14; // of the operators of a streamlet program, where there are any
const LETTERS = 19;
const ACROSS = { along: 206, aside: 78 };
const DOWN = { along: 96, aside: 166 };
const MARGIN = 12;
const LEGIBLE = 0.85;

export class LogicalPlan {
  /** `onpress(name)`: a component was pressed. */
  constructor(onpress) {
    this.onpress = onpress;
    this.edges = s("g", {});
    this.nodes = s("g", {});
    this.element = s("svg", { class: "logical", role: "group", "aria-label": "Logical plan" },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" },
        s("path", { d: "M0 0 8 4 0 8z", class: "arrow" }))),
      this.edges, this.nodes);
    this.keptEdges = new Keyed(this.edges, (edge) => this.#edge(edge), (element, edge) => this.#showEdge(element, edge));
    this.keptNodes = new Keyed(this.nodes, (node) => this.#node(node), (element, node) => this.#showNode(element, node));
  }

  /** Lay a plan out. */
  plan(plan) {
    this.layout = placed(plan);
    this.inputs = plan.bolts;
    this.operators = new Map([...Object.entries(plan.spouts), ...Object.entries(plan.bolts)].map(([name, one]) => [name, one.operators ?? []]));
    const more = [...this.operators.values()].some((one) => one.length > 1) ? LINE : 0;
    this.box = { width: WIDTH, height: HEIGHT + more };
    this.spacing = [{ ...ACROSS, aside: ACROSS.aside + more }, { ...DOWN, along: DOWN.along + more }];
  }

  /** Show it. `looks`: name → {color, fill, share, kind, lines, tip}; `selected`: a name or null. */
  show(looks, selected) {
    const room = (this.element.parentElement?.clientWidth || 800) - 28;
    // Across, unless letters would become small and down they would not.
    const [across, down] = [false, true].map((vertical) => Math.min(1, room / this.#size(vertical)[0]));
    this.vertical = across < LEGIBLE && down > across;
    this.steps = this.spacing[Number(this.vertical)];
    this.selected = selected;
    const [width, height] = this.#size(this.vertical);
    set(this.element, "viewBox", `0 0 ${width} ${height}`);
    // Never larger than drawn: letters keep the size of the page's.
    this.element.style.maxInlineSize = `${Math.round(width * 1.25)}px`;
    this.keptEdges.show(this.layout.edges, (edge) => edge.key);
    this.keptNodes.show(this.layout.names.map((name) => ({ name, place: this.layout.nodes.get(name), look: looks.get(name) })), (node) => node.name);
  }

  /** Width and height, if it goes across or down. */
  #size(vertical) {
    const { layers, breadth } = this.layout;
    const [steps, box] = [this.spacing[Number(vertical)], this.box];
    const along = (layers - 1) * steps.along + (vertical ? box.height : box.width) + 2 * MARGIN;
    const aside = (breadth - 1) * steps.aside + (vertical ? box.width : box.height) + 2 * MARGIN;
    return vertical ? [aside, along] : [along, aside];
  }

  #at({ layer, at }) {
    const along = MARGIN + layer * this.steps.along;
    const aside = MARGIN + at * this.steps.aside;
    return this.vertical ? [aside, along] : [along, aside];
  }

  #edge() {
    return s("path", { class: "edge", "marker-end": "url(#arrow)" });
  }

  #showEdge(element, edge) {
    const { width, height } = this.box;
    const [ends, half] = this.vertical ? [[width / 2, height], [width / 2, 0]] : [[width, height / 2], [0, height / 2]];
    const shift = ([x, y], [dx, dy]) => [x + dx, y + dy];
    const middle = [width / 2, height / 2];
    const way = [
      shift(this.#at(this.layout.nodes.get(edge.from)), ends),
      ...edge.bends.map((bend) => shift(this.#at(bend), middle)),
      shift(this.#at(this.layout.nodes.get(edge.to)), half),
    ];
    let path = `M${way[0]}`;
    for (let n = 1; n < way.length; n++) path += this.#curve(way[n - 1], way[n]);
    set(element, "d", path);
    set(element, "tip", `${edge.from} → ${edge.to}\n${edge.streams.join("\n")}`);
    const lit = this.selected && [edge.from, edge.to].includes(this.selected);
    set(element, "class", `edge${lit ? " lit" : this.selected ? " dim" : ""}`);
  }

  #curve([x1, y1], [x2, y2]) {
    return this.vertical ? `C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` : `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
  }

  #node({ name }) {
    const label = (className, y) => s("text", { class: className, x: 16, y });
    const element = s("g", { class: "node", role: "button", tabindex: 0, "data-component": name },
      s("rect", { class: "box", width: WIDTH, rx: 7 }),
      s("rect", { class: "stripe", width: 6, rx: 3 }),
      label("name", 19), label("line", 34), label("line", 47), label("line operators", 60),
      s("rect", { class: "gauge", x: 100, y: 12, width: 40, height: 5, rx: 2.5 }),
      s("rect", { class: "gauge-fill", x: 100, y: 12, width: 40, height: 5, rx: 2.5 }));
    return pressable(element, () => this.onpress(name));
  }

  #showNode(element, { name, place, look }) {
    const [box, stripe, title, first, second, third, track, fill] = element.children;
    set(element, "transform", `translate(${this.#at(place)})`);
    set(element, "class", `node ${look.kind}${this.selected === name ? " selected" : this.selected ? " dim" : ""}`);
    set(element, "aria-pressed", String(this.selected === name));
    set(element, "aria-label", `${look.kind} ${name}: ${look.lines.join(", ")}`);
    set(element, "tip", look.tip);
    set(stripe, "fill", look.color);
    const barred = look.share !== undefined;
    const room = barred ? 10 : 16;
    text(title, cut(name, room));
    for (const shape of [box, stripe]) set(shape, "height", this.box.height);
    text(third, cut(this.operators.get(name).slice(1).map((one) => `→ ${one.name}`).join(" "), LETTERS));
    text(first, look.lines[0] ?? "");
    text(second, look.lines[1] ?? "");
    set(track, "visibility", barred ? null : "hidden");
    set(fill, "visibility", barred && look.share !== null ? null : "hidden");
    set(fill, "width", Math.max(2, 40 * Math.min(1, look.share ?? 0)));
    set(fill, "fill", look.fill);
  }
}

const cut = (words, letters) => (words.length > letters ? `${words.slice(0, letters - 1)}…` : words);
