// Colours of the values of a picture: map, range, linear or logarithmic.

import { automaticRange, cssColour, lookupTable, MAPS, suitableMap } from "./colour.js";
import { colourScale } from "./colour_bar.js";

/** @import { State } from "./address.js" */
/** @import { Range } from "./colour.js" */

/** How values become colours, by what a state chooses and what suits the values. */
export class ValueColours {
  /**
   * @param {State} state
   * @param {Range} range of the values
   */
  constructor(state, range) {
    this.map = state.map && MAPS[state.map] ? state.map : suitableMap(range);
    this.reversed = Boolean(state.reversed);
    const [low, high] = automaticRange(this.map, range);
    const limits = [state.low ?? low, state.high ?? high];
    this.low = Math.min(...limits);
    this.high = Math.max(...limits);
    this.isLog = Boolean(state.log) && this.low > 0;
    this.scale = colourScale(this.low, this.high, this.isLog);
  }

  /**
   * Return a function from a value to a 32-bit pixel, 0 for missing. It looks colours up in a table of 256, and computes
   * the place in a linear one by itself: it is called for every value of a picture, while a slider moves.
   *
   * @returns {(value: number) => number}
   */
  painter() {
    const { low, high, scale } = this;
    const table = lookupTable(this.map, this.reversed);
    if (this.isLog)
      return (value) => (Number.isNaN(value) ? 0 : table[value > low ? Math.round(scale(value) * 255) : 0]);
    const factor = high > low ? 255 / (high - low) : 0;
    return (value) => (Number.isNaN(value) ? 0 : table[Math.max(0, Math.min(255, Math.round((value - low) * factor)))]);
  }

  /**
   * Return the CSS colour of a value.
   *
   * @param {number} value
   */
  colourOf(value) {
    return cssColour(this.map, this.reversed, this.isLog && value <= 0 ? 0 : this.scale(value));
  }
}
