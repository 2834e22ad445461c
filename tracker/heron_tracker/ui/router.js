// Pages by the part of the address behind the #, so that one index.html serves all of them.
//
//   #/                                            all topologies
//   #/t/<cluster>/<role>/<environ>/<name>/<tab…>  one topology; behind ? what is chosen on the page

export const TABS = ["overview", "charts", "exceptions", "logs", "config", "checkpoints", "pipeline"];

/** The address as {at: {cluster, role, environ, name} or null, tab, rest, choice}; null for what is not a page. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const choice = Object.fromEntries(new URLSearchParams(query));
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return null;
  }
  if (!parts.length) return { at: null, tab: "list", rest: [], choice };
  if (parts[0] !== "t" || parts.length < 5) return null;
  const [, cluster, role, environ, name, tab = "overview", ...rest] = parts;
  const deep = ["component", "instance", "process"].includes(tab) && rest.length === 1;
  if (!deep && (!TABS.includes(tab) || rest.length)) return null;
  return { at: { cluster, role, environ, name }, tab, rest, choice };
}

/** The address of a page. */
export function to(at, tab = "overview", rest = [], choice = {}) {
  const parts = at ? ["t", at.cluster, at.role, at.environ, at.name, ...(tab === "overview" ? [] : [tab, ...rest])] : [];
  const query = new URLSearchParams(Object.entries(choice).filter(([, value]) => value)).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Change what is chosen on the page: in the address, so that it can be sent to others, without a step in the history. */
export function choose(changes) {
  const route = parse(location.hash);
  if (!route) return;
  const choice = { ...route.choice, ...changes };
  const url = to(route.at, route.tab, route.rest, choice);
  if (url === location.hash) return;
  history.replaceState(null, "", url);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
