// What can be shown of a topology while nothing answers for its numbers: its plan.

const UNKNOWN = {
  emitted: null, executed: null, acked: null, failed: null, emit_rate: null, execute_rate: null, complete_latency_ms: null, execute_latency_ms: null,
  complete_percentiles: null, execute_percentiles: null, process_percentiles: null, restarts: null, recent_restarts: null, process_latency_ms: null, capacity: null, cpu_cores: null, memory_bytes: null, backpressure_ms: null, uptime_s: null,
};

/** A summary of which no number is known, in the Tracker's shape. */
export function planOnly(info) {
  const { logical_plan: plan, packing_plan: packing, execution_state: state } = info;
  const instances = new Map();
  for (const { id: container, instances: packed } of packing?.container_plans ?? []) {
    for (const { component_name: name, task_id: task } of packed) {
      if (!instances.has(name)) instances.set(name, []);
      instances.get(name).push({ ...UNKNOWN, id: `container_${container}_${name}_${task}`, container, attached: false, pid: 0 });
    }
  }
  const component = (kind) => (name) => ({ ...UNKNOWN, name, kind, parallelism: instances.get(name)?.length ?? 0, instances: instances.get(name) ?? [] });
  const components = [...Object.keys(plan.spouts).map(component("spout")), ...Object.keys(plan.bolts).map(component("bolt"))];
  return { name: info.name, status: state.status, tmaster: info.runtime_state.tmaster, interval: -1, culprits: [], components };
}

/** A summary that was sent without numbers: with none instead of zeros. */
export function blank(summary) {
  const emptied = (one) => ({ ...one, ...UNKNOWN });
  return { ...summary, culprits: [], components: summary.components.map((one) => ({ ...emptied(one), instances: one.instances.map(emptied) })) };
}
