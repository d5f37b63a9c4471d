// Colour maps: perceptually uniform ones, diverging ones around zero, and those that suit a quantity.

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
import { CMOCEAN } from "./vendor/cmocean.js";
import { mapOfQuantity } from "./quantity.js";

/** @import { Named } from "./quantity.js" */

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
 * Return the colours between the knots of a table: two hexadecimal digits of the place, six of the colour.
 *
 * @param {string} table
 * @returns {(share: number) => string}
 */
function interpolateKnots(table) {
  const knots = table.split(" ").map((text) => ({
    at: parseInt(text.slice(0, 2), 16) / 255,
    rgb: parseColour(`#${text.slice(2)}`),
  }));
  return (share) => {
    const next = Math.max(1, knots.findIndex(({ at }) => at >= share));
    const [one, other] = [knots[next - 1], knots[next]];
    const part = Math.min(1, Math.max(0, (share - one.at) / (other.at - one.at)));
    return `rgb(${one.rgb.map((level, at) => Math.round(level + part * (other.rgb[at] - level))).join(", ")})`;
  };
}

/** @type {(name: keyof typeof CMOCEAN, label: string, diverging?: boolean) => ColourMap} */
const ocean = (name, label, diverging = false) => ({ label, at: interpolateKnots(CMOCEAN[name]), diverging });
const heights = ocean("topo", "Heights and depths", true);

/**
 * Colour maps by group and name. Those of ColorBrewer are turned so that high values are warm, or dark.
 *
 * @type {Record<string, Record<string, ColourMap>>}
 */
export const MAP_GROUPS = {
  "Perceptually uniform": {
    viridis: { label: "Viridis", at: interpolateViridis },
    cividis: { label: "Cividis", at: interpolateCividis },
    magma: { label: "Magma", at: interpolateMagma },
    inferno: { label: "Inferno", at: interpolateInferno },
    plasma: { label: "Plasma", at: interpolatePlasma },
    greys: { label: "Greys", at: (share) => interpolateGreys(1 - share) },
  },
  "Centred at zero": {
    balance: ocean("balance", "Blue–red", true),
    delta: ocean("delta", "Blue–green", true),
    curl: ocean("curl", "Green–pink", true),
    diff: ocean("diff", "Blue–brown", true),
    rdbu: { label: "Red–blue", at: (share) => interpolateRdBu(1 - share), diverging: true },
    brbg: { label: "Brown–green", at: interpolateBrBG, diverging: true },
    puor: { label: "Purple–orange", at: (share) => interpolatePuOr(1 - share), diverging: true },
  },
  "For a quantity": {
    thermal: ocean("thermal", "Temperature"),
    haline: ocean("haline", "Salinity"),
    rain: ocean("rain", "Precipitation, humidity"),
    speed: ocean("speed", "Speed"),
    amp: ocean("amp", "Wave height"),
    solar: ocean("solar", "Radiation"),
    dense: ocean("dense", "Density, clouds"),
    ice: ocean("ice", "Ice, snow"),
    topo: heights,
    land: { label: "Heights of land", at: (share) => heights.at(0.5 + share / 2) },
    deep: ocean("deep", "Depth"),
    algae: ocean("algae", "Chlorophyll, vegetation"),
    oxy: ocean("oxy", "Oxygen"),
    matter: ocean("matter", "Nutrients, carbon"),
    turbid: ocean("turbid", "Turbidity, aerosol"),
    tempo: ocean("tempo", "Rates"),
    phase: ocean("phase", "Directions (cyclic)"),
  },
};

/** @type {Record<string, ColourMap>} Colour maps by name. */
export const MAPS = Object.assign({}, ...Object.values(MAP_GROUPS));

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
 * Return a CSS colour as `#rrggbb`.
 *
 * @param {string} text
 */
export function cssHex(text) {
  return `#${parseColour(text).map((level) => Math.round(level).toString(16).padStart(2, "0")).join("")}`;
}

/**
 * Return a colour as a 32-bit pixel: little-endian RGBA, opaque.
 *
 * @param {string} text
 */
export function pixelOf(text) {
  const [red, green, blue] = parseColour(text);
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

/**
 * Return the pixels of a map from its low to its high end: 256, or one for each step. A million values take less than
 * 0.1 s by this table, 2 to 4 s by formatting and parsing the CSS colour of each.
 *
 * @param {string} name
 * @param {boolean} reversed
 * @param {number} steps 0: none
 */
export function lookupTable(name, reversed, steps = 0) {
  const key = `${name} ${reversed} ${steps}`;
  const count = steps || 256;
  // The pictures of an animation share one.
  if (key !== latest.key)
    Object.assign(latest, {
      key,
      table: Uint32Array.from({ length: count }, (_, step) =>
        pixelOf(cssColour(name, reversed, (step + 0.5) / count, steps)),
      ),
    });
  return latest.table;
}

const latest = { key: "", table: new Uint32Array() };

/**
 * Return the CSS colour of a share from 0 to 1; of a number of steps, that of the step in which it lies. The first and
 * the last step have the colours of the ends.
 *
 * @param {string} name
 * @param {boolean} reversed
 * @param {number} share
 * @param {number} steps 0: none
 */
export function cssColour(name, reversed, share, steps = 0) {
  const { at } = MAPS[name] ?? MAPS.viridis;
  const place = steps ? (steps === 1 ? 0.5 : Math.min(steps - 1, Math.floor(share * steps)) / (steps - 1)) : share;
  return at(reversed ? 1 - place : place);
}

/**
 * Return the map for values: that of what they measure; else a diverging one if they lie on both sides of zero, about
 * evenly.
 *
 * @param {Range} range
 * @param {Named} [variable]
 */
export function suitableMap({ low, high }, variable) {
  const known = variable ? mapOfQuantity(variable) : null;
  if (known === "topo" && low !== null && low >= 0) return "land";
  if (known) return known;
  const both =
    low !== null && high !== null && low < 0 && high > 0 && Math.min(-low, high) > 0.25 * Math.max(-low, high);
  return both ? "balance" : "viridis";
}

/**
 * Return the automatic range of a map: that of the bulk of the values or of all, symmetric for diverging maps.
 *
 * @param {string} name
 * @param {Range} range
 * @param {boolean} toExtremes
 * @returns {[number, number]}
 */
export function automaticRange(name, range, toExtremes = false) {
  let { low, high } = range;
  if (low === high || toExtremes) ({ min: low, max: high } = range);
  if (low === null || high === null) return [0, 1];
  if (MAPS[name]?.diverging && (low || high)) {
    const size = Math.max(Math.abs(low), Math.abs(high));
    return [-size, size];
  }
  return low === high ? widen(low) : drawableRange(low, high);
}

/**
 * Return a range whose width is a number that can be divided: without the ends of what numbers can be.
 *
 * @param {number} low
 * @param {number} high
 * @returns {[number, number]}
 */
export function drawableRange(low, high) {
  const [least, most] = [low, high].map((limit) => Math.max(-LARGEST, Math.min(LARGEST, limit)));
  return most === least || most - least > SMALLEST ? [least, most] : widen(least);
}

/**
 * @param {number} value
 * @returns {[number, number]}
 */
function widen(value) {
  const size = Math.abs(value) > SMALLEST ? Math.abs(value) * 0.05 : 0.5;
  return [value - size, value + size];
}

/**
 * Return a range that holds another, of so many steps with round borders; zero stays a border or the middle of what is
 * centred at it.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} steps
 * @returns {[number, number]}
 */
export function roundRange(low, high, steps) {
  const least = (high - low) / steps;
  if (!(least > 0) || !Number.isFinite(least)) return [low, high];
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20]) {
    const size = factor * power;
    if (low === -high) {
      if (steps * size >= (high - low) * (1 - 1e-9)) return [(-steps * size) / 2, (steps * size) / 2];
      continue;
    }
    const first = Math.floor(low / size + 1e-9) * size;
    if (first + steps * size >= high - 1e-9 * size) return [first, first + steps * size];
  }
  return [low, high];
}

const [LARGEST, SMALLEST] = [Number.MAX_VALUE / 4, 1e-280];
const CATEGORIES = [...schemeTableau10, ...schemeSet3];

/**
 * Return the colour of a category (a file, a codec) by its number; many numbers share one of 22 colours.
 *
 * @param {number} number
 */
export function categoryColour(number) {
  return CATEGORIES[number % CATEGORIES.length];
}
