// Make HTML and SVG elements. Texts become text nodes only: nothing that a file says is ever HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * What lies in an element; null, undefined and false are left out, so that a part can depend on a condition.
 *
 * @typedef {Node | string | null | undefined | false | readonly Child[]} Child
 */

/**
 * Attributes by name. `on…` functions become listeners; null, undefined and false are left out, true is the empty text.
 *
 * @typedef {{ [Name in keyof HTMLElementEventMap as `on${Name}`]?: (event: HTMLElementEventMap[Name]) => unknown }
 *   & { [name: string]: unknown }} Attributes
 */

/**
 * Return an HTML element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Return an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} Made
 * @param {Made} made
 * @param {Attributes} attributes
 * @param {readonly Child[]} children
 */
function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.slice(2), (event) => value(event));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

/**
 * @param {Element} parent
 * @param {readonly Child[]} children
 */
function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Return a `<select>`; `onchange(value)` is called when another option is chosen.
 *
 * @param {string} label
 * @param {readonly (readonly [string, string])[]} options value and text of each
 * @param {string} chosen
 * @param {(value: string) => void} onchange
 */
export function choice(label, options, chosen, onchange) {
  /** @type {HTMLSelectElement} */
  const select = element("select", { "aria-label": label, onchange: () => onchange(select.value) });
  setOptions(select, options, chosen);
  return select;
}

/** @type {WeakMap<HTMLSelectElement, string>} */
const shownOptions = new WeakMap();

/**
 * Replace the options of a `<select>`.
 *
 * @param {HTMLSelectElement} select
 * @param {readonly (readonly [string, string])[]} options value and text of each
 * @param {string} chosen
 */
export function setOptions(select, options, chosen) {
  const key = JSON.stringify(options);
  // Most pictures have the options of the one before: the browser need not lay them out anew.
  if (shownOptions.get(select) !== key) select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  shownOptions.set(select, key);
  select.value = chosen;
}

/**
 * Return controls with a label before them.
 *
 * @param {string} text
 * @param {...Child} controls
 */
export function labelled(text, ...controls) {
  return element("div", { class: "control" }, element("span", { class: "muted" }, text), ...controls);
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

/**
 * Return a small picture for a button or a list entry; screen readers skip it.
 *
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  const path = svgElement("path", { d: ICONS[name] });
  return svgElement("svg", { viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true" }, path);
}
