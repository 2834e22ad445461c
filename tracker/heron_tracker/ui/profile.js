// From a profile to a tree of calls, and to text. Pure.
//
// A frame of the tree is a function; the lines of it that were seen are kept beside, so that one function is one box.

/** What boxes are coloured by: whose code it is. */
export const OWNERS = { yours: "Your code", engine: "The engine", library: "Libraries" };

/** `yours`, `engine` or `library`, by where a file is. */
export function ownerOf(file) {
  if (file.includes("/heronpy/") && !file.includes("/topologies/")) return "engine";
  if (/\/(site|dist)-packages\/|\/lib\/python\d|^</.test(file)) return "library";
  return "yours";
}

/** What a stack weighs: `cpu` in ms of CPU time, `wall` in ms of time. */
const weigher = (profile, by) => {
  const each = profile.samples ? (1000 * profile.seconds) / profile.samples : 0;
  return by === "cpu" ? (stack) => stack.cpu_ns / 1e6 : (stack) => stack.samples * each;
};

const node = (name, more) => ({ name, value: 0, self: 0, children: new Map(), ...more });

/** The threads of a profile, the heaviest first: [[name, weight in ms]]. */
export function threadsOf(profile, by) {
  const weigh = weigher(profile, by);
  const sums = new Map();
  for (const stack of profile.stacks) sums.set(stack.thread, (sums.get(stack.thread) ?? 0) + weigh(stack));
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** A tree of calls: {name, value, self, file, lines, owner, children}, of all threads or of one. */
export function treeOf(profile, by, thread = null) {
  const weigh = weigher(profile, by);
  const root = node(thread ?? "all threads", { thread: true });
  for (const stack of profile.stacks) {
    const weight = weigh(stack);
    if (!weight || (thread && stack.thread !== thread)) continue;
    let at = root;
    at.value += weight;
    if (!thread) at = step(at, `thread ${stack.thread}`, weight, () => node(stack.thread, { thread: true }));
    for (const number of stack.frames) {
      const { function: name, file, line } = profile.frames[number];
      at = step(at, `${name} ${file}`, weight, () => node(name, { file, lines: new Map(), owner: ownerOf(file) }));
      at.lines.set(line, (at.lines.get(line) ?? 0) + weight);
    }
    at.self += weight;
  }
  return root;
}

function step(at, key, weight, create) {
  if (!at.children.has(key)) at.children.set(key, create());
  const next = at.children.get(key);
  next.value += weight;
  return next;
}

/** Boxes below a node, the widest of siblings first: {node, depth, from, to, parent}; those narrower than `least` are left out. */
export function boxesOf(root, least) {
  const boxes = [];
  const place = (one, depth, from, parent) => {
    const box = { node: one, depth, from, to: from + one.value / root.value, parent };
    boxes.push(box);
    let at = from;
    for (const child of [...one.children.values()].sort((a, b) => b.value - a.value)) {
      const width = child.value / root.value;
      if (width >= least) place(child, depth + 1, at, box);
      at += width;
    }
  };
  if (root.value) place(root, 0, 0, null);
  return boxes;
}

/** The line of a function that was seen most. */
export const hottest = ({ lines }) => [...lines].reduce((best, one) => (one[1] > best[1] ? one : best), [0, -1])[0];

/** Collapsed stacks, as flame graph tools read them: `thread;caller (file:line);… microseconds`. */
export function collapsed(profile, by) {
  const weigh = weigher(profile, by);
  const clean = (text) => text.replaceAll(";", ":").replaceAll("\n", " ");
  const lines = profile.stacks.map((stack) => {
    const frames = stack.frames.map((n) => profile.frames[n]).map(({ function: name, file, line }) => `${clean(name)} (${clean(file)}:${line})`);
    return [[clean(stack.thread), ...frames].join(";"), Math.round(weigh(stack) * 1000)];
  });
  return lines.filter(([, weight]) => weight).map(([stack, weight]) => `${stack} ${weight}\n`).join("");
}
