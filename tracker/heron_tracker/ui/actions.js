// Activate, deactivate, restart and kill: for a Tracker that may, each after a confirmation.

import { connection, get, place, post } from "./api.js";
import { h, text } from "./dom.js";
import { poke } from "./signal.js";

const ACTIONS = {
  activate: { label: "Activate", text: "Its spouts emit again." },
  deactivate: { label: "Deactivate", text: "Its spouts stop emitting; what is in flight is processed." },
  restart: { label: "Restart", text: "All of its processes end and start again. Tuples in flight are replayed only at least once." },
  kill: { label: "Kill", text: "All of its processes end, and its state is removed. This cannot be undone.", bad: true },
};

export class Actions {
  /** Buttons for the topology at `at`; none where the Tracker only looks. */
  constructor(at, signal) {
    Object.assign(this, { at, signal });
    this.buttons = Object.fromEntries(Object.entries(ACTIONS).map(([name, { label, bad }]) =>
      [name, h("button", { type: "button", class: bad ? "danger" : null, "data-action": name, onclick: () => this.#ask(name) }, label)]));
    this.element = h("div", { class: "buttons", id: "actions", role: "group", "aria-label": "Actions", hidden: true }, Object.values(this.buttons));
    this.buttons.activate.hidden = this.buttons.deactivate.hidden = true; // until its state is known
    this.asked = false;
    connection.listen(() => this.#permit(), signal); // signed in, or the Tracker is back
    this.#permit();
  }

  /** Show the buttons if the Tracker accepts actions from this client. Unknown: no buttons. */
  async #permit() {
    if (this.asked || connection.value.state !== "ok") return;
    this.asked = true;
    try {
      this.element.hidden = !(await get("/version", {}, { signal: this.signal })).actions;
    } catch {
      this.asked = false; // asked again as soon as the Tracker answers
    }
  }

  /** Offer what makes sense in a state, for a topology that takes checkpoints or not. */
  show(status, takesCheckpoints) {
    this.takesCheckpoints = takesCheckpoints;
    this.buttons.activate.hidden = status === "Running";
    this.buttons.deactivate.hidden = status !== "Running";
  }

  #ask(name) {
    const { label, text: consequence, bad } = ACTIONS[name];
    const forced = h("input", { type: "checkbox" });
    const choice = name === "kill" && this.takesCheckpoints
      ? h("label", { class: "choice" }, forced, "Without a last checkpoint: what was done since the newest one is lost") : "";
    const failed = h("p", { class: "bad-text", role: "alert" });
    const confirm = h("button", { type: "submit", class: bad ? "danger" : "primary" }, label);
    const submit = async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        await post(`${place(this.at)}/${name}`, forced.checked ? { force: true } : {}, { signal: this.signal });
        dialog.close();
        poke();
      } catch (error) {
        text(failed, error.message);
        confirm.disabled = false;
      }
    };
    const dialog = h("dialog", { class: "dialog", id: "confirm", "aria-labelledby": "confirm-title" },
      h("form", { onsubmit: submit }, h("h2", { id: "confirm-title" }, `${label} ${this.at.name}?`), h("p", {}, consequence), choice, failed,
        h("div", { class: "buttons" }, confirm, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}
