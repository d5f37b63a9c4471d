// A composite of three bands as red, green and blue: which bands, their pictures, and how they become pixels.

import { Latest } from "./api.js";
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
/** @import { Frames } from "./frames.js" */
/** @import { FieldPlane } from "./plane.js" */
/** @import { Coordinate } from "./sliders.js" */

const NAMES = /** @type {const} */ (["red", "green", "blue"]);
const MOST_BANDS = 500; // that are offered
/** Wavelengths of red, green and blue in nanometres. */
const LENGTHS = [650, 550, 465];
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
  #latest = new Latest();
  #key = "";
  /** @type {Coordinate | null} */
  #coordinate = null;
  /** @type {FieldAnswer[] | null} */
  answers = null;
  /** @type {((cell: number) => string) | null} What a cell of the composite that is drawn holds, in words. */
  wordsOf = null;
  /** @type {Promise<unknown>} Done once what was asked for last is drawn. */
  pending = Promise.resolve();

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {Frames} frames that hold its pictures
   * @param {() => void} ondrawn called when all bands came, to draw again
   * @param {(problem: unknown) => void} onproblem
   */
  constructor(url, variable, frames, ondrawn, onproblem) {
    this.variable = variable;
    this.frames = frames;
    this.ondrawn = ondrawn;
    this.onproblem = onproblem;
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
   * Ask for the bands that a state shows.
   *
   * @param {State} state
   * @param {FieldPlane} plane
   * @param {(plane: FieldPlane) => Parameters} parametersOf
   */
  update(state, plane, parametersOf) {
    const { dim } = this;
    const canShow = dim !== undefined && dim in plane.index;
    this.element.hidden = !canShow;
    const bands = canShow ? compositeBands(state, plane) : null;
    const isOther = JSON.stringify(bands) !== JSON.stringify(this.#chosen);
    this.#chosen = bands;
    this.shown.checked = bands !== null;
    if (isOther || !this.bands[0].childElementCount) this.#showOptions();
    const requests = dim && bands ? bands.map((band) => parametersOf({ ...plane, index: { ...plane.index, [dim]: band } })) : [];
    const key = JSON.stringify(requests);
    if (key === this.#key) return;
    this.#key = key;
    this.#latest.stop();
    this.pending = this.#load(requests);
  }

  /** @param {Parameters[]} requests */
  async #load(requests) {
    if (!requests.length) {
      const before = this.answers;
      this.answers = null;
      if (before) this.ondrawn();
      return;
    }
    try {
      const answers = await this.#latest.run((signal) => Promise.all(requests.map((request) => this.frames.get(request, signal))));
      if (!answers) return;
      this.answers = answers.map((answer) => /** @type {FieldAnswer} */ (/** @type {unknown} */ (answer)));
      this.ondrawn();
    } catch (problem) {
      this.#key = "";
      this.answers = null;
      this.onproblem(problem);
    }
  }

  /**
   * Return how the cells of a picture are painted, and a legend; null if it is none of these bands.
   *
   * @param {State} state
   * @param {FieldAnswer} shown
   */
  paint(state, shown) {
    const { answers, dim } = this;
    this.wordsOf = null;
    const chosen = this.#chosen;
    if (!answers || !chosen || !dim) return null;
    const count = shown.arrays.values.length;
    if (answers.some(({ arrays, header }) => arrays.values.length !== count || String(header.box) !== String(shown.header.box))) return null;
    const limits = answers.map(({ header }) => bandLimits(state, header.range, this.variable.dtype));
    const [red, green, blue] = answers.map(({ arrays }) => arrays.values);
    this.wordsOf = (cell) => [red, green, blue].map((values, at) => `${NAMES[at]} ${formatNumber(values[cell], 6)}`).join(", ");
    return {
      cells: Float64Array.from({ length: count }, (_, cell) => cell),
      painter: compositePainter([red, green, blue], limits),
      entries: NAMES.map((colour, at) => ({
        words: `${this.#nameOf(chosen[at], dim)}: ${formatNumber(limits[at][0], 4)}–${formatNumber(limits[at][1], 4)}`,
        colour,
        count: 1,
      })),
    };
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
  }
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
