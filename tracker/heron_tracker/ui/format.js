// Numbers as people read them. The exact value belongs into the tooltip.

export const NONE = "–";
const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Three digits that count: 1.23, 12.3, 123. */
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.01) return String(Number(value.toPrecision(2)));
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** 9,876 or 12.3 k. */
export function count(value) {
  if (missing(value)) return NONE;
  if (Number.isInteger(value) && Math.abs(value) < 10_000) return value.toLocaleString("en");
  for (const [size, unit] of STEPS) if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`;
  return digits(value);
}

/** 12.3 k/s. */
export const rate = (value) => (missing(value) ? NONE : `${count(value)}/s`);

/** A latency in ms: 817 ns, 12.3 µs, 4.50 ms, 1.20 s. */
export function latency(ms) {
  if (missing(ms)) return NONE;
  if (ms === 0) return "0 ms";
  if (ms < 1e-3) return `${digits(ms * 1e6)} ns`;
  if (ms < 1) return `${digits(ms * 1e3)} µs`;
  return ms < 1000 ? `${digits(ms)} ms` : `${digits(ms / 1000)} s`;
}

/** A longer time in seconds: 0 s, 3.2 s, 3 min 12 s, 2 h 5 min, 3 d 2 h. */
export function duration(seconds) {
  if (missing(seconds)) return NONE;
  if (seconds < 1) return seconds === 0 ? "0 s" : `${digits(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 && !Number.isInteger(seconds) ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const [big, small, size] = seconds < 3600 ? ["min", "s", 60] : seconds < 86_400 ? ["h", "min", 3600] : ["d", "h", 86_400];
  const rest = Math.floor((seconds % size) / (size === 86_400 ? 3600 : size / 60));
  return `${Math.floor(seconds / size)} ${big}${rest ? ` ${rest} ${small}` : ""}`;
}

/** 82.7 MiB. */
export function bytes(value) {
  if (missing(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit ? digits(value) : value} ${units[unit]}`;
}

/** A share: 59.9 %. */
export const percent = (value) => (missing(value) ? NONE : `${digits(value * 100)} %`);

/** host:port; IPv6 literals stand in brackets. */
export const address = (host, port) => (host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`);

/** 0.42 cores are shown as a plain number. */
export const cores = (value) => (missing(value) ? NONE : value.toFixed(2));

/** All digits, for tooltips. */
export const exact = (value) => (missing(value) ? "not reported" : value.toLocaleString("en", { maximumFractionDigits: 9 }));

/** The time of day, or the date with it if it is another day. `when`: anything that Date takes. */
export function clock(when) {
  const date = new Date(when);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}

/** How long ago: 3 min 12 s ago. */
export const ago = (when) => `${duration(Math.max(0, Math.round((Date.now() - new Date(when)) / 1000)))} ago`;
