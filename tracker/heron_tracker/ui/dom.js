// Elements are made of nodes and text, never of HTML: whatever a topology calls itself stays text.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Properties: attributes, `on…` listeners, `tip` (a tooltip), `class`; null ones are left out. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set one property, only if it changed: a page of 1,000 rows is updated every few seconds. */
export function set(element, name, value) {
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
    return;
  }
  const attribute = name === "tip" ? "data-tip" : name;
  if (value === null || value === undefined || value === false) element.removeAttribute(attribute);
  else if (element.getAttribute(attribute) !== String(value)) {
    element.setAttribute(attribute, value === true ? "" : value);
  }
}

/** Set the text, only if it changed. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** Set the text of a name, which may be broken after its separators and nowhere else. */
export function breakable(element, value) {
  if (element.textContent === value) return;
  element.replaceChildren(...value.split(/(?<=[_\-./:])/).flatMap((part, n) => (n ? [document.createElement("wbr"), part] : [part])));
}

/** Have exactly these children, in this order, moving as few as possible. */
export function children(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.childNodes]) if (!keep.has(child)) child.remove();
  wanted.forEach((child, n) => {
    if (parent.childNodes[n] !== child) parent.insertBefore(child, parent.childNodes[n] ?? null);
  });
}

/** Elements that are kept from one update to the next, by key. */
export class Keyed {
  constructor(parent, create, update) {
    Object.assign(this, { parent, create, update, elements: new Map() });
  }

  show(items, keyOf) {
    const wanted = items.map((item) => {
      const key = keyOf(item);
      if (!this.elements.has(key)) this.elements.set(key, this.create(item));
      const element = this.elements.get(key);
      this.update(element, item);
      return element;
    });
    const keys = new Set(items.map(keyOf));
    for (const key of [...this.elements.keys()]) if (!keys.has(key)) this.elements.delete(key);
    children(this.parent, wanted);
  }
}

/** Enter and space press what is not a button but acts like one (a shape in an SVG). */
export function pressable(element, press) {
  element.addEventListener("click", press);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    press(event);
  });
  return element;
}
