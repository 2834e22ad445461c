// The physical plan as rings: hosts, their containers, their instances. Pure: angles in, angles out.

const TURN = 2 * Math.PI;

/** Hosts with containers with instances: [{id, containers: [{id, number, instances: [{id, component}]}]}]. */
export function hosts(physical, summary) {
  const instances = summary.components.flatMap((component) =>
    component.instances.map((one) => ({ id: one.id, component: component.name, number: one.container, load: one })));
  const hostOf = new Map();
  const stmgrOf = new Map();
  for (const stmgr of Object.values(physical?.stmgrs ?? {})) {
    const number = Number(stmgr.id.replace(/^\D*/, ""));
    hostOf.set(number, stmgr.host);
    stmgrOf.set(number, stmgr);
  }
  const found = new Map();
  for (const one of instances) {
    const host = hostOf.get(one.number) ?? "not placed yet";
    if (!found.has(host)) found.set(host, new Map());
    const containers = found.get(host);
    if (!containers.has(one.number)) containers.set(one.number, { id: `container ${one.number}`, number: one.number, stmgr: stmgrOf.get(one.number), instances: [] });
    containers.get(one.number).instances.push(one);
  }
  return [...found].map(([id, containers]) => ({
    id, containers: [...containers.values()].sort((a, b) => a.number - b.number),
  }));
}

/** Arcs of three rings. Every instance gets the same angle; `zoom` is a host's or a container's id, or null. */
export function arcs(tree, zoom = null) {
  const shown = zoomed(tree, zoom);
  const total = shown.reduce((sum, host) => sum + host.containers.reduce((n, one) => n + one.instances.length, 0), 0) || 1;
  const found = [];
  let angle = -TURN / 4;
  for (const host of shown) {
    const fromHost = angle;
    for (const container of host.containers) {
      const fromContainer = angle;
      for (const instance of container.instances) {
        found.push({ ring: 2, from: angle, to: angle + TURN / total, id: instance.id, instance, container, host });
        angle += TURN / total;
      }
      found.push({ ring: 1, from: fromContainer, to: angle, id: container.id, container, host });
    }
    found.push({ ring: 0, from: fromHost, to: angle, id: host.id, host });
  }
  return found;
}

function zoomed(tree, zoom) {
  if (!zoom) return tree;
  const host = tree.find((one) => one.id === zoom);
  if (host) return [host];
  for (const one of tree) {
    const container = one.containers.find((other) => other.id === zoom);
    if (container) return [{ ...one, containers: [container] }];
  }
  return tree;
}

/** The arc at a point (from the centre, in the unit of the radii), or null. */
export function hit(found, radii, x, y) {
  const distance = Math.hypot(x, y);
  const ring = radii.findIndex(([inner, outer]) => distance >= inner && distance <= outer);
  if (ring < 0) return null;
  let angle = Math.atan2(y, x);
  if (angle < -TURN / 4) angle += TURN;
  return found.find((arc) => arc.ring === ring && angle >= arc.from && angle < arc.to) ?? null;
}
