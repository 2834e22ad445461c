// A flame graph on a canvas, from the top down: each box is a function, as wide as its share of the time, below its caller.

import { themeColor } from "./colors.js";
import { h, set, text } from "./dom.js";
import * as f from "./format.js";
import { boxesOf, hottest } from "./profile.js";
import { hideTip, showTip } from "./tooltip.js";

const ROW = 20;
const LEAST_PX = 1.5;
const LETTERS_PX = 26;
const COLORS = {
  light: { yours: ["#f4a259", "#f2b880", "#ef9143"], engine: ["#8fb8de", "#a5c6e5", "#7fabd6"], library: ["#c9d0d8", "#d6dbe1", "#bfc7d0"], thread: ["#e6eaef"] },
  dark: { yours: ["#b96a1f", "#a85f1b", "#c87a2f"], engine: ["#2f5f8f", "#295580", "#376a9e"], library: ["#46525f", "#3f4a56", "#4f5c6a"], thread: ["#293440"] },
};
const theme = () => document.documentElement.dataset.theme;

/** The colour of whose code it is, for a legend. */
export const ownerColor = (owner) => COLORS[theme()]?.[owner]?.[0] ?? COLORS.light[owner][0];

export class FlameGraph {
  constructor(signal) {
    Object.assign(this, { root: null, zoom: null, boxes: [], hovered: null, cursor: null, words: "" });
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Flame graph: arrow keys go to callers, callees and neighbours, Enter zooms, Escape shows all" });
    this.said = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h("div", { class: "flame" }, this.canvas, this.said);
    this.canvas.addEventListener("pointermove", (event) => this.#over(this.#at(event), event));
    this.canvas.addEventListener("pointerleave", () => this.#over(null));
    this.canvas.addEventListener("click", (event) => this.#press(this.#at(event)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    const seen = new ResizeObserver(() => this.#place());
    seen.observe(this.element);
    signal.addEventListener("abort", () => seen.disconnect());
    document.addEventListener("heron:theme", () => this.draw(), { signal });
  }

  /** Show a tree (of `profile.treeOf`). */
  show(root) {
    Object.assign(this, { root, zoom: root, hovered: null, cursor: null });
    this.#place();
  }

  /** Mark the functions in whose name or file these words occur; returns their share of what is shown. */
  mark(words) {
    this.words = words.toLowerCase();
    this.draw();
    const share = (node) => (this.#marked(node) ? node.value : [...node.children.values()].reduce((sum, child) => sum + share(child), 0));
    return this.words && this.zoom?.value ? share(this.zoom) / this.zoom.value : 0;
  }

  #marked({ name, file = "" }) {
    return this.words && `${name} ${file}`.toLowerCase().includes(this.words);
  }

  #place() {
    const width = this.element.clientWidth;
    if (!width || !this.zoom) return;
    this.width = width;
    this.boxes = boxesOf(this.zoom, LEAST_PX / width);
    this.rows = Math.max(...this.boxes.map((box) => box.depth), 0) + 1;
    this.draw();
  }

  draw() {
    if (!this.width || !this.zoom) return;
    const [ratio, height] = [devicePixelRatio, this.rows * ROW];
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.inlineSize = `${this.width}px`;
    this.canvas.style.blockSize = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    const colors = { text: themeColor("text"), mark: themeColor("mark"), line: themeColor("panel") };
    for (const box of this.boxes) this.#box(context, box, colors);
  }

  #box(context, box, colors) {
    const { node } = box;
    const [x, y, width] = [box.from * this.width, box.depth * ROW, (box.to - box.from) * this.width];
    const shades = (COLORS[theme()] ?? COLORS.light)[node.thread ? "thread" : node.owner];
    context.fillStyle = this.#marked(node) ? colors.mark : shades[shade(node.name, shades.length)];
    context.fillRect(x, y, Math.max(1, width - 1), ROW - 1);
    if (box === this.cursor || box === this.hovered) {
      context.strokeStyle = colors.text;
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.75, y + 0.75, Math.max(1, width - 2.5), ROW - 2.5);
    }
    if (width < LETTERS_PX) return;
    context.save();
    context.beginPath();
    context.rect(x, y, width - 4, ROW);
    context.clip();
    context.fillStyle = colors.text;
    context.fillText(node.name, x + 5, y + ROW / 2);
    context.restore();
  }

  #at(event) {
    const edge = this.canvas.getBoundingClientRect();
    const [at, depth] = [(event.clientX - edge.left) / this.width, Math.floor((event.clientY - edge.top) / ROW)];
    return this.boxes.find((box) => box.depth === depth && box.from <= at && at < box.to) ?? null;
  }

  tip({ node }) {
    const share = (value) => `${f.percent(value / this.root.value)}, ${f.latency(value)}`;
    const place = node.thread ? null : `${node.file}:${hottest(node)}${node.lines.size > 1 ? ` and ${node.lines.size - 1} more lines` : ""}`;
    const zoomed = this.zoom !== this.root && this.zoom.value ? `${f.percent(node.value / this.zoom.value)} of what is shown` : null;
    return [node.name, place, `${share(node.value)} of the profile`, zoomed, node.self ? `itself: ${share(node.self)}` : null].filter(Boolean).join("\n");
  }

  #over(box, event) {
    if (box !== this.hovered) {
      this.hovered = box;
      this.canvas.style.cursor = box ? "pointer" : "";
      this.draw();
    }
    if (box && event) showTip(this.tip(box), event.clientX, event.clientY);
    else hideTip();
  }

  #press(box) {
    if (!box) return;
    this.zoomTo(box.node === this.zoom ? this.root : box.node);
  }

  /** Show a function and what it calls over the whole width. */
  zoomTo(node) {
    Object.assign(this, { zoom: node, cursor: null, hovered: null });
    set(this.canvas, "data-zoom", node === this.root ? null : node.name);
    hideTip();
    this.#place();
  }

  #key(event) {
    if (event.key === "Escape") return this.zoom === this.root ? undefined : this.zoomTo(this.root);
    if (event.key === "Enter" && this.cursor) return this.zoomTo(this.cursor.node);
    const next = this.#next(event.key);
    if (next === undefined) return undefined;
    event.preventDefault();
    if (!next) return undefined;
    this.cursor = next;
    set(this.canvas, "data-function", next.node.name);
    const edge = this.canvas.getBoundingClientRect();
    text(this.said, this.tip(next));
    showTip(this.tip(next), edge.left + ((next.from + next.to) / 2) * this.width, edge.top + (next.depth + 1) * ROW);
    return this.draw();
  }

  /** The box that a key leads to: null where there is none, undefined for other keys. */
  #next(key) {
    if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(key)) return undefined;
    const { cursor, boxes } = this;
    if (!cursor) return boxes[0] ?? null;
    if (key === "ArrowUp") return cursor.parent;
    if (key === "ArrowDown") return boxes.find((box) => box.parent === cursor) ?? null;
    const row = boxes.filter((box) => box.depth === cursor.depth);
    return row[row.indexOf(cursor) + (key === "ArrowRight" ? 1 : -1)] ?? null;
  }
}

function shade(name, count) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.charCodeAt(0)) % 997;
  return sum % count;
}
