// Where the components of a topology are drawn: layers by the longest way from a spout (Sugiyama's scheme, small).
//
// An edge over several layers gets a bend in each; nodes and bends are ordered by the mean place of their neighbours,
// a few times down and up. Topologies have tens of components: nothing here needs to be clever.

const SWEEPS = 8;

/** The components in the order of the data: {names, layers: Map name → layer, edges: [{from, to, streams}]}. */
export function ordered(plan) {
  const names = [...Object.keys(plan.spouts), ...Object.keys(plan.bolts)];
  const edges = new Map();
  for (const [to, bolt] of Object.entries(plan.bolts)) {
    for (const input of bolt.inputs) {
      const key = JSON.stringify([input.component_name, to]);
      if (!edges.has(key)) edges.set(key, { key, from: input.component_name, to, streams: [] });
      edges.get(key).streams.push(`${input.stream_name} (${input.grouping.toLowerCase()})`);
    }
  }
  const kept = [...edges.values()].filter((edge) => names.includes(edge.from) && edge.from !== edge.to);
  const layers = layered(names, kept);
  names.sort((a, b) => layers.get(a) - layers.get(b));
  return { names, layers, edges: kept };
}

function layered(names, edges) {
  const layers = new Map(names.map((name) => [name, 0]));
  // A way has at most as many edges as there are names: a cycle cannot keep this going.
  for (let turn = 0; turn < names.length; turn++) {
    let moved = false;
    for (const { from, to } of edges) {
      if (layers.get(to) > layers.get(from) || layers.get(from) + 1 >= names.length) continue;
      layers.set(to, layers.get(from) + 1);
      moved = true;
    }
    if (!moved) break;
  }
  return layers;
}

/** Places in units: {nodes: Map name → {layer, at}, edges: [{…edge, bends: [{layer, at}]}], layers, breadth}. */
export function placed(plan) {
  const { names, layers, edges } = ordered(plan);
  const rows = [];
  const row = (layer) => (rows[layer] ??= []);
  for (const name of names) row(layers.get(name)).push({ name });
  const links = edges.map((edge) => bent(edge, layers, row));
  for (let turn = 0; turn < SWEEPS; turn++) sweep(rows, links, turn % 2 === 0);
  const breadth = Math.max(...rows.map((one) => one.length), 1);
  const nodes = new Map();
  rows.forEach((one, layer) => one.forEach((item, n) => {
    item.layer = layer;
    item.at = n + (breadth - one.length) / 2;
    if (item.name) nodes.set(item.name, item);
  }));
  return { names, nodes, edges: links.map(({ edge, bends }) => ({ ...edge, bends })), layers: rows.length, breadth };
}

function bent(edge, layers, row) {
  const bends = [];
  for (let layer = layers.get(edge.from) + 1; layer < layers.get(edge.to); layer++) {
    const bend = {};
    row(layer).push(bend);
    bends.push(bend);
  }
  return { edge, bends };
}

function sweep(rows, links, down) {
  rows.forEach((row) => row.forEach((item, n) => (item.at = n - (row.length - 1) / 2)));
  const byName = new Map(rows.flat().filter((item) => item.name).map((item) => [item.name, item]));
  const before = new Map();
  for (const { edge, bends } of links) {
    const way = [byName.get(edge.from), ...bends, byName.get(edge.to)];
    if (!down) way.reverse();
    for (let n = 1; n < way.length; n++) before.set(way[n], [...(before.get(way[n]) ?? []), way[n - 1].at]);
  }
  for (const row of rows) {
    const mean = (item) => {
      const places = before.get(item);
      return places ? places.reduce((sum, at) => sum + at, 0) / places.length : item.at;
    };
    row.sort((a, b) => mean(a) - mean(b));
  }
}
