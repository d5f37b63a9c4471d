// The values of a variable of two or more dimensions: picture, colour bar, sliders, read-out, line plot, histogram.

import { askJson, Latest } from "./api.js";
import { changeState } from "./address.js";
import { DimensionScale, isEqualAspect } from "./dimension_scale.js";
import { EarthMap } from "./earth_map.js";
import { element, labelled } from "./element.js";
import { FieldControls, roundLimit } from "./field_controls.js";
import { formatCount, formatNumber, formatTime, joinUnits, shortenText } from "./format.js";
import { Histogram } from "./histogram.js";
import { LinePlot } from "./line_plot.js";
import { errorBox } from "./messages.js";
import { MapControls } from "./map_controls.js";
import { MapPlaces } from "./map_places.js";
import { Overlay } from "./overlay.js";
import { AxesPlaces } from "./picture_places.js";
import { PictureView } from "./picture_view.js";
import { fieldParameters, planeOf, sizeOf } from "./plane.js";
import { isProjection } from "./projections.js";
import { Regions } from "./regions.js";
import { paintRaster } from "./raster.js";
import { labelAt, coordinateOf } from "./sliders.js";
import { ValueColours } from "./value_colours.js";

/** @import { Box, Changes, State } from "./address.js" */
/** @import { Archive, Kind, Variable } from "./archive.js" */
/** @import { Numbers } from "./binary.js" */
/** @import { Range } from "./colour.js" */
/** @import { Side } from "./dimension_scale.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Cell } from "./picture.js" */
/** @import { FieldPlane } from "./plane.js" */

/**
 * Header of the answer of `api/field`.
 *
 * @typedef {object} FieldHeader
 * @property {[number, number]} shape rows and columns
 * @property {Side} y
 * @property {Side} x
 * @property {Box} box
 * @property {{ method: "all" | "mean" | "nearest" | "overview", step: [number, number], share: number }} sampling
 * @property {Range} range
 * @property {number} missing
 * @property {Kind} kind
 * @property {string | null} units
 * @property {string} long_name
 * @property {string} text what is selected and reduced
 * @property {{ chunks: number, cells: number, here: number, first: Record<string, number> } | null} written how many chunks
 *   of a sparse array there are, in all and in the picture, and where the first begins
 */

/** @typedef {{ header: FieldHeader, arrays: { values: Numbers, y: Numbers, x: Numbers } }} FieldAnswer */

/** @typedef {[number, number]} Point row and column of an element of the variable */

const HOVER = 180; // ms that the pointer rests before the exact value is asked for
const KEYS =
  "Arrow keys move the cross-hair, Enter draws lines through it, plus zooms in, minus zooms out, Escape shows all and ends a polygon, brackets move the first slider. A map is moved by the keys w, a, s and d.";

/**
 * Values of one variable.
 *
 * @extends {PictureView<FieldAnswer, DimensionScale, FieldPlane>}
 */
export class FieldView extends PictureView {
  #latestPoint = new Latest();
  #valuesKey = "";
  /** @type {ValueColours | null} */
  #colours = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {Archive} archive
   * @param {Variable} variable
   */
  constructor(archive, variable) {
    super(archive, variable, planeOf(variable, {}), {
      route: "field",
      boxKey: "box",
      className: "field-view",
      label: `Picture of ${variable.name}`,
      loadingText: `Loading ${variable.name}`,
      keysText: KEYS,
      onstatistic: (dim, statistic) => this.#setStatistic(dim, statistic),
    });
    this.histogram = new Histogram((low, high) => changeState({ low: roundLimit(low), high: roundLimit(high) }));
    this.line = new LinePlot(this.url, variable, (dim) => changeState({ line: dim }));
    this.line.element.hidden = true;
    this.controls = new FieldControls(variable);
    this.regions = new Regions(this.url, variable, () => this.redraw());
    this.overlay = new Overlay(
      archive,
      variable,
      () => this.redraw(),
      (problem) => this.problem.replaceChildren(errorBox(problem)),
    );
    this.map = new EarthMap({
      redraw: () => this.#drawMoved(),
      rest: (view) => changeState(view, { replace: true }),
      isHandOn: () => this.regions.mode === "move",
    });
    this.places = new MapPlaces(this.map);
    this.mapControls = new MapControls();
    const { y, x } = this.sideChoices;
    this.assemble(
      [labelled("Vertical", y), labelled("Horizontal", x), ...this.mapControls.elements, ...this.controls.elements, ...this.overlay.elements, this.regions.controls],
      [this.regions.element, this.line.element, this.histogram.element],
    );
  }

  /**
   * Show a state.
   *
   * @param {State} state
   */
  async update(state) {
    this.state = state;
    this.showPlane(planeOf(this.variable, state), ["number", "bool"].includes(this.variable.kind));
    this.controls.showState(state);
    this.regions.update(this.plane, state.regions ?? [], state.region_line);
    this.overlay.update(state, this.plane, { width: this.width, height: this.height });
    const whole = { ...fieldParameters(this.url, this.plane), sampling: state.sampling, ...this.#resolution() };
    const box = this.#showMap(state, whole);
    const parameters = box ? { ...whole, box } : whole;
    const { base } = this.map;
    if (this.isRequested(parameters)) this.redraw();
    else if (this.map.name && !box && base?.key === this.#valuesKey) this.showAnswer(base.answer, parameters);
    else await this.load(parameters);
  }

  /**
   * Take over what a state says about the map; return the box of finer values that it needs.
   *
   * @param {State} state
   * @param {Parameters} whole
   */
  #showMap(state, whole) {
    const { plane, map } = this;
    const canMap = liesOnEarth(this.archive, this.variable, plane) && state.axes !== "index";
    const name = !canMap || state.projection === "none" ? null : isProjection(state.projection) ? state.projection : "plate";
    this.#valuesKey = JSON.stringify(whole);
    map.show(name, state, JSON.stringify([plane.y, plane.x, plane.box]));
    this.mapControls.showState(state, name, canMap);
    this.regions.showMap(name !== null);
    if (state.centre || state.zoom) this.wholeButton.disabled = false;
    return name ? map.finerBox() : null;
  }

  #resolution() {
    // Steps of 64 pixels, so that a small change of the window asks for nothing new.
    const density = Math.min(2, devicePixelRatio || 1);
    /** @param {number} pixels */
    const steps = (pixels) => Math.min(1600, Math.max(64, Math.ceil((pixels * density) / 64) * 64));
    return { rows: steps(this.height), columns: steps(this.width) };
  }

  redraw() {
    if (!this.answer) return;
    const { header, arrays } = this.answer;
    const [y0, y1, x0, x1] = header.box;
    const [stepY, stepX] = header.sampling.step;
    const byIndex = this.state.axes === "index";
    const y = new DimensionScale(header.y, arrays.y, y0, y1, stepY, byIndex);
    const x = new DimensionScale(header.x, arrays.x, x0, x1, stepX, byIndex);
    if (this.map.name) this.map.take(this.answer, this.#valuesKey, y, x, this.plane.box);
    // Colours do not change with what is in view, where the range of all is known.
    const range = this.#mapLayers(y, x)[0]?.answer.header.range ?? header.range;
    const colours = new ValueColours(this.state, range);
    this.controls.showColours(colours);
    this.#drawField(y, x, colours);
    this.bar.draw({
      low: colours.low,
      high: colours.high,
      isLog: colours.isLog,
      map: colours.map,
      reversed: colours.reversed,
      range,
      title: [this.variable.name, this.#units() && `(${this.#units()})`].filter(Boolean).join(" "),
      height: this.barHeight,
    });
    this.#drawTexts(header);
    this.histogram.draw({
      values: arrays.values,
      range: header.range,
      colourOf: (value) => colours.colourOf(value),
      low: colours.low,
      high: colours.high,
      units: this.#units(),
      missing: header.missing,
      note: header.sampling.method === "all" ? "" : " shown",
    });
    this.#showPoint();
    this.picture.point(null);
  }

  /**
   * Return what is drawn on a map; nothing where the picture is none, or labels turn back.
   *
   * @param {DimensionScale} y
   * @param {DimensionScale} x
   */
  #mapLayers(y, x) {
    return this.map.name && !y.byIndex && !x.byIndex ? this.map.layersOf(this.#valuesKey) : [];
  }

  /**
   * Draw the picture with what lies over it.
   *
   * @param {DimensionScale} y
   * @param {DimensionScale} x
   * @param {ValueColours} colours
   */
  #drawField(y, x, colours) {
    if (!this.answer) return;
    const { values } = this.answer.arrays;
    const isMap = this.#mapLayers(y, x).length > 0;
    this.#colours = colours;
    if (isMap) {
      this.scales = { y, x };
      this.drawFrame(this.map, (canvas) => this.map.paint(canvas, this.#valuesKey, colours.painter()));
    } else {
      this.drawPicture(y, x, {
        yDown: this.#isYDown(y),
        equalAspect: isEqualAspect(y, x),
        render: (canvas) => paintRaster(canvas, values, y, x, colours.painter()),
      });
    }
    const places = isMap ? this.places : new AxesPlaces(y, x);
    this.overlay.draw({ svg: this.picture.overlay, places, size: this.picture.size });
    this.regions.draw(this.picture.overlay, places, !isMap && y.byIndex && x.byIndex);
  }

  /** Draw a map that was moved: all but the picture is as before. */
  #drawMoved() {
    if (!this.scales || !this.#colours || !this.map.name) return;
    this.#drawField(this.scales.y, this.scales.x, this.#colours);
    this.picture.pointAgain();
    this.#markPoint();
  }

  /**
   * Return whether rows run downwards: for images without coordinates, and for depths.
   *
   * @param {DimensionScale} y
   */
  #isYDown(y) {
    if (this.state.flip) return this.state.flip === "down";
    if (y.byIndex) return /tiff/i.test(this.archive.format ?? "") || Boolean(y.side.labels);
    const attributes = this.archive.variable(this.variable.coordinates[this.plane.y])?.attributes ?? [];
    return (
      attributes.some(({ name, value }) => name === "positive" && value.trim().toLowerCase() === "down") ||
      /^(depth|pressure|plev|lev_p)$/i.test(this.plane.y)
    );
  }

  #units() {
    return this.answer?.header.units ?? this.variable.units ?? "";
  }

  /** @param {FieldHeader} header */
  #drawTexts(header) {
    const { sampling, missing, shape, range } = header;
    const block = sampling.step.map((step) => formatNumber(step, 3)).join(" × ");
    const how = {
      all: "Every value is drawn",
      mean: `Each cell is the mean of ${block} values`,
      nearest: `Each cell is one of ${block} values (nearest)`,
      overview: `From an overview of the file: each cell stands for ${block} values`,
    }[sampling.method];
    const share = sampling.share < 1 ? `; ${formatNumber(100 * sampling.share, 2)} % of the chunks were looked at` : "";
    const gaps = missing ? `; ${formatNumber((100 * missing) / (shape[0] * shape[1]), 3)} % missing` : "";
    const { written } = header;
    const sparse = written
      ? `. ${formatCount(written.chunks)} of ${formatCount(written.cells)} chunks were ever written, ${formatCount(written.here)} of them lie here: the rest is the fill value`
      : "";
    const first = written && !written.here ? Object.entries(written.first).map(([dim, at]) => `${dim} ${at}`) : [];
    const elsewhere = first.length ? ` (the first begins at index ${first.join(", ")})` : "";
    const selected = header.text ? `${shortenText(header.text)}. ` : "";
    const cells = `${formatCount(shape[0])} × ${formatCount(shape[1])} cells`;
    this.caption.textContent = `${selected}${how}${share} (${cells})${gaps}${sparse}${elsewhere}${this.overlay.text ? `. ${this.overlay.text}` : ""}. ${this.map.name ? "Drag to move, turn the wheel to zoom" : "Draw a box to zoom in"}, click for lines through a point.`;
    const { variable, plane } = this;
    const limits = `from ${formatNumber(range.min)} to ${joinUnits(formatNumber(range.max), this.#units())}`;
    this.picture.surface.setAttribute(
      "aria-label",
      `Picture of ${variable.long_name || variable.name}, ${plane.y} by ${plane.x}, ${limits}`,
    );
  }

  /**
   * @param {string} y
   * @param {string} x
   */
  setSides(y, x) {
    const over = this.plane.over.filter((name) => name !== y && name !== x);
    /** @type {Changes} */
    const changes = { box: null, point: null, y, x, over };
    changeState(over.length ? changes : { ...changes, over: null, statistic: null });
  }

  /**
   * @param {string} dim
   * @param {string} statistic empty: one position of the dimension
   */
  #setStatistic(dim, statistic) {
    const others = this.plane.over.filter((name) => name !== dim);
    const over = statistic ? [...others, dim] : others;
    changeState({
      over: over.length ? over : null,
      statistic: statistic || (over.length ? this.plane.statistic : null),
    });
  }

  /** @param {Cell} cell */
  pick({ row, column }) {
    if (this.scales) {
      const { y, x } = this.scales;
      /** @type {(scale: DimensionScale, cell: number) => number} */
      const place = (scale, cell) => (scale.byIndex ? scale.indexOfCell(cell) : scale.positions[cell]);
      if (this.regions.takePoint([y.indexOfCell(row), x.indexOfCell(column)], [place(x, column), place(y, row)])) return;
    }
    if (this.scales) changeState({ point: [this.scales.y.indexOfCell(row), this.scales.x.indexOfCell(column)] });
  }

  /**
   * Zoom, or draw a region.
   *
   * @param {[number, number]} rows
   * @param {[number, number]} columns
   */
  drag(rows, columns) {
    if (!this.scales) return;
    const { y, x } = this.scales;
    /** @type {Box} */
    const box = [...y.rangeOfCells(...rows), ...x.rangeOfCells(...columns)];
    if (!this.regions.takeBox(box)) changeState({ box, ...this.wholeChanges() });
  }

  /** @returns {Changes} */
  wholeChanges() {
    this.map.showAll();
    return { centre: null, zoom: null };
  }

  /** Close a polygon that is being drawn; else show all. */
  reset() {
    if (!this.regions.finish()) super.reset();
  }

  /**
   * Show the value of a cell at once, and soon after that the exact one, which the picture may not have.
   *
   * @param {Cell | null} cell
   * @param {boolean} isSpoken
   */
  hover(cell, isSpoken) {
    clearTimeout(this.#timer);
    this.picture.point(cell);
    if (!cell) {
      this.#latestPoint.stop();
      this.#showPoint();
      return;
    }
    if (!this.answer || !this.scales) return;
    const { header, arrays } = this.answer;
    const { y, x } = this.scales;
    const text = this.#formatValue(arrays.values[cell.row * x.count + cell.column]);
    const place = `${this.plane.y} ${y.labelOfCell(cell.row)}, ${this.plane.x} ${x.labelOfCell(cell.column)}`;
    const note = { all: "", mean: "mean of the cell", nearest: "nearest", overview: "overview" }[
      header.sampling.method
    ];
    /** @type {Point} */
    const point = [y.indexOfCell(cell.row), x.indexOfCell(cell.column)];
    this.#showReadout(text, place, note, point);
    if (isSpoken) this.spoken.textContent = `${text} at ${place}`;
    if (this.plane.over.length === 0) this.#timer = setTimeout(() => this.#showExactValue(point), HOVER);
  }

  /** @param {number} value */
  #formatValue(value) {
    if (Number.isNaN(value)) return "missing";
    if (this.variable.kind === "time") return formatTime(value);
    if (this.variable.kind === "bool") return value === 0 ? "false" : value === 1 ? "true" : formatNumber(value);
    return joinUnits(formatNumber(value, 7), this.#units());
  }

  /**
   * @param {string} value
   * @param {string} place
   * @param {string} note
   * @param {Point} [point]
   * @param {string} [title] the value with all its digits
   */
  #showReadout(value, place, note, point, title) {
    this.readout.replaceChildren(
      element("strong", { class: "value", title }, value),
      element("span", {}, place),
      element("span", { class: "muted" }, note),
    );
    if (point) Object.assign(this.readout.dataset, { y: point[0], x: point[1] });
  }

  /**
   * Ask for the exact value of an element and show it, with coordinates of two dimensions.
   *
   * @param {Point} point
   */
  async #showExactValue(point) {
    const index = { ...this.plane.index, [this.plane.y]: point[0], [this.plane.x]: point[1] };
    try {
      const answer = await this.#latestPoint.run((signal) =>
        askJson("point", { url: this.url, variable: this.variable.path, index }, signal),
      );
      if (!answer) return;
      /** @type {Record<string, string>} */
      const labels = { ...answer.labels, ...answer.coordinates };
      const place = Object.entries(labels)
        .map(([name, text]) => `${name} ${shortenText(text)}`)
        .join(", ");
      const value = answer.missing ? "missing" : joinUnits(shortenDigits(answer.value), this.#units());
      this.#showReadout(value, place, "exact", point, answer.value);
    } catch {
      // The value of the picture stays; what concerns the whole page was reported by api.js.
    }
  }

  /** Show the chosen point: its mark, its value, the lines through it. */
  #showPoint() {
    const { point } = this.state;
    const { variable, plane, scales } = this;
    const isInside =
      point &&
      point[0] >= 0 &&
      point[1] >= 0 &&
      point[0] < sizeOf(variable, plane.y) &&
      point[1] < sizeOf(variable, plane.x);
    this.line.element.hidden = !isInside || !["number", "bool", "time"].includes(variable.kind);
    if (!isInside || !scales) {
      this.picture.mark(null);
      this.#showReadout("", "Move over the picture to read values.", "");
      return;
    }
    this.#markPoint();
    if (plane.over.length === 0) this.#showExactValue(point);
    this.#showLine(point);
  }

  #markPoint() {
    const { point } = this.state;
    const { y, x } = this.scales ?? {};
    this.picture.mark(point && y && x ? { row: y.cellOfIndex(point[0]), column: x.cellOfIndex(point[1]) } : null);
  }

  /** @param {Point} point */
  async #showLine(point) {
    const { variable, plane, state } = this;
    /** @type {Record<string, number>} */
    const index = {
      ...Object.fromEntries(plane.rest.map((dim) => [dim, state.index?.[dim] ?? 0])),
      [plane.y]: point[0],
      [plane.x]: point[1],
    };
    const usual = plane.rest.find((dim) => sizeOf(variable, dim) > 1) ?? plane.x;
    const dim = state.line && variable.dims.includes(state.line) ? state.line : usual;
    const names = variable.dims.filter((name) => name !== dim);
    const labels = await Promise.all(
      names.map(async (name) => {
        const coordinate = await coordinateOf(this.url, variable, name).catch(() => null);
        return `${name} ${coordinate ? labelAt(coordinate, index[name]) : index[name]}`;
      }),
    );
    this.line.show(dim, index, `At ${labels.join(", ")}`);
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    super.recolour();
    this.regions.recolour();
    this.line.recolour();
  }

  /** Stop what is under way. */
  close() {
    super.close();
    this.map.close();
    this.overlay.close();
    this.regions.close();
    this.#latestPoint.stop();
  }
}

/**
 * Return whether both sides of a plane are labelled by longitudes and latitudes.
 *
 * @param {Archive} archive
 * @param {Variable} variable
 * @param {FieldPlane} plane
 */
function liesOnEarth(archive, variable, { y, x }) {
  /** @type {(dim: string, pattern: RegExp) => boolean} */
  const isLabelled = (dim, pattern) =>
    (archive.variable(variable.coordinates?.[dim])?.attributes ?? []).some(
      ({ name, value }) => ["units", "standard_name"].includes(name) && pattern.test(value),
    );
  return isLabelled(y, /^(degrees?_?(north|n)|latitude)$/i) && isLabelled(x, /^(degrees?_?(east|e)|longitude)$/i);
}

/**
 * Return the text of a number with nine digits at most: what a 32-bit number holds. The title has all of them.
 *
 * @param {string} text
 */
function shortenDigits(text) {
  const number = Number(text);
  return text.length > 11 && Number.isFinite(number) && !Number.isInteger(number) ? formatNumber(number, 9) : text;
}
