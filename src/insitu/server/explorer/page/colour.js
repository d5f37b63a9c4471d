// Colour maps: perceptually uniform ones, and diverging ones around zero.

import {
  interpolateBrBG,
  interpolateCividis,
  interpolateGreys,
  interpolateInferno,
  interpolateMagma,
  interpolatePlasma,
  interpolatePuOr,
  interpolateRdBu,
  interpolateViridis,
  schemeSet3,
  schemeTableau10,
} from "./vendor/plotting.js";

/**
 * @typedef {object} ColourMap
 * @property {string} label
 * @property {(share: number) => string} at colour of a share from 0 to 1
 * @property {boolean} [diverging] whether its middle means zero
 */

/**
 * Range of values: extremes, and the 2nd and 98th percentile; null if all are missing.
 *
 * @typedef {{ min: number | null, max: number | null, low: number | null, high: number | null }} Range
 */

/**
 * Colour maps by name. Those of ColorBrewer are turned so that high values are warm, or dark.
 *
 * @type {Record<string, ColourMap>}
 */
export const MAPS = {
  viridis: { label: "Viridis", at: interpolateViridis },
  cividis: { label: "Cividis", at: interpolateCividis },
  magma: { label: "Magma", at: interpolateMagma },
  inferno: { label: "Inferno", at: interpolateInferno },
  plasma: { label: "Plasma", at: interpolatePlasma },
  greys: { label: "Greys", at: (share) => interpolateGreys(1 - share) },
  rdbu: { label: "Red–blue (diverging)", at: (share) => interpolateRdBu(1 - share), diverging: true },
  brbg: { label: "Brown–green (diverging)", at: interpolateBrBG, diverging: true },
  puor: { label: "Purple–orange (diverging)", at: (share) => interpolatePuOr(1 - share), diverging: true },
};

/**
 * Return the red, green and blue of a CSS colour such as `rgb(1, 2, 3)` or `#rrggbb`.
 *
 * @param {string} text
 */
export function parseColour(text) {
  if (text.startsWith("#")) return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  return (text.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
}

/**
 * Return 256 colours as 32-bit pixels (little-endian RGBA, opaque). A million values take less than 0.1 s by this table,
 * 2 to 4 s by formatting and parsing the CSS colour of each.
 *
 * @param {string} name
 * @param {boolean} reversed
 */
export function lookupTable(name, reversed) {
  const { at } = MAPS[name] ?? MAPS.viridis;
  return Uint32Array.from({ length: 256 }, (_, step) => {
    const [red, green, blue] = parseColour(at(reversed ? 1 - step / 255 : step / 255));
    return (255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red);
  });
}

/**
 * Return the CSS colour of a share from 0 to 1.
 *
 * @param {string} name
 * @param {boolean} reversed
 * @param {number} share
 */
export function cssColour(name, reversed, share) {
  const { at } = MAPS[name] ?? MAPS.viridis;
  return at(reversed ? 1 - share : share);
}

/**
 * Return the map for values: diverging if they lie on both sides of zero, about evenly.
 *
 * @param {Range} range
 */
export function suitableMap({ low, high }) {
  const both =
    low !== null && high !== null && low < 0 && high > 0 && Math.min(-low, high) > 0.25 * Math.max(-low, high);
  return both ? "rdbu" : "viridis";
}

/**
 * Return the automatic range of a map: that of the bulk of the values, symmetric for diverging maps.
 *
 * @param {string} name
 * @param {Range} range
 * @returns {[number, number]}
 */
export function automaticRange(name, range) {
  let { low, high } = range;
  if (low === high) ({ min: low, max: high } = range);
  if (low === null || high === null) return [0, 1];
  if (MAPS[name]?.diverging && low < 0 && high > 0) {
    const size = Math.max(-low, high);
    return [-size, size];
  }
  return low === high ? widen(low) : [low, high];
}

/**
 * @param {number} value
 * @returns {[number, number]}
 */
function widen(value) {
  const size = Math.abs(value) * 0.05 || 0.5;
  return [value - size, value + size];
}

const CATEGORIES = [...schemeTableau10, ...schemeSet3];

/**
 * Return the colour of a category (a file, a codec) by its number; many numbers share one of 22 colours.
 *
 * @param {number} number
 */
export function categoryColour(number) {
  return CATEGORIES[number % CATEGORIES.length];
}
