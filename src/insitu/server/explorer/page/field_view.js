// The values of a variable of two or more dimensions: picture, colour bar, sliders, read-out, line plot, histogram.

import { askArrays, askJson, Latest } from "./api.js";
import { changeState } from "./address.js";
import { automaticRange, lookupTable, cssColour, MAPS, suitableMap } from "./colour.js";
import { BAR_WIDTH, ColourBar, colourScale } from "./colour_bar.js";
import { DimensionScale, isEqualAspect } from "./dimension_scale.js";
import { choice, element, setOptions } from "./element.js";
import { formatCount, formatNumber, formatTime, joinUnits, shortenText } from "./format.js";
import { Histogram } from "./histogram.js";
import { LinePlot } from "./line_plot.js";
import { errorBox, LoadingBar } from "./messages.js";
import { Picture } from "./picture.js";
import { paintRaster } from "./raster.js";
import { labelAt, coordinateOf, Sliders } from "./sliders.js";

const HOVER = 180; // ms that the pointer rests before the exact value is asked for

/** Return the two dimensions that a picture of a variable shows: chosen, spatial, or the last two. */
export function sidesOf(variable, state) {
  const { dims } = variable;
  let y = dims.includes(state.y) ? state.y : (variable.spatial?.y ?? dims.at(-2));
  let x = dims.includes(state.x) ? state.x : (variable.spatial?.x ?? dims.at(-1));
  if (y === x) y = dims.find((dim) => dim !== x);
  return { y, x };
}

/** Return what a state shows of a variable, with defaults filled in and limits kept. */
export function viewOf(variable, state) {
  const { y, x } = sidesOf(variable, state);
  const size = (dim) => variable.shape[variable.dims.indexOf(dim)];
  const rest = variable.dims.filter((dim) => dim !== y && dim !== x);
  const over = state.statistic ? (state.over ?? []).filter((dim) => rest.includes(dim)) : [];
  const clip = (at, count) => Math.max(0, Math.min(count - 1, at));
  const index = Object.fromEntries(
    rest.filter((dim) => !over.includes(dim)).map((dim) => [dim, clip(state.index?.[dim] ?? 0, size(dim))]),
  );
  const whole = [0, size(y), 0, size(x)];
  const box = state.box ?? whole;
  const fits =
    box[0] >= 0 && box[1] <= size(y) && box[0] < box[1] && box[2] >= 0 && box[3] <= size(x) && box[2] < box[3];
  return {
    variable,
    y,
    x,
    rest,
    over,
    statistic: over.length ? state.statistic : "",
    index,
    box: fits ? box : whole,
    whole,
    size,
  };
}

/** Return the parameters of `field` and `download` for a view. */
export function fieldParameters(url, view) {
  const isWhole = view.box.every((at, side) => at === view.whole[side]);
  return {
    url,
    variable: view.variable.path,
    y: view.y,
    x: view.x,
    index: view.index,
    box: isWhole ? null : view.box,
    statistic: view.statistic,
    over: view.over.join(","),
  };
}

/** Values of one variable. */
export class FieldView {
  #latest = new Latest();
  #latestPoint = new Latest();
  #data = null;
  #asked = null;
  #state = {};

  constructor(archive, variable) {
    Object.assign(this, { archive, variable, url: archive.url });
    this.picture = new Picture(`Picture of ${variable.name}`, {
      zoom: (cells) => this.#zoom(cells),
      pick: (cell) => this.#pick(cell),
      hover: (cell, spoken) => this.#hover(cell, spoken),
      reset: () => changeState({ box: null }),
      step: (by) => this.sliders.step(by),
    });
    this.bar = new ColourBar();
    this.sliders = new Sliders(this.url, variable, {
      onmove: (index) => changeState({ index: { ...this.#state.index, ...index } }, { replace: true }),
      onstatistic: (dim, statistic) => this.#setStatistic(dim, statistic),
    });
    this.histogram = new Histogram((low, high) => changeState({ low: rounded(low), high: rounded(high) }));
    this.line = new LinePlot(this.url, variable, (dim) => changeState({ line: dim }));
    this.#build();
    this.resize = new ResizeObserver(() => this.#resized());
    this.resize.observe(this.stage);
  }

  #build() {
    const change = (key) => (value) => changeState({ [key]: value });
    this.controls = {
      y: choice("Vertical axis", [], "", (dim) => this.#setSide("y", dim)),
      x: choice("Horizontal axis", [], "", (dim) => this.#setSide("x", dim)),
      map: choice(
        "Colour map",
        Object.entries(MAPS).map(([name, { label }]) => [name, label]),
        "viridis",
        change("map"),
      ),
      axes: choice(
        "Axes",
        [
          ["", "coordinates"],
          ["index", "index"],
        ],
        "",
        change("axes"),
      ),
      sampling: choice(
        "Sampling",
        [
          ["", "automatic"],
          ["mean", "mean"],
          ["nearest", "nearest"],
        ],
        "",
        change("sampling"),
      ),
    };
    const number = (key, label) =>
      element("input", {
        type: "text",
        inputmode: "decimal",
        class: "number",
        "aria-label": label,
        name: key,
        onchange: (event) => this.#setLimit(key, event.target),
      });
    this.low = number("low", "Lowest value of the colours");
    this.high = number("high", "Highest value of the colours");
    this.automatic = element(
      "button",
      { type: "button", onclick: () => changeState({ low: null, high: null }) },
      "Auto",
    );
    const tick = (key, text) => {
      const input = element("input", {
        type: "checkbox",
        name: key,
        onchange: () => changeState({ [key]: input.checked ? "1" : null }),
      });
      this.controls[key] = input;
      return element("label", { class: "tick" }, input, text);
    };
    const named = (text, ...controls) =>
      element("div", { class: "control" }, element("span", { class: "muted" }, text), ...controls);
    this.whole = element("button", { type: "button", onclick: () => changeState({ box: null }) }, "Show all");
    this.toolbar = element(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is shown, and how" },
      named("Vertical", this.controls.y),
      named("Horizontal", this.controls.x),
      named("Colours", this.controls.map, tick("reversed", "reverse"), tick("log", "log")),
      named("Range", this.low, "to", this.high, this.automatic),
      named("Axes", this.controls.axes),
      named("Sampling", this.controls.sampling),
      this.whole,
    );
    this.loading = new LoadingBar();
    this.problem = element("div", {});
    this.readout = element("div", { class: "readout", "aria-live": "off" });
    this.spoken = element("div", { class: "visually-hidden", "aria-live": "polite" });
    this.caption = element("p", { class: "caption muted small-text" });
    this.stage = element("div", { class: "stage" }, this.picture.element, this.bar.element);
    this.keys = element(
      "p",
      { id: "picture-keys", class: "visually-hidden" },
      "Arrow keys move the cross-hair, Enter draws lines through it, plus zooms in, minus shows all, brackets move the first slider.",
    );
    this.cards = element("div", { class: "cards" }, this.line.element, this.histogram.element);
    this.element = element(
      "div",
      { class: "field-view" },
      this.toolbar,
      this.sliders.element,
      this.loading.element,
      this.problem,
      this.stage,
      this.readout,
      this.spoken,
      this.caption,
      this.keys,
      this.cards,
    );
    this.line.element.hidden = true;
  }

  /** Show a state. */
  async update(state) {
    const before = this.#state;
    this.#state = state;
    this.view = viewOf(this.variable, state);
    this.#showControls();
    const parameters = { ...fieldParameters(this.url, this.view), sampling: state.sampling, ...this.#resolution() };
    const key = JSON.stringify(parameters);
    if (key === this.#asked && this.#data) {
      if (before !== state) this.#redraw();
      return;
    }
    this.#asked = key;
    await this.#load(parameters);
  }

  async #load(parameters) {
    this.element.setAttribute("aria-busy", "true");
    this.loading.show(`Loading ${this.variable.name}`);
    try {
      const answer = await this.#latest.run((signal) => askArrays("field", parameters, signal));
      if (!answer) return;
      this.#data = answer;
      this.problem.replaceChildren();
      this.stage.hidden = false;
      this.#redraw();
      this.sliders.pictureShown();
    } catch (problem) {
      this.#asked = null;
      this.sliders.stop();
      this.stage.hidden = !this.#data;
      this.problem.replaceChildren(errorBox(problem, () => this.update(this.#state)));
    }
    this.loading.hide();
    this.element.setAttribute("aria-busy", "false");
  }

  #resolution() {
    // Steps of 64 pixels, so that a small change of the window asks for nothing new.
    const density = Math.min(2, devicePixelRatio || 1);
    const steps = (pixels) => Math.min(1600, Math.max(64, Math.ceil((pixels * density) / 64) * 64));
    return { rows: steps(this.#height()), columns: steps(this.#width()) };
  }

  #width() {
    return Math.max(200, (this.stage.clientWidth || this.element.clientWidth || innerWidth) - BAR_WIDTH - 8);
  }

  #height() {
    return Math.max(220, Math.min(640, innerHeight * 0.56));
  }

  #resized() {
    if (this.#data && this.stage.clientWidth !== this.drawnWidth) this.#redraw();
  }

  #showControls() {
    const { view } = this;
    const state = this.#state;
    const options = this.variable.dims.map((dim) => [dim, dim]);
    setOptions(this.controls.y, options, view.y);
    setOptions(this.controls.x, options, view.x);
    this.controls.axes.value = state.axes ?? "";
    this.controls.sampling.value = state.sampling ?? "";
    this.controls.reversed.checked = Boolean(state.reversed);
    this.controls.log.checked = Boolean(state.log);
    this.automatic.disabled = state.low === undefined && state.high === undefined;
    this.whole.disabled = view.box.every((at, side) => at === view.whole[side]);
    const rest = view.rest.map((dim) => ({ dim, size: view.size(dim) }));
    this.sliders.show(rest, view.index, view.statistic, view.over, ["number", "bool"].includes(this.variable.kind));
  }

  #redraw() {
    const { header, arrays } = this.#data;
    const state = this.#state;
    const [y0, y1, x0, x1] = header.box;
    const [stepY, stepX] = header.sampling.step ?? [(y1 - y0) / header.shape[0], (x1 - x0) / header.shape[1]];
    this.y = new DimensionScale(header.y, arrays.y, y0, y1, stepY, state.axes === "index");
    this.x = new DimensionScale(header.x, arrays.x, x0, x1, stepX, state.axes === "index");
    this.map = MAPS[state.map] ? state.map : suitableMap(header.range);
    const [low, high] = automaticRange(this.map, header.range);
    this.limits = [state.low ?? low, state.high ?? high];
    if (this.limits[0] > this.limits[1]) this.limits.reverse();
    this.controls.map.value = this.map;
    this.low.value = this.#formatLimit(this.limits[0]);
    this.high.value = this.#formatLimit(this.limits[1]);
    this.values = arrays.values;
    this.drawnWidth = this.stage.clientWidth;
    const { y, x } = this;
    this.picture.draw({
      y,
      x,
      yDown: this.#isYDown(),
      equalAspect: isEqualAspect(y, x),
      width: this.#width(),
      maximumHeight: this.#height(),
      render: (canvas) => paintRaster(canvas, arrays.values, y, x, this.#painter()),
    });
    this.#drawBar(header);
    this.#drawTexts(header);
    this.histogram.draw({
      values: arrays.values,
      range: header.range,
      colourOf: (value) => this.#colourOf(value),
      low: this.limits[0],
      high: this.limits[1],
      units: this.#units(),
      missing: header.missing,
      note: header.sampling.method === "all" ? "" : " shown",
    });
    this.#showPoint();
    this.picture.point(null);
  }

  #painter() {
    const table = lookupTable(this.map, Boolean(this.#state.reversed));
    const scale = this.#colourScale();
    const [low, high] = this.limits;
    if (!this.#isLog()) {
      const factor = high > low ? 255 / (high - low) : 0;
      return (value) => (value === value ? table[Math.max(0, Math.min(255, Math.round((value - low) * factor)))] : 0);
    }
    return (value) => (Number.isNaN(value) ? 0 : table[value > low ? Math.round(scale(value) * 255) : 0]);
  }

  #isLog() {
    return Boolean(this.#state.log) && this.limits[0] > 0;
  }

  #colourScale() {
    return colourScale(this.limits[0], this.limits[1], this.#isLog());
  }

  #colourOf(value) {
    return cssColour(
      this.map,
      Boolean(this.#state.reversed),
      this.#isLog() && value <= 0 ? 0 : this.#colourScale()(value),
    );
  }

  #drawBar(header) {
    this.bar.draw({
      low: this.limits[0],
      high: this.limits[1],
      isLog: this.#isLog(),
      map: this.map,
      reversed: Boolean(this.#state.reversed),
      range: header.range,
      title: [this.variable.name, this.#units() && `(${this.#units()})`].filter(Boolean).join(" "),
      height: this.picture.size.height + 30,
      isTime: this.variable.kind === "time",
    });
  }

  /** Rows run downwards for images without coordinates, and for depths. */
  #isYDown() {
    if (this.#state.flip) return this.#state.flip === "down";
    const path = this.variable.coordinates?.[this.view.y];
    const attributes = this.archive.variable(path)?.attributes ?? [];
    if (!this.y.byIndex)
      return (
        attributes.some(({ name, value }) => name === "positive" && value.trim().toLowerCase() === "down") ||
        /^(depth|pressure|plev|lev_p)$/i.test(this.view.y)
      );
    return /tiff/i.test(this.archive.format ?? "") || (this.y.side.labels !== null && this.y.side.labels !== undefined);
  }

  #units() {
    return this.#data?.header.units ?? this.variable.units ?? "";
  }

  #formatLimit(value) {
    return this.variable.kind === "time" ? formatTime(value) : String(rounded(value));
  }

  #drawTexts(header) {
    const { sampling, missing } = header;
    const [down, across] = sampling.step ?? [1, 1];
    const block = `${formatNumber(down, 3)} × ${formatNumber(across, 3)}`;
    const how =
      {
        all: "Every value is drawn",
        mean: `Each cell is the mean of ${block} values`,
        nearest: `Each cell is one of ${block} values (nearest)`,
        overview: `From an overview of the file: each cell stands for ${block} values`,
      }[sampling.method] ?? sampling.method;
    const share =
      sampling.share !== undefined && sampling.share < 1
        ? `; ${formatNumber(100 * sampling.share, 2)} % of the chunks were looked at`
        : "";
    const total = header.shape[0] * header.shape[1];
    const gaps = missing ? `; ${formatNumber((100 * missing) / total, 3)} % missing` : "";
    this.caption.textContent = `${header.text ? `${shortenText(header.text)}. ` : ""}${how}${share} (${formatCount(header.shape[0])} × ${formatCount(header.shape[1])} cells)${gaps}. Draw a box to zoom in, click for lines through a point.`;
    this.picture.surface.setAttribute(
      "aria-label",
      `Picture of ${this.variable.long_name || this.variable.name}, ${this.view.y} by ${this.view.x}, from ${formatNumber(header.range?.min)} to ${joinUnits(formatNumber(header.range?.max), this.#units())}`,
    );
  }

  #setSide(side, dim) {
    const other = side === "y" ? "x" : "y";
    const changes = { box: null, point: null, [side]: dim };
    if (this.view[other] === dim) changes[other] = this.view[side];
    else changes[other] = this.view[other];
    changes.over = this.view.over.filter((name) => name !== changes.y && name !== changes.x);
    if (!changes.over.length) Object.assign(changes, { over: null, statistic: null });
    changeState(changes);
  }

  #setStatistic(dim, statistic) {
    const others = this.view.over.filter((name) => name !== dim);
    const over = statistic ? [...others, dim] : others;
    changeState({
      over: over.length ? over : null,
      statistic: statistic || (over.length ? this.view.statistic : null),
    });
  }

  #setLimit(key, input) {
    const text = input.value.trim().replace("−", "-");
    const number =
      this.variable.kind === "time" ? Date.parse(`${text.replace(" ", "T")}Z`) || Date.parse(text) : Number(text);
    const isBad = text !== "" && !Number.isFinite(number);
    input.setAttribute("aria-invalid", String(isBad));
    if (!isBad) changeState({ [key]: text === "" ? null : number });
  }

  #zoom({ rows, columns }) {
    changeState({ box: [...this.y.rangeOfCells(...rows), ...this.x.rangeOfCells(...columns)] });
  }

  #pick({ row, column }) {
    changeState({ point: [this.y.indexOfCell(row), this.x.indexOfCell(column)] });
  }

  #hover(cell, spoken = false) {
    clearTimeout(this.timer);
    if (!cell) {
      this.picture.point(null);
      this.#latestPoint.stop();
      this.#showPoint();
      return;
    }
    this.picture.point(cell);
    const value = this.values[cell.row * this.x.count + cell.column];
    const text = this.#formatValue(value);
    const place = `${this.view.y} ${this.y.labelOfCell(cell.row)}, ${this.view.x} ${this.x.labelOfCell(cell.column)}`;
    const sampled = { mean: "mean of the cell", nearest: "nearest", overview: "overview" }[
      this.#data.header.sampling.method
    ];
    this.#showReadout(text, place, sampled, [this.y.indexOfCell(cell.row), this.x.indexOfCell(cell.column)]);
    if (spoken) this.spoken.textContent = `${text} at ${place}`;
    if (this.view.over.length === 0) {
      const point = [this.y.indexOfCell(cell.row), this.x.indexOfCell(cell.column)];
      this.timer = setTimeout(() => this.#askPoint(point), HOVER);
    }
  }

  #formatValue(value) {
    if (Number.isNaN(value)) return "missing";
    if (this.variable.kind === "time") return formatTime(value);
    if (this.variable.kind === "bool") return value === 0 ? "false" : value === 1 ? "true" : formatNumber(value);
    return joinUnits(formatNumber(value, 7), this.#units());
  }

  #showReadout(value, place, note, point) {
    this.readout.replaceChildren(
      element("strong", { class: "value" }, value),
      element("span", {}, place),
      element("span", { class: "muted" }, note ?? ""),
    );
    if (point) Object.assign(this.readout.dataset, { y: point[0], x: point[1] });
  }

  /** Ask for the exact value of an element and show it, with coordinates of two dimensions. */
  async #askPoint(point) {
    const index = { ...this.view.index, [this.view.y]: point[0], [this.view.x]: point[1] };
    try {
      const answer = await this.#latestPoint.run((signal) =>
        askJson("point", { url: this.url, variable: this.variable.path, index }, signal),
      );
      if (!answer) return;
      const labels = { ...answer.labels, ...answer.coordinates };
      const place = Object.entries(labels)
        .map(([name, text]) => `${name} ${shortenText(text)}`)
        .join(", ");
      const value = answer.missing ? "missing" : joinUnits(shortenDigits(answer.value), this.#units());
      this.#showReadout(value, place, "exact", point);
      this.readout.firstChild.title = answer.value;
    } catch {
      // The value of the picture stays; what concerns the whole page was reported by api.js.
    }
  }

  /** Show the chosen point: its mark, its value, the lines through it. */
  #showPoint() {
    const { point } = this.#state;
    const inside =
      point &&
      point[0] < this.view.size(this.view.y) &&
      point[1] < this.view.size(this.view.x) &&
      point[0] >= 0 &&
      point[1] >= 0;
    this.line.element.hidden = !inside || !["number", "bool", "time"].includes(this.variable.kind);
    if (!inside) {
      this.picture.mark(null);
      this.#showReadout("", "Move over the picture to read values.", "");
      return;
    }
    const cell = { row: this.y.cellOfIndex(point[0]), column: this.x.cellOfIndex(point[1]) };
    this.picture.mark(cell);
    if (this.view.over.length === 0) this.#askPoint(point);
    this.#showLine(point);
  }

  async #showLine(point) {
    const all = {
      ...Object.fromEntries(this.view.rest.map((dim) => [dim, this.#state.index?.[dim] ?? 0])),
      [this.view.y]: point[0],
      [this.view.x]: point[1],
    };
    const longest = this.view.rest.find((dim) => this.view.size(dim) > 1) ?? this.view.x;
    const dim = this.variable.dims.includes(this.#state.line) ? this.#state.line : longest;
    const names = this.variable.dims.filter((name) => name !== dim);
    const labels = await Promise.all(
      names.map(async (name) => {
        const coordinate = await coordinateOf(this.url, this.variable, name).catch(() => null);
        return `${name} ${coordinate ? labelAt(coordinate, all[name]) : all[name]}`;
      }),
    );
    this.line.show(dim, all, `At ${labels.join(", ")}`);
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    if (this.#data) this.#redraw();
    this.line.recolour();
  }

  /** Ask again, also if nothing changed: after the server was gone. */
  reload() {
    this.#asked = null;
    return this.update(this.#state);
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
    this.#latestPoint.stop();
    this.sliders.stop();
    this.resize.disconnect();
  }
}

/** Return the text of a number with nine digits at most: what a 32-bit number holds. The title has all of them. */
function shortenDigits(text) {
  const number = Number(text);
  return text.length > 11 && Number.isFinite(number) && !Number.isInteger(number) ? formatNumber(number, 9) : text;
}

/** Return a number with the digits that matter to a colour bar. */
function rounded(value) {
  return Number(Number(value).toPrecision(5));
}
