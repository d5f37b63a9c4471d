// A composite of three bands as red, green and blue: which bands, their pictures, and how they become pixels.

import { changeState } from "./address.js";
import { choice, element, labelled, setOptions } from "./element.js";
import { formatNumber } from "./format.js";
import { sizeOf } from "./plane.js";
import { coordinateOf, labelAt } from "./sliders.js";

/** @import { Bands, State } from "./address.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Variable } from "./archive.js" */
/** @import { Numbers } from "./binary.js" */
/** @import { Range } from "./colour.js" */
/** @import { FieldAnswer } from "./field_view.js" */
/** @import { FieldPlane } from "./plane.js" */
/** @import { Coordinate } from "./sliders.js" */

const NAMES = /** @type {const} */ (["red", "green", "blue"]);
const MOST_BANDS = 500; // that are offered
/** Wavelengths of red, green and blue in nanometres. */
const LENGTHS = [650, 550, 475];
/** Lengths of units in nanometres. */
const UNITS = new Map([
  ["nm", 1],
  ["nanometer", 1],
  ["nanometers", 1],
  ["um", 1000],
  ["µm", 1000],
  ["micron", 1000],
  ["microns", 1000],
  ["micrometer", 1000],
  ["micrometers", 1000],
  ["m", 1e9],
]);

/**
 * Return the dimension of a variable whose positions are bands of an image; undefined if it has none.
 *
 * @param {Pick<Variable, "dims" | "shape">} variable
 */
export function bandDimension({ dims, shape }) {
  const isBand = /^(band|channel|wave|wavelength|wl|spectral|sample|colou?r|rgb|component)/i;
  return dims.find((dim, at) => isBand.test(dim) && shape[at] >= 3);
}

/**
 * Return the positions of red, green and blue: by the names of bands, else by wavelengths, else the first three.
 *
 * @param {Pick<Coordinate, "values" | "units" | "step"> | null} coordinate
 * @returns {[number, number, number]}
 */
export function trueColours(coordinate) {
  const values = coordinate && coordinate.step === 1 ? coordinate.values : [];
  const words = values.map((value) => String(value).toLowerCase());
  /** @param {string} name */
  const named = (name) => words.findIndex((word) => word === name || word === name[0] || word.startsWith(`${name} `));
  const byName = NAMES.map(named);
  if (byName.every((at) => at >= 0)) return /** @type {[number, number, number]} */ (byName);
  const factor = UNITS.get((coordinate?.units ?? "").toLowerCase());
  if (factor !== undefined && values.every((value) => typeof value === "number")) {
    const lengths = /** @type {number[]} */ (values).map((value) => value * factor);
    const nearest = LENGTHS.map((length) => {
      const distances = lengths.map((other) => Math.abs(other - length));
      return distances.indexOf(Math.min(...distances));
    });
    // Thermal bands have no red, green and blue.
    if (new Set(nearest).size === 3 && nearest.every((at, number) => Math.abs(lengths[at] - LENGTHS[number]) < 100))
      return /** @type {[number, number, number]} */ (nearest);
  }
  return [0, 1, 2];
}

/**
 * Return a function from a cell to its 32-bit pixel, 0 where a band is missing.
 *
 * @param {[Numbers, Numbers, Numbers]} bands
 * @param {[number, number][]} limits lowest and highest value of each
 * @returns {(cell: number) => number}
 */
export function compositePainter(bands, limits) {
  const scale = limits.map(([low, high]) => (high > low ? 255.999 / (high - low) : 0));
  /** @type {(band: number, cell: number) => number} */
  const level = (band, cell) =>
    Math.max(0, Math.min(255, Math.floor((bands[band][cell] - limits[band][0]) * scale[band])));
  return (cell) =>
    Number.isNaN(bands[0][cell] + bands[1][cell] + bands[2][cell])
      ? 0
      : ((255 << 24) | (level(2, cell) << 16) | (level(1, cell) << 8) | level(0, cell)) >>> 0;
}

/**
 * Return the lowest and highest value of a band: what is typed, those of bytes, or those of the bulk of the values.
 *
 * @param {State} state
 * @param {Range} range
 * @param {string} dtype
 * @returns {[number, number]}
 */
export function bandLimits(state, range, dtype) {
  const [low, high] = state.limits === "extremes" ? [range.min, range.max] : [range.low, range.high];
  const [least, most] = dtype === "uint8" ? [0, 255] : [low ?? 0, high ?? 1];
  return [state.low ?? least, state.high ?? most];
}

/** The composite of a variable's bands, with its controls. */
export class Composite {
  /** @type {Coordinate | null} */
  #coordinate = null;

  /**
   * @param {string} url
   * @param {Variable} variable
   */
  constructor(url, variable) {
    this.variable = variable;
    this.dim = bandDimension(variable);
    /** @type {HTMLInputElement} */
    this.shown = element("input", { type: "checkbox", name: "composite", onchange: () => this.#toggle() });
    this.bands = NAMES.map((name, at) => choice(`Band of ${name}`, [], "", (band) => this.#choose(at, Number(band))));
    this.element = labelled(
      "Composite",
      element("label", { class: "tick" }, this.shown, "red, green, blue"),
      ...this.bands,
    );
    this.element.hidden = true;
    if (this.dim)
      coordinateOf(url, variable, this.dim).then(
        (coordinate) => {
          this.#coordinate = coordinate;
          this.#showOptions();
        },
        () => {},
      );
  }

  /** @type {Bands | null} */
  #chosen = null;

  #toggle() {
    changeState({ rgb: this.shown.checked ? trueColours(this.#coordinate) : null });
  }

  /**
   * @param {number} at
   * @param {number} band
   */
  #choose(at, band) {
    if (this.#chosen) changeState({ rgb: /** @type {Bands} */ (this.#chosen.map((one, number) => (number === at ? band : one))) });
  }

  #showOptions() {
    if (!this.dim) return;
    const count = Math.min(MOST_BANDS, sizeOf(this.variable, this.dim));
    const { dim } = this;
    const options = Array.from({ length: count }, (_, at) => /** @type {[string, string]} */ ([String(at), this.#nameOf(at, dim)]));
    this.bands.forEach((select, at) => {
      select.hidden = !this.#chosen;
      setOptions(select, options, String(this.#chosen?.[at] ?? at));
    });
  }

  /**
   * @param {number} band
   * @param {string} dim
   */
  #nameOf(band, dim) {
    return this.#coordinate ? `${dim} ${labelAt(this.#coordinate, band)}` : `${dim} ${band}`;
  }

  /**
   * Show in the controls what a state chooses.
   *
   * @param {State} state
   * @param {FieldPlane} plane
   */
  update(state, plane) {
    this.element.hidden = this.dim === undefined || !(this.dim in plane.index);
    const bands = compositeBands(state, plane);
    const isOther = JSON.stringify(bands) !== JSON.stringify(this.#chosen);
    this.#chosen = bands;
    this.shown.checked = bands !== null;
    if (isOther || !this.bands[0].childElementCount) this.#showOptions();
  }

  /**
   * Return what is asked for beside a picture: the three bands of the same cells; nothing without a composite.
   *
   * @param {Parameters} parameters of the picture
   * @returns {Parameters[]}
   */
  requests(parameters) {
    const { dim } = this;
    const index = /** @type {Record<string, number>} */ (parameters.index);
    return dim && this.#chosen ? this.#chosen.map((band) => ({ ...parameters, index: { ...index, [dim]: band } })) : [];
  }

  /**
   * Return how the cells of answers are painted, and a legend; null if there are no bands.
   *
   * @param {State} state
   * @param {FieldAnswer} answer whose ranges count
   */
  painting(state, { bands }) {
    const chosen = this.#chosen;
    const { dim } = this;
    if (!bands || bands.length < 3 || !chosen || !dim) return null;
    const limits = bands.map(({ header }) => bandLimits(state, header.range, this.variable.dtype));
    return {
      paint: (/** @type {FieldAnswer} */ painted) => {
        const [red, green, blue] = valuesOfBands(painted);
        return {
          cells: Float64Array.from({ length: red.length }, (_, cell) => cell),
          painter: compositePainter([red, green, blue], limits),
        };
      },
      entries: NAMES.map((colour, at) => ({
        words: `${this.#nameOf(chosen[at], dim)}: ${formatNumber(limits[at][0], 4)}–${formatNumber(limits[at][1], 4)}`,
        colour,
        count: 1,
      })),
    };
  }
}

/** @param {FieldAnswer} answer */
function valuesOfBands({ bands = [] }) {
  return bands.map(({ arrays }) => arrays.values);
}

/**
 * Return what a cell of a composite holds, in words; undefined where there are no bands.
 *
 * @param {FieldAnswer} answer
 * @param {number} cell
 */
export function wordsOfBands(answer, cell) {
  const found = valuesOfBands(answer).map((values, at) => `${NAMES[at]} ${formatNumber(values[cell], 6)}`);
  return found.length ? found.join(", ") : undefined;
}

/**
 * Return the bands of a state's composite; null if it shows none, or the variable has none.
 *
 * @param {State} state
 * @param {FieldPlane} plane
 * @returns {Bands | null}
 */
export function compositeBands(state, plane) {
  const dim = bandDimension(plane.variable);
  if (!state.rgb || dim === undefined || !(dim in plane.index)) return null;
  return state.rgb.every((band) => band >= 0 && band < sizeOf(plane.variable, dim)) ? state.rgb : null;
}
