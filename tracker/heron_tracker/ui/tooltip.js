// One tooltip for everything that has data-tip, for the mouse and for the keyboard.

import { h } from "./dom.js";

const GAP = 12;
const bubble = h("div", { class: "tooltip", role: "tooltip", id: "tooltip", hidden: true });

/** Show a text at a point of the window; canvases call it themselves. */
export function showTip(value, x, y) {
  bubble.textContent = value;
  bubble.hidden = false;
  const { width, height } = bubble.getBoundingClientRect();
  const left = x + GAP + width > innerWidth ? Math.max(4, x - width - GAP) : x + GAP;
  const top = y + GAP + height > innerHeight ? Math.max(4, y - height - GAP) : y + GAP;
  bubble.style.left = `${left}px`;
  bubble.style.top = `${top}px`;
}

export const hideTip = () => {
  bubble.hidden = true;
};

export function startTooltips() {
  document.body.append(bubble);
  const owner = (event) => event.target.closest?.("[data-tip]");
  document.addEventListener("pointerover", (event) => {
    const element = owner(event);
    if (element) showTip(element.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.matches?.("canvas")) hideTip();
  });
  document.addEventListener("focusin", (event) => {
    const element = event.target.matches(":focus-visible") && owner(event);
    if (!element) return hideTip();
    const { left, bottom } = element.getBoundingClientRect();
    return showTip(element.dataset.tip, left, bottom - GAP / 2);
  });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  document.addEventListener("scroll", hideTip, true);
}
