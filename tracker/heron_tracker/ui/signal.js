// A value that notifies listeners when it is set, and work that is repeated.

export class Signal {
  #listeners = new Set();

  constructor(value) {
    this.value = value;
  }

  set(value) {
    this.value = value;
    for (const listener of [...this.#listeners]) listener(value);
  }

  /** Call with every new value until `signal` is aborted. */
  listen(listener, signal) {
    this.#listeners.add(listener);
    signal?.addEventListener("abort", () => this.#listeners.delete(listener));
  }
}

/** Work again, now. Sent when the page is seen again, or somebody presses Retry. */
export const poke = () => document.dispatchEvent(new Event("heron:poke"));
document.addEventListener("visibilitychange", () => document.hidden || poke());

/** Do something every so often until `signal` is aborted, one at a time, and not while the page is hidden. */
export async function every(ms, work, signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await work();
      } catch (error) {
        // What failed is shown by the caller; the next turn tries again. A bug must not be silent.
        if (!signal.aborted && !["ApiError", "GoneError"].includes(error.constructor.name)) console.error(error);
      }
    }
    await pause(ms, signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      document.removeEventListener("heron:poke", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    document.addEventListener("heron:poke", done);
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}
