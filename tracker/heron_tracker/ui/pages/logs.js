// Log files of the containers: their end, followed, searched.

import { common, get, request } from "../api.js";
import { search } from "../controls.js";
import { h, set, text } from "../dom.js";
import * as f from "../format.js";
import { choose } from "../router.js";
import { every } from "../signal.js";
import { LogView } from "./logview.js";

const FOLLOW_MS = 1_000;
const FILES_MS = 10_000;
const TAIL_BYTES = 128 * 1024;
const FOUND_MAX = 5_000;

export class LogsPage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, signal, following: true, files: {}, reading: false, silent: new Map() });
    this.containers = h("select", { "aria-label": "Container", onchange: (event) => choose({ container: event.target.value, file: null }) });
    this.names = h("select", { "aria-label": "File", onchange: (event) => choose({ file: event.target.value }) });
    this.follow = h("button", { type: "button", "aria-pressed": "true", tip: "Show what is written as it is written", onclick: () => this.#toggle() }, "Follow");
    this.only = h("button", { type: "button", "aria-pressed": "false", tip: "Show only lines that match", onclick: () => this.#only() }, "Only matches");
    this.search = search("Search in what is loaded …  ( / )", (words) => this.#search(words));
    this.all = h("button", { type: "button", tip: "Search all log files of this container, rotated ones too, on its host", onclick: () => this.#everywhere() }, "Search all files");
    this.matches = h("span", { class: "note", "aria-live": "polite" });
    this.save = h("button", { type: "button", tip: "Download the file", onclick: () => this.#download() }, "Download");
    this.earlier = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.#earlier() }, "Load earlier lines");
    this.state = h("p", { class: "none" }, "Loading …");
    this.found = h("div", { class: "panel flush", hidden: true });
    this.view = new LogView(() => this.following && this.#toggle());
    this.element = h("div", {}, h("div", { class: "bar" }, this.containers, this.names, this.follow, this.search, this.only, this.all, this.matches, this.save),
      this.found, h("div", { class: "panel flush" }, this.earlier, this.state, this.view.element));
    this.route(route);
    every(FILES_MS, () => this.#list(), signal);
    every(FOLLOW_MS, () => this.#more(), signal);
  }

  route(route) {
    const { container, file = null } = route.choice;
    this.container = /^\d+$/.test(container ?? "") ? Number(container) : 1;
    if (this.shown === `${this.container} ${file}`) return;
    this.shown = `${this.container} ${file}`;
    this.file = file;
    this.found.hidden = true;
    this.start = this.end = null;
    this.view.clear();
    if (this.started) this.#list().then(() => this.#more()).catch(() => {});
    this.started = true;
  }

  show() {
    const numbers = [0, ...(this.feed.info.packing_plan?.container_plans.map((one) => one.id) ?? [])];
    options(this.containers, numbers.map((one) => [one, `container ${one}${one ? "" : " (Topology Master)"}${this.silent.has(one) ? " ?" : ""}`]), this.container);
  }

  async #list() {
    const { container } = this;
    await this.#attempt(async () => {
      const files = await get("/topologies/container/filestats", { ...common(this.feed.at), container, path: "log-files" }, { signal: this.signal });
      if (container !== this.container) return;
      this.files = files;
      const names = Object.entries(files).filter(([, one]) => !one.is_dir);
      this.file ??= (names.find(([name, one]) => name.endsWith(".log") && one.size && name.startsWith("container_")) ?? names.find(([, one]) => one.size) ?? names[0])?.[0] ?? null;
      options(this.names, names.map(([name, one]) => [name, `${name} (${f.bytes(one.size)})`]), this.file);
      if (!names.length) text(this.state, "This container has no log files yet.");
    });
  }

  /** Do it; say why it cannot be done. Who does not answer is marked with `?` until it does. */
  async #attempt(work) {
    const { container } = this;
    try {
      await work();
      if (this.silent.delete(container)) {
        this.state.hidden = this.end > 0;
        this.show();
      }
    } catch (error) {
      if (this.signal.aborted) return;
      if (error.status === undefined) throw error;
      if (error.status === 503 || error.status === 501) {
        this.silent.set(container, error.message);
        this.show();
      }
      if (container !== this.container) return;
      text(this.state, error.message);
      this.state.hidden = false;
    }
  }

  /** Search all files of the container where they are. */
  async #everywhere() {
    const { container } = this;
    const words = this.view.words;
    if (!words) {
      text(this.matches, "Type what to search for first");
      return;
    }
    this.all.disabled = true;
    try {
      await this.#attempt(async () => {
        let after = {};
        let count = 0;
        this.found.replaceChildren(h("p", { class: "none" }, "Searching …"));
        this.found.hidden = false;
        const lines = new LogView(() => {});
        do {
          const part = await get("/topologies/container/filesearch", { ...common(this.feed.at), container, text: words, ignore_case: true, ...after }, { signal: this.signal });
          lines.append(part.matches.map((one) => `${one.path.replace("log-files/", "")}: ${one.line}\n`).join(""), false);
          count += part.matches.length;
          after = part.complete ? null : { after_path: part.after_path, after_offset: part.after_offset, after_inode: part.after_inode };
        } while (after && count < FOUND_MAX && container === this.container);
        lines.search(words);
        const note = `${count.toLocaleString("en")} ${count === 1 ? "line" : "lines"} in the files of container ${container}${after ? ", and maybe more" : ""}`;
        this.found.replaceChildren(h("div", { class: "bar" }, h("span", { class: "note" }, note), h("button", { type: "button", onclick: () => { this.found.hidden = true; } }, "Close")), lines.element);
      });
    } finally {
      this.all.disabled = false;
    }
  }

  #read(offset, length) {
    return get("/topologies/container/filedata", { ...common(this.feed.at), container: this.container, path: this.file, offset, length }, { signal: this.signal });
  }

  /** Read what was added. The first time: the last part of the file. */
  async #more() {
    if (!this.file || this.reading || (this.end !== null && !this.following)) return;
    this.reading = true;
    const { shown } = this;
    try {
      await this.#attempt(async () => {
        const size = (await this.#read(-1, 0)).offset;
        if (this.end !== null && size < this.end) this.#restart(); // it was rotated
        const first = this.end === null;
        const from = first ? Math.max(0, size - TAIL_BYTES) : this.end;
        if (size === from && !first) return;
        const part = await this.#read(from, -1);
        if (shown !== this.shown) return;
        this.view.append(unescape(part.data), first && from > 0);
        this.start ??= from;
        this.end = from + part.length;
        this.#loaded();
      });
    } finally {
      this.reading = false;
    }
  }

  #restart() {
    this.start = this.end = null;
    this.view.clear();
  }

  #loaded() {
    this.earlier.hidden = !this.start;
    this.state.hidden = this.end > 0;
    text(this.state, "This file is empty.");
    this.#count();
    if (this.following) this.view.toEnd();
  }

  async #earlier() {
    await this.#attempt(async () => {
      const from = Math.max(0, this.start - TAIL_BYTES);
      const part = await this.#read(from, this.start - from);
      if (this.following) this.#toggle();
      this.view.prepend(unescape(part.data), from > 0);
      this.start = from;
      this.#loaded();
    });
  }

  #toggle() {
    this.following = !this.following;
    set(this.follow, "aria-pressed", String(this.following));
    if (this.following) {
      this.view.toEnd();
      this.#more().catch(() => {});
    }
  }

  #only() {
    const pressed = this.only.getAttribute("aria-pressed") !== "true";
    set(this.only, "aria-pressed", String(pressed));
    this.view.onlyMatches(pressed);
  }

  #search(words) {
    this.view.search(words);
    this.#count();
    if (words && this.following) this.#toggle();
    if (words) this.view.toMatch();
  }

  #count() {
    text(this.matches, this.view.words ? `${this.view.matches.toLocaleString("en")} ${this.view.matches === 1 ? "line" : "lines"}` : "");
  }

  async #download() {
    await this.#attempt(async () => {
      const blob = await request("/topologies/container/filedownload", { ...common(this.feed.at), container: this.container, path: this.file }, { signal: this.signal });
      const url = URL.createObjectURL(blob);
      h("a", { href: url, download: this.file }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    });
  }
}

// The Tracker escapes what it reads, as Heron's does; here it becomes text again, and is only ever shown as text.
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };
const unescape = (data) => data.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]);

function options(select, wanted, chosen) {
  const key = JSON.stringify(wanted);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...wanted.map(([value, label]) => h("option", { value }, label)));
  }
  select.value = String(chosen);
}
