// The range of the values along a dimension, which all pictures along it share: the server takes it from a sample.

import { askJson, Latest } from "./api.js";
import { formatCount } from "./format.js";
import { fieldParameters, sizeOf } from "./plane.js";

/** @import { State } from "./address.js" */
/** @import { Range } from "./colour.js" */
/** @import { FieldPlane, Plane } from "./plane.js" */

/**
 * Answer of `api/range`.
 *
 * @typedef {Range & { along: string, size: number, positions: number[] }} RangeAnswer
 */

/** Value of the state's `range`: every picture has its own. */
export const OWN_RANGE = "picture";

/**
 * Return the dimensions that an animation of a plane could run along.
 *
 * @param {Plane} plane
 */
export function animatedDimensions({ rest, over, variable }) {
  return rest.filter((dim) => !over.includes(dim) && sizeOf(variable, dim) > 1);
}

/**
 * Return the dimension whose pictures have one range; null if each has its own.
 *
 * @param {State} state
 * @param {Plane} plane
 */
export function rangeDimension(state, plane) {
  const dims = animatedDimensions(plane);
  if (state.range === OWN_RANGE || !dims.length) return null;
  return state.range && dims.includes(state.range) ? state.range : dims[0];
}

/** The range that the pictures along a dimension share, asked for when it changes. */
export class SampledRange {
  #latest = new Latest();
  #key = "";
  /** @type {RangeAnswer | null} Null while it is not known: then each picture has its own. */
  answer = null;

  /**
   * @param {string} url
   * @param {() => void} onchange called when the range is another one
   */
  constructor(url, onchange) {
    this.url = url;
    this.onchange = onchange;
    /** @type {Promise<unknown>} Done once what was asked for last is there. */
    this.pending = Promise.resolve();
  }

  /**
   * Ask for the range of a state's pictures, unless it is known.
   *
   * @param {State} state
   * @param {FieldPlane} plane
   */
  update(state, plane) {
    const along = rangeDimension(state, plane);
    const others = Object.fromEntries(Object.entries(plane.index).filter(([dim]) => dim !== along));
    // Of all rows and columns, whatever part is shown: colours keep their meaning while one looks closer.
    const parameters =
      along === null ? null : { ...fieldParameters(this.url, { ...plane, index: others, box: plane.whole }), along };
    const key = JSON.stringify(parameters);
    if (key === this.#key) return;
    this.#key = key;
    this.#latest.stop();
    this.pending = this.#load(parameters);
  }

  /** @param {import("./api.js").Parameters | null} parameters */
  async #load(parameters) {
    const before = this.answer;
    /** @type {RangeAnswer | null | undefined} */
    let answer = null;
    try {
      if (parameters) answer = await this.#latest.run((signal) => askJson("range", parameters, signal));
      if (answer === undefined) return;
    } catch {
      // Too much for a sample: each picture has its own range. What concerns the whole page was reported by api.js.
    }
    this.answer = answer && answer.low !== null ? answer : null;
    if (this.answer || before) this.onchange();
  }

  /** What the colours mean, in words. */
  get text() {
    if (!this.answer) return "";
    const { along, size, positions } = this.answer;
    const sample = positions.length < size ? `, from a sample of ${formatCount(positions.length)}` : "";
    return `One range of colours for all ${formatCount(size)} positions along ${along}${sample}`;
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
  }
}
