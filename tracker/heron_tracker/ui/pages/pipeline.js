// The batch side of a streamlet program: live → archive → batches → merged, and what the last runs did.

import { common, get } from "../api.js";
import { Figure, notice, panel } from "../controls.js";
import { h, text } from "../dom.js";
import * as f from "../format.js";
import { to } from "../router.js";
import { every } from "../signal.js";
import { Table } from "../table.js";

const REFRESH_MS = 5_000;
const TICK_MS = 1_000;
const LATE_BATCHES = 3; // as the alert HeronPipelineLate
const seconds = (ms) => (ms === null ? f.NONE : f.duration(ms / 1000));
const DATE_MAX_MS = 8.64e15; // of JavaScript
const utc = (ms) => (ms === null ? f.NONE : Math.abs(ms) > DATE_MAX_MS ? `${ms} ms` : `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`);
/** A batch of today by its time alone. */
const today = (name) => (name.startsWith(`${new Date().toISOString().slice(0, 10)} `) ? `${name.slice(11)} UTC` : name);
const many = (n, one, more = `${one}s`) => `${f.count(n)} ${n === 1 ? one : more}`;

export class PipelinePage {
  constructor(feed, route, signal) {
    Object.assign(this, { feed, report: null, offset_ms: 0 });
    this.lag = new Figure("Batch views are behind", "Now, where live views are, less the end of the last batch that is done: heron_pipeline_lag_seconds");
    this.closed = new Figure("Last batch done", "It, and all before it");
    this.next = new Figure("Next batch", "The first that is not done. It is complete when nothing earlier than its end is to be expected");
    this.letters = new Figure("Dead letters", "Elements and rows that were set aside. What neither side can compute both have: heron_pipeline_dead_letters");
    this.damaged = new Figure("Damaged input", "Batches that were computed without what is damaged of their input, because that was accepted");
    this.drift = new Figure("Drift", "Keys that live and batch views did not agree on at the last `heron pipeline reconcile`");
    const figures = [this.lag, this.closed, this.next, this.letters, this.damaged, this.drift];
    this.problem = h("div", { class: "banner bad", role: "alert", hidden: true, id: "pipeline-problem" });
    this.notes = h("div", { class: "banner warn", role: "status", hidden: true, id: "pipeline-notes" });
    this.flow = h("ol", { class: "flow", "aria-label": "How events get into answers" });
    this.batches = new Table("Batches that are done", batchColumns(), { sort: "key", down: true, empty: "No batch is done yet." });
    this.archives = new Table("Archives", archiveColumns(feed), { empty: "The program has no archive." });
    this.views = new Table("Views", viewColumns(), { empty: "The program has no view." });
    this.reasons = new Table("Dead letters", letterColumns(), { sort: "count", down: true, empty: "None." });
    this.facts = h("span", { class: "facts" });
    const parts = [h("div", { class: "figures" }, figures.map((one) => one.element)), panel("From event to answer", this.facts, this.flow),
      panel("Batches", null, this.batches.element), panel("Views", null, this.views.element), panel("Archives", null, this.archives.element), panel("Dead letters", null, this.reasons.element)];
    this.content = h("div", { class: "stack", hidden: true }, parts);
    this.empty = h("div", {}, h("p", { class: "none" }, "Loading …"));
    this.element = h("div", {}, this.problem, this.notes, this.empty, this.content);
    every(REFRESH_MS, () => this.#load(signal), signal);
    const timer = setInterval(() => this.#tick(), TICK_MS); // what counts down, between two answers
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  async #load(signal) {
    try {
      this.report = await get("/topologies/pipeline", common(this.feed.at), { signal });
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
      throw error;
    }
    this.offset_ms = this.report.now_ms - Date.now();
    this.#show();
  }

  #failed(error) {
    if (this.report) {
      this.notes.hidden = false;
      this.notes.replaceChildren(h("p", {}, `This page could not be brought up to date: ${error.message}`));
    } else this.empty.replaceChildren(notice(error.status === 404 ? "No batch side" : "It could not be loaded", error.message));
  }

  #show() {
    const { report } = this;
    this.content.hidden = false;
    this.empty.hidden = report.reported_ms !== null;
    if (report.reported_ms === null) this.empty.replaceChildren(nothingYet(this.feed.at.name));
    this.#banners();
    this.#figures();
    this.#flow();
    this.batches.show(report.batches.map((one) => ({ ...one, key: one.batch, look: one.damaged ? "ill" : null })));
    this.archives.show(report.archives.map((one) => ({ ...one, key: one.archive })));
    this.views.show(report.views.map((one) => ({ ...one, key: one.view })));
    this.reasons.show(report.dead_letters.map((one) => ({ ...one, key: `${one.origin} ${one.reason} ${one.side}` })));
    this.#tick();
  }

  #banners() {
    const { report } = this;
    const failed = report.run?.error;
    this.problem.hidden = !failed;
    this.problem.replaceChildren(h("b", {}, "The last batch run failed"), failed ? ` ${f.ago(report.run.began_ms)}: ${failed}` : "");
    const old = report.tmaster !== "ok" && "The Topology Master does not answer: how far the archive is, is as old as the last report.";
    const notes = [report.problem && `What a batch run has reported cannot be read: ${report.problem}`, old].filter(Boolean);
    this.notes.hidden = !notes.length;
    this.notes.replaceChildren(...notes.map((note) => h("p", {}, note)));
  }

  #figures() {
    const { report } = this;
    this.closed.show(report.closed === null ? "none yet" : today(report.closed), report.done === null ? "" : `${many(report.done, "batch", "batches")} done, ${f.count(report.elements)} elements`, { exact: `${report.closed ?? "none"}, closed before ${utc(report.closed_before_ms)}` });
    const sum = (side) => report.dead_letters.reduce((all, one) => all + (one.side === side ? one.count : 0), 0);
    const letters = (show) => ["live", "batch", ""].filter((side) => side || sum(side)).map((side) => `${show(sum(side))} ${side}`.trim()).join(", ");
    const worst = report.dead_letters[0];
    this.letters.show(worst ? letters(f.count) : "none", worst ? `${worst.reason} in ${worst.origin}` : "nothing was set aside", { exact: letters(f.exact), look: worst ? "warn" : "" });
    this.damaged.show(report.damaged_batches ? many(report.damaged_batches, "batch", "batches") : "none", report.damaged_batches ? "accepted: some input is left out" : "", { look: report.damaged_batches ? "warn" : "" });
    const compared = report.views.filter((one) => one.drifted !== null);
    const drifted = compared.reduce((sum, one) => sum + one.drifted, 0);
    if (report.reconciled_ms === null) this.drift.show(f.NONE, "not reconciled yet");
    else this.drift.show(drifted ? many(drifted, "key") : "none", `reconciled ${f.ago(report.reconciled_ms)}`, { exact: utc(report.reconciled_ms), look: drifted ? "warn" : "" });
    text(this.facts, `batches of ${seconds(report.batch_length_ms)}${report.reported_ms === null ? "" : ` · reported ${f.ago(report.reported_ms - this.offset_ms)}`}`);
  }

  #flow() {
    const { report } = this;
    const archived = report.archives.reduce((sum, one) => sum + one.bytes, 0);
    const files = report.archives.reduce((sum, one) => sum + one.files, 0);
    const rows = report.views.reduce((sum, one) => sum + (one.batch_rows ?? 0), 0);
    const complete = report.archive_ended ? "complete: no more will come" : report.archive_complete_before_ms === null ? "has not said how far it is" : `complete before ${utc(report.archive_complete_before_ms)}`;
    const behind = report.closed === null ? "nothing is done yet" : report.archive_lag_ms ? `${seconds(report.archive_lag_ms)} behind the archive` : "nothing waits";
    const steps = [
      ["Live", many(report.views.length, "view"), "counts events as they come"],
      ["Archive", files ? `${f.bytes(archived)} in ${many(files, "file")}` : report.reported_ms === null ? "no report yet" : "no file", complete],
      ["Batches", report.closed ? `up to ${report.closed}` : "none yet", report.waiting ? `${many(report.waiting, "batch", "batches")} waiting, ${behind}` : behind],
      ["Merged", report.closed ? `${many(rows, "row")} exact` : "live alone", report.closed ? "exact up to there, live after it" : "until a batch is done"],
    ];
    this.flow.replaceChildren(...steps.map(([name, what, how]) => h("li", {}, h("span", { class: "label" }, name), h("b", {}, what), h("span", { class: "note" }, how))));
  }

  /** What changes by itself: how far behind, and how long until the next batch. */
  #tick() {
    const { report } = this;
    if (!report) return;
    const now_ms = Date.now() + this.offset_ms;
    const over = report.archive_ended && report.lag_ms === 0; // all of an input that has ended is done
    const lag_ms = report.closed_before_ms === null ? null : over ? 0 : Math.max(0, now_ms - report.closed_before_ms);
    const late = lag_ms !== null && lag_ms > LATE_BATCHES * report.batch_length_ms + report.max_lateness_ms;
    this.lag.show(seconds(lag_ms), over ? "all is done: the input has ended" : report.closed_before_ms === null ? "no batch is done" : `closed before ${utc(report.closed_before_ms).slice(11)}`, { exact: `${f.exact(lag_ms === null ? null : lag_ms / 1000)} s`, look: late ? "warn" : "" });
    const { next } = report;
    if (!next) return this.next.show("none", report.reported_ms === null ? "" : "nothing waits");
    const left_ms = next.complete_at_ms - now_ms;
    const state = next.complete ? `${next.complete === 1 ? "complete" : `${many(next.complete, "batch", "batches")} complete`}: due for a run` : left_ms > 0 ? `complete in ${seconds(left_ms)}` : "waits for the archive";
    return this.next.show(today(next.name), state, { exact: `${next.name}, ends ${utc(next.end_ms)}` });
  }
}

const nothingYet = (name) => notice("No batch run has reported yet", `What the topology archives waits for a batch run. Runs that are started from the HERON_HOME of this topology report here:`,
  h("pre", {}, `heron pipeline run ${name}`));

const number = (key, label, tip, show = f.count) => ({ key, label, tip, num: true, value: (row) => row[key], show: (row) => show(row[key]), exact: (row) => f.exact(row[key]) });

function batchColumns() {
  return [{ key: "key", label: "Batch (UTC)", value: (row) => row.batch, show: (row) => row.name, exact: (row) => `id ${row.batch}` },
    number("rows", "Rows", "Of all views"),
    number("elements", "Elements", "Without duplicates"),
    number("duplicates", "Duplicates", "Dropped: they came again, after a failure"),
    { ...number("dead_letters", "Dead letters", "User code raised for them"), look: (row) => (row.dead_letters ? "bad-text" : "") },
    number("took_s", "Took", "The Spark job that computed it, maybe with others", f.duration),
    { key: "finished", label: "Done", num: true, value: (row) => row.finished_ms, show: (row) => f.ago(row.finished_ms), exact: (row) => utc(row.finished_ms) },
    { key: "version", label: "Version", tip: "Another one after it was computed again", value: (row) => row.version, show: (row) => row.version },
    { key: "damaged", label: "Left out", value: (row) => row.damaged, show: (row) => row.damaged ?? "", exact: (row) => row.damaged }];
}

function archiveColumns(feed) {
  return [{ key: "key", label: "Archive", value: (row) => row.archive, show: (row) => row.archive },
    { key: "component", label: "Written by", value: (row) => row.component, show: (row) => row.component ?? f.NONE, href: (row) => (row.component ? to(feed.at, "component", [row.component]) : null) },
    { key: "complete", label: "Complete before", num: true, value: (row) => row.complete_before_ms, show: (row) => (row.ended ? "all of it" : utc(row.complete_before_ms)) },
    { key: "newest", label: "Newest batch", num: true, value: (row) => row.newest, show: (row) => row.newest ?? f.NONE },
    number("batches", "Batches"), number("files", "Files"), number("bytes", "Size", "", f.bytes),
    number("waiting_batches", "Batches not done"), number("waiting_bytes", "Size not done", "", f.bytes)];
}

function viewColumns() {
  return [{ key: "key", label: "View", value: (row) => row.view, show: (row) => row.view },
    number("batch_rows", "Batch rows"),
    { key: "newest_live", label: "Live up to batch", num: true, value: (row) => row.newest_live, show: (row) => row.newest_live ?? f.NONE },
    number("keys", "Keys compared", "At the last reconcile"),
    { ...number("drifted", "Drifted", "Keys that live and batch view did not agree on"), look: (row) => (row.drifted ? "bad-text" : "") },
    number("drift_percent", "Drift", "What the live view had more", (value) => (value === null ? f.NONE : `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))} %`))];
}

function letterColumns() {
  return [{ key: "key", label: "Stage", value: (row) => row.origin, show: (row) => row.origin },
    { key: "reason", label: "Reason", tip: "Its kind; the files have all of it", value: (row) => row.reason, show: (row) => row.reason },
    { key: "side", label: "Side", tip: "Live or batch: each sets aside for itself", value: (row) => row.side, show: (row) => row.side || f.NONE },
    number("count", "Set aside")];
}
