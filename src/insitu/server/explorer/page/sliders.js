// Sliders for the dimensions that a picture does not show: labels instead of indices, play, statistics over a dimension.

import { askJson } from "./api.js";
import { choice, element, icon } from "./element.js";
import { formatLabel } from "./format.js";

const PAUSE = 220; // ms between two pictures while playing, at least
const STATISTICS = [
  ["", "at one position"],
  ["mean", "mean over all"],
  ["min", "minimum over all"],
  ["max", "maximum over all"],
  ["std", "std. deviation over all"],
];

const coordinates = new Map();

/** Return a dimension's coordinate (`{kind, units, step, values}`), asked once. */
export function coordinateOf(url, variable, dim) {
  const key = JSON.stringify([url, variable.group, variable.coordinates?.[dim] ?? null, dim]);
  if (!coordinates.has(key)) {
    const path = variable.coordinates?.[dim];
    const asked = askJson(
      "coordinate",
      path ? { url, variable: path } : { url, dimension: dim, group: variable.group },
    );
    asked.catch(() => coordinates.delete(key));
    coordinates.set(key, asked);
  }
  return coordinates.get(key);
}

/** Return the label of an index; "≈" where only every so manieth label is known. */
export function labelAt(coordinate, index) {
  const { values, step = 1, kind, units } = coordinate;
  const value = values[Math.min(values.length - 1, Math.floor(index / step))];
  const text = kind === "index" ? String(index) : formatLabel(value, kind, units);
  return index % step === 0 || kind === "index" ? text : `≈ ${text}`;
}

/** The sliders of one variable. `onmove(index)` and `onstatistic(dim, statistic)` tell what was changed. */
export class Sliders {
  element = element("div", { class: "sliders" });
  #rows = new Map();
  #playing = null;

  constructor(url, variable, { onmove, onstatistic }) {
    Object.assign(this, { url, variable, onmove, onstatistic });
  }

  /** Show sliders for these dimensions: `[{dim, size}]`. */
  show(dimensions, index, statistic, over, allowStatistics) {
    const wanted = dimensions.map(({ dim }) => dim);
    if (wanted.join() !== [...this.#rows.keys()].join()) {
      this.stop();
      this.#rows = new Map(dimensions.map(({ dim, size }) => [dim, this.#row(dim, size)]));
      this.element.replaceChildren(...[...this.#rows.values()].map(({ element: row }) => row));
    }
    for (const [dim, row] of this.#rows) {
      const isOver = over.includes(dim) && Boolean(statistic);
      row.input.value = index[dim] ?? 0;
      row.method.value = isOver ? statistic : "";
      row.method.hidden = !allowStatistics;
      row.element.classList.toggle("reduced", isOver);
      for (const control of [row.input, row.back, row.forward, row.play]) control.disabled = isOver || row.size < 2;
      this.#label(row, isOver ? statistic : null);
    }
  }

  #row(dim, size) {
    const row = { dim, size, coordinate: null };
    row.input = element("input", {
      type: "range",
      min: 0,
      max: Math.max(0, size - 1),
      step: 1,
      "aria-label": dim,
      name: dim,
      oninput: () => this.#move(row, Number(row.input.value)),
    });
    row.back = element(
      "button",
      { type: "button", class: "small", "aria-label": `${dim}: one step back`, onclick: () => this.#step(row, -1) },
      icon("back"),
    );
    row.forward = element(
      "button",
      { type: "button", class: "small", "aria-label": `${dim}: one step forward`, onclick: () => this.#step(row, 1) },
      icon("forward"),
    );
    row.play = element(
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
    row.output = element("output", { class: "label" }, "…");
    row.method = choice(`Statistic over ${dim}`, STATISTICS, "", (statistic) => this.onstatistic(dim, statistic));
    row.count = element("span", { class: "muted count" });
    row.element = element(
      "div",
      { class: "slider", "data-dim": dim },
      element("span", { class: "name" }, dim),
      row.back,
      row.play,
      row.forward,
      row.input,
      row.output,
      row.count,
      row.method,
    );
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

  #label(row, statistic) {
    const at = Number(row.input.value);
    const text = row.coordinate ? labelAt(row.coordinate, at) : String(at);
    row.output.textContent = statistic ? "all" : text;
    row.input.setAttribute("aria-valuetext", text);
    row.count.textContent = statistic ? `${row.size}` : `${at + 1} / ${row.size}`;
  }

  #move(row, at) {
    row.input.value = at;
    this.#label(row, null);
    this.onmove({ [row.dim]: at });
  }

  #step(row, by) {
    this.#move(row, (Number(row.input.value) + by + row.size) % row.size);
  }

  /** Move the first slider that can be moved. */
  step(by) {
    const row = [...this.#rows.values()].find(({ input }) => !input.disabled);
    if (row) this.#step(row, by);
  }

  #toggle(row) {
    if (this.#playing === row) return this.stop();
    this.stop();
    this.#playing = row;
    row.play.replaceChildren(icon("pause"));
    row.play.setAttribute("aria-pressed", "true");
    this.#step(row, 1);
  }

  /** Stop playing. */
  stop() {
    const row = this.#playing;
    this.#playing = null;
    clearTimeout(this.timer);
    row?.play.replaceChildren(icon("play"));
    row?.play.setAttribute("aria-pressed", "false");
  }

  /** Tell that the picture of the newest position is shown: the next one may come. */
  pictureShown() {
    clearTimeout(this.timer);
    if (this.#playing) this.timer = setTimeout(() => this.#playing && this.#step(this.#playing, 1), PAUSE);
  }
}
