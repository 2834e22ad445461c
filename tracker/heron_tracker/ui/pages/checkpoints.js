// Checkpoints: how they go, which there are, what is in the newest, and rollbacks.

import { common, get } from "../api.js";
import { Figure, panel } from "../controls.js";
import { h, text } from "../dom.js";
import * as f from "../format.js";
import { to } from "../router.js";
import { every } from "../signal.js";
import { Table, loadInto } from "../table.js";

const REFRESH_MS = 5_000;
const NAMED = 5;
const LOOKS = { committed: "", replaced: "muted", "not committed": "muted" };
const ms = (value) => (value === null ? f.NONE : f.duration(value / 1000));

export class CheckpointsPage {
  constructor(feed, route, signal) {
    this.feed = feed;
    this.age = new Figure("Last checkpoint", "Since it was committed: __checkpoint-age-ms");
    this.now = new Figure("Now", "What the Topology Master does");
    this.took = new Figure("Duration", "From its beginning to its commit: __checkpoint-duration-ms");
    this.size = new Figure("Size", "Of the newest one, and what the one before did not have: __checkpoint-size-bytes, __checkpoint-added-bytes");
    this.failed = new Figure("Failed", "__checkpoint-failure-count since this Topology Master began");
    this.restores = new Figure("Rollbacks", "__restore-count since this Topology Master began");
    const figures = [this.age, this.now, this.took, this.size, this.failed, this.restores];
    this.problem = h("div", { class: "banner bad", role: "alert", hidden: true, id: "checkpoint-problem" });
    this.notes = h("div", { class: "banner warn", role: "status", hidden: true, id: "checkpoint-notes" });
    this.table = new Table("Checkpoints", checkpointColumns(), { sort: "key", down: true, empty: "There is no checkpoint yet." });
    this.components = new Table("State by component", componentColumns(feed), { sort: "size", down: true, empty: "No component has stored state." });
    this.tasks = new Table("State by task", taskColumns(), { sort: "size", down: true, empty: "No task has stored state." });
    this.rollbacks = new Table("Rollbacks", rollbackColumns(), { sort: "key", down: true, empty: "There was none." });
    this.facts = h("span", { class: "facts" });
    this.element = h("div", {}, this.problem, this.notes, h("div", { class: "figures" }, figures.map((one) => one.element)),
      panel("Checkpoints", this.facts, this.table.element), panel("State by component", null, this.components.element),
      panel("State by task", null, this.tasks.element), panel("Rollbacks", null, this.rollbacks.element));
    every(REFRESH_MS, () => loadInto(this.table, signal, async () => {
      const status = await get("/topologies/checkpoints", common(feed.at), { signal });
      this.#show(status);
      return status.checkpoints.map((one) => ({ ...one, key: one.id, look: one.state === "failed" || one.state === "damaged" ? "ill" : null }));
    }), signal);
  }

  #show(status) {
    this.#figures(status);
    this.#banners(status);
    const newest = status.checkpoints.find((one) => one.components && one.state === "committed");
    const sizes = Object.entries(newest?.components ?? {}).map(([key, one]) => ({ ...one, key, whole: newest.size }));
    this.components.show(sizes);
    this.tasks.show(sizes.flatMap((one) => one.by_task.map((size, index) => ({ key: `${one.key} ${index}`, component: one.key, index, size, tasks: one.tasks, of: one.size }))));
    this.rollbacks.show(status.rollbacks.map((one) => ({ ...one, key: one.epoch })));
    const begun = status.start_from ? ` · began with checkpoint ${status.start_checkpoint} of ${status.start_from}` : "";
    text(this.facts, status.location ? `in ${status.location}${begun}` : "");
  }

  #figures(status) {
    const { under_way: current } = status;
    const late = status.age_ms !== null && status.age_ms > Math.max(5 * status.interval_ms, 60_000); // as the verdict on health
    const wanted = status.interval_ms === null ? "" : `one every ${ms(status.interval_ms)}`;
    this.age.show(status.age_ms === null ? f.NONE : status.committed ? `${ms(status.age_ms)} ago` : "none yet", wanted, { exact: `${f.exact(status.age_ms)} ms`, look: late ? "warn" : "" });
    const missing = current?.missing ?? [];
    const names = missing.slice(0, NAMED).map((one) => one.instance || one.task).join(", ") + (missing.length > NAMED ? ` and ${missing.length - NAMED} more` : "");
    const waits = names ? `${ms(current.elapsed_ms)}, waits for ${names}` : current ? ms(current.elapsed_ms) : `restore epoch ${status.restore_epoch ?? f.NONE}`;
    this.now.show(current ? `checkpoint ${current.id}` : status.phase ?? f.NONE, waits, { exact: waits });
    const last = status.checkpoints.find((one) => one.state === "committed");
    this.took.show(ms(last?.duration_ms ?? null), last?.aligned_ms ? `${ms(last.aligned_ms)} until the last marker` : "", { exact: `${f.exact(last?.duration_ms)} ms` });
    this.size.show(f.bytes(last?.size), last ? `${f.bytes(last.added)} new` : "", { exact: `${f.exact(last?.size)} bytes, ${f.exact(last?.added)} of them new` });
    const failure = status.checkpoints.find((one) => one.state === "failed");
    this.failed.show(f.count(status.failed), status.committed === null ? "" : `${f.count(status.committed)} committed`, { exact: failure ? `${failure.id}: ${failure.reason}` : "", look: status.failed ? "warn" : "" });
    const rollback = status.rollbacks[0];
    this.restores.show(f.count(status.restores), rollback ? `the last ${f.ago(rollback.time)}` : "", { exact: rollback?.reason ?? "", look: status.restores ? "warn" : "" });
  }

  #banners(status) {
    this.problem.hidden = !status.problem;
    text(this.problem, status.problem ?? "");
    const notes = [status.fallback, status.storage === "ok" ? null : `The storage of checkpoints cannot be read from here: ${status.storage}. Sizes and states may be older.`].filter(Boolean);
    this.notes.hidden = !notes.length;
    this.notes.replaceChildren(...notes.map((note) => h("p", {}, note)));
  }
}

function checkpointColumns() {
  const number = (key, label, tip, show) => ({ key, label, tip, num: true, value: (row) => row[key], show: (row) => show(row[key]), exact: (row) => f.exact(row[key]) });
  return [{ key: "key", label: "Checkpoint", value: (row) => row.id, show: (row) => String(row.id) },
    { key: "state", label: "State", tip: "committed: can be restored; replaced: by a newer one", value: (row) => row.state, show: (row) => row.state, look: (row) => LOOKS[row.state] ?? "bad-text" },
    { key: "time", label: "When", num: true, value: (row) => row.time, show: (row) => (row.time ? f.ago(row.time) : f.NONE), exact: (row) => row.time },
    number("duration_ms", "Duration", "From its beginning to its commit", ms),
    number("aligned_ms", "Aligned", "The longest that a task waited from its first marker to its last", ms),
    number("size", "Size", "With all that it shares with others", f.bytes),
    number("added", "New", "What the one before did not have", f.bytes),
    number("logged", "Logged", "What tasks had yet to execute", f.bytes),
    { key: "reason", label: "Reason", value: (row) => row.reason, show: (row) => row.reason ?? "", exact: (row) => row.reason }];
}

function componentColumns(feed) {
  return [{ key: "key", label: "Component", value: (row) => row.key, show: (row) => row.key, href: (row) => to(feed.at, "component", [row.key]) },
    { key: "tasks", label: "Tasks", num: true, value: (row) => row.tasks, show: (row) => f.count(row.tasks) },
    { key: "size", label: "Size", num: true, value: (row) => row.size, show: (row) => f.bytes(row.size), exact: (row) => `${f.exact(row.size)} bytes`, share: (row) => ({ share: row.whole ? row.size / row.whole : 0, color: "var(--accent)" }) }];
}

function taskColumns() {
  return [{ key: "key", label: "Task", value: (row) => row.key, show: (row) => `${row.component} ${row.index} of ${row.tasks}` },
    { key: "size", label: "Size", tip: "What it has written of the newest checkpoint", num: true, value: (row) => row.size, show: (row) => f.bytes(row.size), exact: (row) => `${f.exact(row.size)} bytes`, share: (row) => ({ share: row.of ? row.size / row.of : 0, color: "var(--accent)" }) }];
}

function rollbackColumns() {
  return [{ key: "key", label: "Restore epoch", value: (row) => row.epoch, show: (row) => String(row.epoch) },
    { key: "time", label: "When", num: true, value: (row) => row.time, show: (row) => f.ago(row.time), exact: (row) => row.time },
    { key: "checkpoint", label: "Checkpoint", num: true, value: (row) => row.checkpoint, show: (row) => (row.checkpoint ? String(row.checkpoint) : "none: from the beginning") },
    { key: "reason", label: "Reason", value: (row) => row.reason, show: (row) => row.reason ?? "not known to this Topology Master", exact: (row) => row.reason }];
}
