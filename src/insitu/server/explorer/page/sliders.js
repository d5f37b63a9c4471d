// Sliders for the dimensions that a picture does not show: labels to type instead of indices, play, statistics over a
// dimension.

import { askJson } from "./api.js";
import { choice, element, icon, labelled, setOptions } from "./element.js";
import { parseDate } from "./calendar.js";
import { degreeAxis, formatLabel } from "./format.js";

const SPEED = 10; // pictures a second, at most, while playing
/** @type {[string, string][]} */
const SPEEDS = [
  ["1", "1 a second"],
  ["2", "2 a second"],
  ["5", "5 a second"],
  ["", "10 a second"],
  ["20", "20 a second"],
  ["60", "as fast as it goes"],
];
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
 * @typedef {{ kind: Kind | "index", units: string | null, calendar: string | null, step: number, values: (number | string)[] }} Coordinate
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
 * @property {HTMLInputElement} label what somebody may type over
 * @property {string} shown what it said before
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
  const { values, step = 1, kind, units, calendar } = coordinate;
  const value = values[Math.min(values.length - 1, Math.floor(index / step))];
  const text = kind === "index" ? String(index) : formatLabel(value, kind, units, calendar);
  return index % step === 0 || kind === "index" ? text : `≈ ${text}`;
}

/**
 * Return the position whose label is nearest to a text: a date, a number, or the beginning of a word; null if it is none
 * of them.
 *
 * @param {Coordinate | null} coordinate null: there is none
 * @param {number} size
 * @param {string} text
 */
export function nearestPosition(coordinate, size, text) {
  const { kind, values, step, calendar } = coordinate ?? { kind: "index", values: [], step: 1, calendar: null };
  const typed = text.trim().toLowerCase().replace("≈", "").replace("−", "-");
  if (kind === "text" || kind === "other") {
    const at = values.findIndex((value) => String(value).toLowerCase().startsWith(typed));
    return at < 0 || !typed ? null : at * step;
  }
  const number = kind === "time" ? parseDate(typed, calendar) : degreesOf(typed);
  if (number === null || !Number.isFinite(number)) return null;
  if (!coordinate || kind === "index") return Math.max(0, Math.min(size - 1, Math.round(number)));
  const turn = degreeAxis(coordinate.units) === "longitude" ? 360 : 0;
  let [best, distance] = [-1, Infinity];
  values.forEach((value, at) => {
    const position = kind === "time" ? parseDate(String(value), calendar) : Number(value);
    if (position === null) return;
    const away = Math.min(...[-turn, 0, turn].map((shift) => Math.abs(position + shift - number)));
    if (away < distance) [best, distance] = [at, away];
  });
  return best < 0 ? null : best * step;
}

/**
 * Return the number that a text begins with; "26.6° S" is negative. NaN if it begins with none.
 *
 * @param {string} text
 */
function degreesOf(text) {
  const found = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*°?\s*([nsew]?)/.exec(text);
  if (!found) return NaN;
  return /[sw]/.test(found[2]) ? -Number(found[1]) : Number(found[1]);
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
  #speed = SPEED;
  #isLoop = true;
  #stepped = 0;

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {object} actions
   * @param {(index: Record<string, number>) => void} actions.onmove called with the position that was changed
   * @param {(dim: string, statistic: string) => void} [actions.onstatistic] called when a statistic is chosen
   * @param {(dim: string) => void} [actions.onplay] called when a dimension begins to be played
   * @param {(pace: { speed?: number | null, once?: string | null }) => void} [actions.onpace] called when another speed is
   *   chosen, or whether to begin anew at the end
   */
  constructor(url, variable, { onmove, onstatistic, onplay, onpace }) {
    this.url = url;
    this.variable = variable;
    this.onmove = onmove;
    this.onstatistic = onstatistic;
    this.onplay = onplay;
    this.speed = choice("Speed of playing", SPEEDS, "", (speed) => onpace?.({ speed: Number(speed) || null }));
    /** @type {HTMLInputElement} */
    this.loop = element("input", {
      type: "checkbox",
      name: "loop",
      checked: true,
      onchange: () => onpace?.({ once: this.loop.checked ? null : "1" }),
    });
    this.pace = labelled("Play", this.speed, element("label", { class: "tick" }, this.loop, "again and again"));
    this.pace.hidden = true;
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
      this.element.replaceChildren(...[...this.#rows.values()].map(({ element: row }) => row), this.pace);
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
    /** @type {HTMLInputElement} */
    const label = element("input", {
      type: "text",
      class: "label",
      value: "…",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": `${dim}: type a value, the nearest one is shown`,
      title: "Type a value: the nearest one is shown",
      onfocus: () => label.select(),
      onblur: () => this.#label(row, row.element.classList.contains("reduced") ? row.method.value : null),
      onkeydown: (event) => {
        if (event.key === "Escape") label.blur();
      },
      onchange: () => this.#goTo(row),
    });
    const method = choice(`Statistic over ${dim}`, STATISTICS, "", (statistic) => this.onstatistic?.(dim, statistic));
    const count = element("span", { class: "muted count" });
    const line = element(
      "div",
      { class: "slider", "data-dim": dim },
      element("span", { class: "name", title: dim }, dim),
      back,
      play,
      forward,
      input,
      label,
      count,
      method,
    );
    /** @type {SliderRow} */
    const row = { dim, size, coordinate: null, input, back, play, forward, label, shown: "", method, count, element: line };
    coordinateOf(this.url, this.variable, dim).then(
      (coordinate) => {
        row.coordinate = coordinate;
        this.#label(row, row.element.classList.contains("reduced") ? row.method.value : null);
      },
      () => {
        row.label.value = row.input.value;
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
    // What somebody types stays while pictures pass by.
    if (document.activeElement !== row.label || row.label.value === row.shown) row.label.value = statistic ? "all" : text;
    row.shown = row.label.value;
    row.label.size = Math.max(6, row.label.value.length);
    row.label.removeAttribute("aria-invalid");
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
   * Move to the position whose label is nearest to what was typed.
   *
   * @param {SliderRow} row
   */
  #goTo(row) {
    if (row.label.value === row.shown) return;
    const found = nearestPosition(row.coordinate, row.size, row.label.value);
    row.label.setAttribute("aria-invalid", String(found === null));
    if (found === null) return;
    row.shown = row.label.value;
    this.stop();
    this.#move(row, found);
  }

  /**
   * @param {SliderRow} row
   * @param {number} by
   */
  #step(row, by) {
    this.#move(row, (Number(row.input.value) + by + row.size) % row.size);
  }

  /**
   * Show how fast is played, and whether again and again.
   *
   * @param {{ speed?: number, once?: string }} state
   */
  showPace({ speed, once }) {
    this.#speed = speed && speed > 0 ? speed : SPEED;
    this.#isLoop = !once;
    const text = this.#speed === SPEED ? "" : String(this.#speed);
    setOptions(this.speed, SPEEDS.some(([value]) => value === text) ? SPEEDS : [...SPEEDS, [text, `${text} a second`]], text);
    this.loop.checked = this.#isLoop;
    this.pace.hidden = ![...this.#rows.values()].some(({ size }) => size > 1);
  }

  /** Whether a dimension is being played. */
  get isPlaying() {
    return this.#playing !== null;
  }

  /**
   * Return the positions that are played next; none if nothing is played.
   *
   * @param {number} count
   * @returns {Record<string, number>[]}
   */
  upcoming(count) {
    const row = this.#playing;
    if (!row) return [];
    const at = Number(row.input.value);
    const left = this.#isLoop ? row.size - 1 : row.size - 1 - at;
    return Array.from({ length: Math.min(count, left) }, (_, next) => ({ [row.dim]: (at + 1 + next) % row.size }));
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
    this.#play(row);
  }

  /** @param {SliderRow} row */
  #play(row) {
    this.#stepped = performance.now();
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
    const row = this.#playing;
    if (!row) return;
    if (!this.#isLoop && Number(row.input.value) === row.size - 1) {
      this.stop();
      return;
    }
    const next = this.#stepped + 1000 / this.#speed;
    this.#timer = setTimeout(() => this.#playing && this.#play(this.#playing), Math.max(0, next - performance.now()));
  }
}
