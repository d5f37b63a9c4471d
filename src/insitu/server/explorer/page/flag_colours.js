// Colours and words of flag variables: each value stands for a meaning, or for several whose bits are set.

import { categoryColour, parseColour, pixelOf } from "./colour.js";
import { svgElement } from "./element.js";

/** @import { Flag, Variable } from "./archive.js" */
/** @import { Numbers } from "./binary.js" */

/**
 * Words with their colours and how often they occur, and the room that there is for them.
 *
 * @typedef {{ entries: { words: string, colour: string, count: number }[], title: string, width: number, height: number }} Legend
 */

const CATEGORIES = 22; // distinct colours; further ones are darker
const [LINE, LEFT, TOP] = [19, 12, 22];

/** @type {Flag[]} */
const TRUTH = ["false", "true"].map((meaning, value) => ({ meaning, value, mask: null, colour: null }));

/**
 * Return the flags of a variable: those that its attributes describe, or false and true; null if it has none.
 *
 * @param {Pick<Variable, "flags" | "kind">} variable
 */
export function flagsOf({ flags, kind }) {
  return kind === "bool" ? TRUTH : flags;
}

/** @param {number} number */
function colourOfNumber(number) {
  const shade = 0.66 ** Math.floor(number / CATEGORIES);
  return `rgb(${parseColour(categoryColour(number % CATEGORIES)).map((level) => Math.round(level * shade)).join(", ")})`;
}

/**
 * Return whether a flag is set in a value. Big integers have the bits of numbers of any size, negative ones too.
 *
 * @param {Flag} flag
 * @param {number} number
 */
function isSet({ value, mask }, number) {
  if (mask === null) return value === number;
  if (!Number.isInteger(number)) return false;
  const bits = BigInt(number) & BigInt(mask);
  return value === null ? bits !== 0n : bits === BigInt(value);
}

/** How the values of a flag variable become colours and words. */
export class FlagColours {
  /** @type {Map<number, { words: string, colour: string, pixel: number }>} */
  #known = new Map();

  /** @param {Flag[]} flags */
  constructor(flags) {
    this.flags = flags;
  }

  /** @param {number} value */
  #describe(value) {
    const known = this.#known.get(value);
    if (known) return known;
    const numbers = this.flags.flatMap((flag, number) => (isSet(flag, value) ? [number] : []));
    const [first] = numbers;
    const words = numbers.map((number) => this.flags[number].meaning).join(", ");
    // Several flags together have a colour of their own, the same in every picture.
    const colour =
      numbers.length === 0
        ? "rgb(150, 150, 150)"
        : numbers.length === 1
          ? (this.flags[first].colour ?? colourOfNumber(first))
          : colourOfNumber(this.flags.length + (Math.abs(value) % (2 * CATEGORIES)));
    const made = { words: words || (this.flags.some(({ mask }) => mask !== null) ? "none" : `${value}: no flag`), colour, pixel: pixelOf(colour) };
    this.#known.set(value, made);
    return made;
  }

  /** Return a function from a value to a 32-bit pixel, 0 for missing. */
  painter() {
    return (/** @type {number} */ value) => (Number.isNaN(value) ? 0 : this.#describe(value).pixel);
  }

  /**
   * Return the CSS colour of a value.
   *
   * @param {number} value
   */
  colourOf(value) {
    return this.#describe(value).colour;
  }

  /**
   * Return the CSS colour of the described value that lies nearest: that of a bar of a histogram.
   *
   * @param {number} value
   */
  nearestColour(value) {
    const known = [...this.#known.keys()];
    const distances = known.map((one) => Math.abs(one - value));
    return this.colourOf(known.length ? known[distances.indexOf(Math.min(...distances))] : value);
  }

  /**
   * Return what a value means.
   *
   * @param {number} value
   */
  wordsOf(value) {
    return this.#describe(value).words;
  }

  /**
   * Return the values that occur, with their words, colours and counts: those of flags in their order.
   *
   * @param {Numbers} values
   */
  entries(values) {
    /** @type {Map<number, number>} */
    const counts = new Map();
    for (const value of values) if (!Number.isNaN(value)) counts.set(value, (counts.get(value) ?? 0) + 1);
    /** @param {number} value */
    const place = (value) => {
      const at = this.flags.findIndex((flag) => flag.mask === null && flag.value === value);
      return at < 0 ? this.flags.length : at;
    };
    return [...counts]
      .map(([value, count]) => ({ value, count, ...this.#describe(value) }))
      .sort((one, other) => place(one.value) - place(other.value) || one.value - other.value);
  }
}

/**
 * Return the height of a legend with so many entries, or with a dozen of them.
 *
 * @param {number} count
 */
export function legendHeight(count) {
  return TOP + (Math.min(12, count) + 1) * LINE;
}

/**
 * Draw a legend of words in place of a colour bar.
 *
 * @param {SVGSVGElement} svg
 * @param {Legend} legend
 */
export function drawFlagLegend(svg, { entries, title, width, height }) {
  const room = Math.max(1, Math.floor((height - TOP) / LINE) - 1);
  // The most frequent ones, in their order, where there is no room for all.
  const least = [...entries].sort((one, other) => other.count - one.count)[room - 1]?.count ?? 0;
  const shown = entries.length > room ? entries.filter(({ count }) => count >= least).slice(0, room) : entries;
  const letters = Math.max(4, Math.floor((width - LEFT - 22) / 6.6));
  /** @param {string} words */
  const cut = (words) => (words.length > letters ? `${words.slice(0, letters - 1)}…` : words);
  const all = entries.reduce((sum, { count }) => sum + count, 0);
  const text = { class: "axis-title", x: LEFT };
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", `Legend: ${entries.map(({ words }) => words).join("; ")}`);
  svg.replaceChildren(
    svgElement("text", { ...text, y: TOP - 7 }, cut(title)),
    ...shown.flatMap(({ words, colour, count }, at) => [
      svgElement("rect", { x: LEFT, y: TOP + at * LINE, width: 14, height: 14, fill: colour, class: "flag" }),
      svgElement(
        "text",
        { ...text, x: LEFT + 20, y: TOP + at * LINE + 11 },
        cut(words),
        svgElement("title", {}, `${words}: ${((100 * count) / all).toPrecision(3)} %`),
      ),
    ]),
    ...(shown.length < entries.length
      ? [svgElement("text", { ...text, y: TOP + shown.length * LINE + 11 }, `and ${entries.length - shown.length} more`)]
      : []),
  );
}
