// Colours of the values of a picture: map, range, steps, linear or logarithmic, beyond the range, missing.

import { automaticRange, cssColour, drawableRange, lookupTable, MAPS, pixelOf, roundRange, suitableMap } from "./colour.js";
import { colourScale } from "./colour_bar.js";

/** @import { State } from "./address.js" */
/** @import { Range } from "./colour.js" */
/** @import { Named } from "./quantity.js" */

/** Most steps of a colour map. */
export const MOST_STEPS = 64;

/** How values become colours, by what a state chooses and what suits the values. */
export class ValueColours {
  /**
   * @param {State} state
   * @param {Range} range of the values
   * @param {Named} variable
   */
  constructor(state, range, variable) {
    this.map = state.map && MAPS[state.map] ? state.map : suitableMap(range, variable);
    this.reversed = Boolean(state.reversed);
    this.steps = Math.min(MOST_STEPS, Math.max(0, Math.round(state.steps ?? 0)));
    let [low, high] = automaticRange(this.map, range, state.limits === "extremes");
    if (this.steps && !state.log) [low, high] = roundRange(low, high, this.steps);
    const limits = [state.low ?? low, state.high ?? high];
    const [least, most] = drawableRange(Math.min(...limits), Math.max(...limits));
    this.low = least;
    this.high = most;
    this.isLog = Boolean(state.log) && this.low > 0;
    this.scale = colourScale(this.low, this.high, this.isLog);
    /** Colours beyond the range, those of its ends if none are chosen; null for missing: hatched. */
    this.below = state.below ?? this.colourAt(0);
    this.above = state.above ?? this.colourAt(1);
    this.missing = state.missing ?? null;
  }

  /**
   * Return a function from a value to a 32-bit pixel, 0 for missing ones that are hatched. It looks colours up in a
   * table, and computes the place in a linear one by itself: it is called for every value of a picture, while a slider
   * moves.
   *
   * @returns {(value: number) => number}
   */
  painter() {
    const { low, high, scale } = this;
    const table = lookupTable(this.map, this.reversed, this.steps);
    const last = table.length - 1;
    const [below, above] = [pixelOf(this.below), pixelOf(this.above)];
    const missing = this.missing === null ? 0 : pixelOf(this.missing);
    const factor = high > low ? table.length / (high - low) : 0;
    /** @type {(value: number) => number} */
    const place = this.isLog ? (value) => scale(value) * table.length : (value) => (value - low) * factor;
    return (value) =>
      Number.isNaN(value)
        ? missing
        : value < low
          ? below
          : value > high
            ? above
            : table[Math.min(last, Math.floor(place(value)))];
  }

  /**
   * Return the CSS colour of a value.
   *
   * @param {number} value
   */
  colourOf(value) {
    if (value < this.low) return this.below;
    if (value > this.high) return this.above;
    return this.colourAt(this.scale(value));
  }

  /**
   * Return the CSS colour of a share of the range.
   *
   * @param {number} share from 0 to 1
   */
  colourAt(share) {
    return cssColour(this.map, this.reversed, share, this.steps);
  }

  /** Return the borders of the steps; empty without steps. */
  get borders() {
    const { low, high, steps, isLog } = this;
    /** @type {(share: number) => number} */
    const value = (share) => (isLog ? low * (high / low) ** share : low + share * (high - low));
    return Array.from({ length: steps ? steps + 1 : 0 }, (_, at) => value(at / steps));
  }
}
