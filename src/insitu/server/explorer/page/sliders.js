// Sliders for the dimensions that a picture does not show: labels instead of indices, play, statistics over a dimension.

import { askJson } from "./api.js";
import { choice, element, icon } from "./element.js";
import { formatLabel } from "./format.js";

const PAUSE = 220; // ms between two pictures while playing, at least
/** @type {[string, string][]} */
const STATISTICS = [
  ["", "at one position"],
  ["mean", "mean over all"],
  ["min", "minimum over all"],
  ["max", "maximum over all"],
  ["std", "std. deviation over all"],
];

/** @import { Kind, Variable } from "./archive.js" */

/**
 * Answer of `api/coordinate`: of a long dimension every `step`-th label.
 *
 * @typedef {{ kind: Kind | "index", units: string | null, step: number, values: (number | string)[] }} Coordinate
 */

/**
 * The slider of one dimension.
 *
 * @typedef {object} SliderRow
 * @property {string} dim
 * @property {number} size
 * @property {Coordinate | null} coordinate null until its answer is there
 * @property {HTMLInputElement} input
 * @property {HTMLButtonElement} back
 * @property {HTMLButtonElement} play
 * @property {HTMLButtonElement} forward
 * @property {HTMLOutputElement} output
 * @property {HTMLSelectElement} method
 * @property {HTMLElement} count
 * @property {HTMLElement} element
 */

/** @type {Map<string, Promise<Coordinate>>} */
const coordinates = new Map();

/**
 * Return a dimension's coordinate, asked once.
 *
 * @param {string} url
 * @param {Variable} variable
 * @param {string} dim
 * @returns {Promise<Coordinate>}
 */
export function coordinateOf(url, variable, dim) {
  const key = JSON.stringify([url, variable.group, variable.coordinates?.[dim] ?? null, dim]);
  const earlier = coordinates.get(key);
  if (earlier) return earlier;
  const path = variable.coordinates?.[dim];
  /** @type {Promise<Coordinate>} */
  const request = askJson(
    "coordinate",
    path ? { url, variable: path } : { url, dimension: dim, group: variable.group },
  );
  request.catch(() => coordinates.delete(key));
  coordinates.set(key, request);
  return request;
}

/**
 * Return the label of an index; "≈" where only every n-th label is known.
 *
 * @param {Coordinate} coordinate
 * @param {number} index
 */
export function labelAt(coordinate, index) {
  const { values, step = 1, kind, units } = coordinate;
  const value = values[Math.min(values.length - 1, Math.floor(index / step))];
  const text = kind === "index" ? String(index) : formatLabel(value, kind, units);
  return index % step === 0 || kind === "index" ? text : `≈ ${text}`;
}

/** The sliders of one variable. */
export class Sliders {
  element = element("div", { class: "sliders" });
  /** @type {Map<string, SliderRow>} */
  #rows = new Map();
  /** @type {SliderRow | null} */
  #playing = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {object} actions
   * @param {(index: Record<string, number>) => void} actions.onmove called with the position that was changed
   * @param {(dim: string, statistic: string) => void} [actions.onstatistic] called when a statistic is chosen
   * @param {(dim: string) => void} [actions.onplay] called when a dimension begins to be played
   */
  constructor(url, variable, { onmove, onstatistic, onplay }) {
    this.url = url;
    this.variable = variable;
    this.onmove = onmove;
    this.onstatistic = onstatistic;
    this.onplay = onplay;
  }

  /**
   * Show sliders for these dimensions.
   *
   * @param {{ dim: string, size: number }[]} dimensions
   * @param {Record<string, number>} index
   * @param {string} statistic
   * @param {string[]} over dimensions that the statistic reduces
   * @param {boolean} allowStatistics
   */
  show(dimensions, index, statistic, over, allowStatistics) {
    const dims = dimensions.map(({ dim }) => dim);
    if (dims.join() !== [...this.#rows.keys()].join()) {
      this.stop();
      this.#rows = new Map(dimensions.map(({ dim, size }) => [dim, this.#row(dim, size)]));
      this.element.replaceChildren(...[...this.#rows.values()].map(({ element: row }) => row));
    }
    for (const [dim, row] of this.#rows) {
      const isOver = over.includes(dim) && Boolean(statistic);
      row.input.value = String(index[dim] ?? 0);
      row.method.value = isOver ? statistic : "";
      row.method.hidden = !allowStatistics;
      row.element.classList.toggle("reduced", isOver);
      for (const control of [row.input, row.back, row.forward, row.play]) control.disabled = isOver || row.size < 2;
      this.#label(row, isOver ? statistic : null);
    }
  }

  /**
   * @param {string} dim
   * @param {number} size
   * @returns {SliderRow}
   */
  #row(dim, size) {
    /** @type {HTMLInputElement} */
    const input = element("input", {
      type: "range",
      min: 0,
      max: Math.max(0, size - 1),
      step: 1,
      "aria-label": dim,
      name: dim,
      oninput: () => this.#move(row, Number(input.value)),
    });
    const back = element(
      "button",
      { type: "button", class: "small", "aria-label": `${dim}: one step back`, onclick: () => this.#step(row, -1) },
      icon("back"),
    );
    const forward = element(
      "button",
      { type: "button", class: "small", "aria-label": `${dim}: one step forward`, onclick: () => this.#step(row, 1) },
      icon("forward"),
    );
    const play = element(
      "button",
      {
        type: "button",
        class: "small play",
        "aria-label": `Play along ${dim}`,
        "aria-pressed": "false",
        onclick: () => this.#toggle(row),
      },
      icon("play"),
    );
    const output = element("output", { class: "label" }, "…");
    const method = choice(`Statistic over ${dim}`, STATISTICS, "", (statistic) => this.onstatistic?.(dim, statistic));
    const count = element("span", { class: "muted count" });
    const line = element(
      "div",
      { class: "slider", "data-dim": dim },
      element("span", { class: "name" }, dim),
      back,
      play,
      forward,
      input,
      output,
      count,
      method,
    );
    /** @type {SliderRow} */
    const row = { dim, size, coordinate: null, input, back, play, forward, output, method, count, element: line };
    coordinateOf(this.url, this.variable, dim).then(
      (coordinate) => {
        row.coordinate = coordinate;
        this.#label(row, row.element.classList.contains("reduced") ? row.method.value : null);
      },
      () => {
        row.output.textContent = row.input.value;
      },
    );
    return row;
  }

  /**
   * @param {SliderRow} row
   * @param {string | null} statistic
   */
  #label(row, statistic) {
    const at = Number(row.input.value);
    const text = row.coordinate ? labelAt(row.coordinate, at) : String(at);
    row.output.textContent = statistic ? "all" : text;
    row.input.setAttribute("aria-valuetext", text);
    row.count.textContent = statistic ? `${row.size}` : `${at + 1} / ${row.size}`;
  }

  /**
   * @param {SliderRow} row
   * @param {number} at
   */
  #move(row, at) {
    row.input.value = String(at);
    this.#label(row, null);
    this.onmove({ [row.dim]: at });
  }

  /**
   * @param {SliderRow} row
   * @param {number} by
   */
  #step(row, by) {
    this.#move(row, (Number(row.input.value) + by + row.size) % row.size);
  }

  /**
   * Move the first slider that can be moved.
   *
   * @param {number} by
   */
  step(by) {
    const row = [...this.#rows.values()].find(({ input }) => !input.disabled);
    if (row) this.#step(row, by);
  }

  /** @param {SliderRow} row */
  #toggle(row) {
    const isPlaying = this.#playing === row;
    this.stop();
    if (isPlaying) return;
    this.#playing = row;
    row.play.replaceChildren(icon("pause"));
    row.play.setAttribute("aria-pressed", "true");
    this.onplay?.(row.dim);
    this.#step(row, 1);
  }

  /** Stop playing. */
  stop() {
    const row = this.#playing;
    this.#playing = null;
    clearTimeout(this.#timer);
    row?.play.replaceChildren(icon("play"));
    row?.play.setAttribute("aria-pressed", "false");
  }

  /**
   * Tell that the picture of the newest position is shown: the next one may come. Playing waits for each picture instead
   * of stepping by a clock, which would abort all requests that take longer than a step.
   */
  pictureShown() {
    clearTimeout(this.#timer);
    if (this.#playing) this.#timer = setTimeout(() => this.#playing && this.#step(this.#playing, 1), PAUSE);
  }
}
