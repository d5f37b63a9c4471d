// Make HTML and SVG elements. Texts become text nodes only: nothing that a file says is ever HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element with attributes (`on…` functions become listeners, false and null are left out). */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element. */
export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Return a `<select>` with `[value, label]` options. */
export function choice(label, options, chosen, onchange, attributes = {}) {
  const select = element("select", { "aria-label": label, onchange: () => onchange(select.value), ...attributes });
  setOptions(select, options, chosen);
  return select;
}

/** Replace the options of a `<select>`. */
export function setOptions(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  select.value = chosen;
}

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  back: "M10.5 3 5 8l5.5 5z",
  forward: "M5.5 3 11 8l-5.5 5z",
  folder: "M1.5 4.5v8h13v-6.5h-6.5l-1.5-2h-5z",
  file: "M3.5 1.5h6l3 3v10h-9z",
  cube: "M8 1.5 14 4.8v6.4L8 14.5 2 11.2V4.8zM2 4.8 8 8l6-3.2M8 8v6.5",
  home: "M2 8 8 2.5 14 8M4 7v6.5h8V7",
};

/** Return a small picture for a button or a list entry; screen readers skip it. */
export function icon(name) {
  const path = svgElement("path", { d: ICONS[name] });
  return svgElement("svg", { viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true" }, path);
}
