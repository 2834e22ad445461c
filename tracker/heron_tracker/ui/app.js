// The frame of all pages: what is at the top, banners, which page is shown, keys.

import { connection, useToken } from "./api.js";
import { h, set, text } from "./dom.js";
import { clock } from "./format.js";
import { follow, mode, stateManagers } from "./live.js";
import { ListPage } from "./pages/list.js";
import { TopologyPage } from "./pages/topology.js";
import { notice } from "./controls.js";
import { TABS, parse, to } from "./router.js";
import { poke } from "./signal.js";
import { startTooltips } from "./tooltip.js";

const main = document.getElementById("main");
const banners = document.getElementById("banners");
const crumbs = h("nav", { class: "crumbs", "aria-label": "Where you are" });
const link = h("span", { class: "link", tabindex: 0 });
let page = null;
let ended = new AbortController();

function route() {
  const wanted = parse(location.hash);
  const key = wanted ? (wanted.at ? JSON.stringify(wanted.at) : "list") : `none ${location.hash}`;
  showCrumbs(wanted);
  if (page?.key === key) return page.view.route?.(wanted);
  ended.abort();
  ended = new AbortController();
  let view;
  if (!wanted) view = { element: missing() };
  else view = wanted.at ? new TopologyPage(wanted, ended.signal) : new ListPage(wanted, ended.signal);
  page = { key, view };
  main.replaceChildren(view.element);
  view.started?.();
  scrollTo(0, 0);
  return undefined;
}

function missing() {
  document.title = "Not found · heron";
  return notice("There is no such page", `The address ${location.hash} leads nowhere.`, h("p", {}, h("a", { href: "#/" }, "All topologies")));
}

function showCrumbs(wanted) {
  const at = wanted?.at;
  const parts = at ? [h("a", { href: "#/" }, "Topologies"), h("span", { class: "where" }, `${at.cluster} / ${at.role} / ${at.environ}`), h("b", {}, at.name)] : [h("b", {}, "Topologies")];
  crumbs.replaceChildren(...parts);
}

const LINKS = {
  live: ["Live", "Live updates: changes at once, numbers every few seconds"],
  polling: ["Polling", "Updates every few seconds: the stream of events is not open"],
  off: ["Connecting", ""],
};

function showLink() {
  const state = connection.value.state;
  const [label, tip] = state === "ok" ? LINKS[mode.value] : state === "gone" ? ["Offline", "The Tracker does not answer"] : ["Signed out", "Authentication required"];
  set(link, "class", `link ${state === "ok" ? mode.value : "offline"}`);
  set(link, "tip", tip);
  text(link, label);
}

function showBanners() {
  const { state, since, wrong } = connection.value;
  const shown = [];
  if (state === "gone") {
    shown.push(h("div", { class: "banner bad", id: "gone" }, h("b", {}, "The Tracker does not answer"), ` since ${clock(since)}. What you see is older. `,
      h("button", { type: "button", onclick: poke }, "Retry now")));
  }
  for (const [name, one] of Object.entries(stateManagers.value)) {
    if (!one.connected) shown.push(h("div", { class: "banner warn" }, h("b", {}, `State manager ${name} does not answer: `), one.error ?? ""));
  }
  banners.replaceChildren(...shown);
  document.body.classList.toggle("stale", state === "gone");
  if (state === "token") askToken(wrong);
  else document.getElementById("token")?.remove();
}

function askToken(wrong) {
  if (document.getElementById("token")) return;
  const input = h("input", { type: "password", autocomplete: "off", required: true, "aria-describedby": "token-note", "aria-invalid": wrong ? "true" : null });
  const submit = (event) => {
    event.preventDefault();
    dialog.remove();
    useToken(input.value.trim());
    poke();
  };
  const dialog = h("dialog", { id: "token", class: "dialog", "aria-labelledby": "token-title" },
    h("form", { onsubmit: submit }, h("h2", { id: "token-title" }, "Authentication required"),
      h("p", { id: "token-note", class: wrong ? "bad-text" : null, role: wrong ? "alert" : null },
        wrong ? "The Tracker refused this token: it is wrong, or was changed." : "Enter the Tracker's token, which is in its token file. It is kept until you close this tab."),
      h("label", { class: "field" }, "Token", input), h("button", { type: "submit", class: "primary" }, "Sign in")));
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
}

const KEYS = [["/", "search"], ["1 … 7", "tabs of a topology"], ["l", "all topologies"], ["t", "dark or light"], ["↑ ↓", "from row to row in a table"],
  ["Esc", "select nothing"], ["?", "this help"]];

function help() {
  const dialog = h("dialog", { class: "dialog" }, h("h2", {}, "Keyboard shortcuts"), h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function onkey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  const wanted = parse(location.hash);
  const tab = TABS[Number(event.key) - 1];
  if (event.key === "/") document.querySelector("main input[type=search]")?.focus();
  else if (event.key === "?") help();
  else if (event.key === "t") document.dispatchEvent(new Event("heron:toggle-theme"));
  else if (event.key === "l") location.hash = to(null);
  else if (tab && wanted?.at) location.hash = to(wanted.at, tab, [], { interval: wanted.choice.interval });
  else return;
  event.preventDefault();
}

document.getElementById("top").append(
  h("a", { class: "brand", href: "#/", "aria-label": "heron: all topologies" }, h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }), h("span", {}, "heron")),
  crumbs, h("span", { class: "space" }), link,
  h("button", { type: "button", class: "icon", tip: "Keyboard shortcuts (?)", "aria-label": "Keyboard shortcuts", onclick: help }, "?"),
  h("button", { type: "button", class: "icon", tip: "Dark or light (t)", "aria-label": "Dark or light", onclick: () => document.dispatchEvent(new Event("heron:toggle-theme")) }, "◐"),
);
startTooltips();
connection.listen(() => (showBanners(), showLink()));
stateManagers.listen(showBanners);
mode.listen(showLink);
document.addEventListener("keydown", onkey);
addEventListener("hashchange", route);
showLink();
route();
follow(new AbortController().signal);
