// The values of a variable of two or more dimensions: picture, colour bar, sliders, read-out, line plot, histogram.

import { askArrays } from "./api.js";
import { changeState } from "./address.js";
import { toGeometry } from "./cell_geometry.js";
import { MAPS } from "./colour.js";
import { Composite, compositeBands, wordsOfBands } from "./composite.js";
import { DimensionScale, isEqualAspect, rowsRunDown } from "./dimension_scale.js";
import { EarthMap } from "./earth_map.js";
import { labelled } from "./element.js";
import { ElementValue } from "./element_value.js";
import { METHODS, wordsOfField } from "./field_caption.js";
import { legendHeight } from "./flag_colours.js";
import { FieldControls, roundLimit } from "./field_controls.js";
import { formatNumber, joinUnits } from "./format.js";
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
import { OWN_RANGE, rangeDimension, SampledRange } from "./sampled_range.js";
import { labelAt, coordinateOf } from "./sliders.js";
import { ValueColours } from "./value_colours.js";

/** @import { Box, Changes, State } from "./address.js" */
/** @import { Archive, EarthPlane, Kind, Variable } from "./archive.js" */
/** @import { BinaryAnswer, Numbers } from "./binary.js" */
/** @import { CellGeometry } from "./cell_geometry.js" */
/** @import { Range } from "./colour.js" */
/** @import { Side } from "./dimension_scale.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Cell, Cells, Point } from "./picture.js" */
/** @import { FieldPlane } from "./plane.js" */

/**
 * Header of the answer of `api/field`.
 *
 * @typedef {object} FieldHeader
 * @property {[number, number]} shape rows and columns
 * @property {Side | null} y null: the cells do not lie in rows
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

/**
 * With where its cells lie on the earth, and with the three bands of a composite, if they were asked for.
 *
 * @typedef {{ header: FieldHeader, arrays: { values: Numbers, y: Numbers, x: Numbers }, geometry?: CellGeometry | null, bands?: FieldAnswer[] }} FieldAnswer
 */

/**
 * What is painted, and the pixel of each of its numbers.
 *
 * @typedef {{ cells: Numbers, painter: (value: number) => number }} Painted
 */

/** @typedef {[number, number]} Pair row and column of an element of the variable, or two coordinates */

/** Side of cells that do not lie in rows. */
const NO_ROWS = new DimensionScale({ dim: "", kind: "index", units: null, name: "", calendar: null, labels: null }, Float64Array.of(0), 0, 1, 1, true);
const HOVER = 180; // ms that the pointer rests before the exact value is asked for
const FRAMES_AHEAD = 8; // pictures that are asked for while an animation plays
const MOST_COLUMNS = 4096; // that the server gives
const MOST_PLACES = 4e6; // cells of a grid whose places are read for a polygon
const HISTOGRAM_PAUSE = 300; // ms after the last picture of an animation
const KEYS =
  "Arrow keys move the cross-hair, Enter draws lines through it, plus zooms in, minus zooms out, Escape shows all and ends a polygon, brackets move the first slider. A map is moved by the keys w, a, s and d.";

/**
 * Values of one variable.
 *
 * @extends {PictureView<FieldAnswer, DimensionScale, FieldPlane>}
 */
export class FieldView extends PictureView {
  #valuesKey = "";
  #mapProblem = "";
  /** @type {EarthPlane["kind"] | null} */
  #mapKind = null;
  /** @type {{ key: string, geometry: CellGeometry }[]} */
  #geometries = [];
  /** @type {((answer: FieldAnswer) => Painted) | null} */
  #paint = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #histogramTimer;
  #keepsCursor = false;

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
      onplay: (dim) => this.#shareRange(dim),
    });
    this.histogram = new Histogram((low, high) => changeState({ low: roundLimit(low), high: roundLimit(high) }));
    this.line = new LinePlot(this.url, variable, (dim) => changeState({ line: dim }));
    this.line.element.hidden = true;
    this.controls = new FieldControls(variable);
    this.regions = new Regions(this.url, variable, () => this.redraw());
    this.sampledRange = new SampledRange(this.url, () => this.#drawAgain());
    this.value = new ElementValue(this.url, variable, this.readout);
    this.flags = this.value.flags;
    /** @type {ValueColours | null} Those that are drawn. */
    this.colours = null;
    this.composite = new Composite(this.url, variable);
    this.overlay = new Overlay(
      archive,
      variable,
      () => this.#drawAgain(),
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
      [labelled("Vertical", y), labelled("Horizontal", x), this.mapControls.chosen, ...this.controls.elements, this.composite.element, ...this.overlay.elements, this.regions.controls],
      [this.regions.element, this.line.element, this.histogram.element],
      this.controls.fold([this.mapControls.lines, this.mapControls.hidden]),
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
    this.controls.showState(state, this.plane);
    this.regions.update(this.plane, state.regions ?? [], state.region_line);
    this.composite.update(state, this.plane);
    this.overlay.update(state, this.plane, { width: this.width, height: this.height });
    this.sliders.showPace(state);
    const whole = { ...this.#parameters(this.plane), bands: compositeBands(state, this.plane) };
    const box = this.#showMap(state, whole);
    const finer = box ? { box, ...this.#finerResolution(box) } : {};
    const parameters = { ...whole, ...finer };
    const ahead = this.sliders.upcoming(FRAMES_AHEAD).flatMap((index) => {
      const plane = { ...this.plane, index: { ...this.plane.index, ...index } };
      const next = { ...this.#parameters(plane), ...finer };
      return [next, ...this.composite.requests(next)];
    });
    const { base } = this.map;
    const isPlaced = !this.map.name || this.answer?.geometry !== undefined; // before, it may have been drawn by axes
    if (this.isRequested(parameters) && isPlaced) this.redraw();
    else if (this.map.name && !box && base?.key === this.#valuesKey) this.showAnswer(base.answer, parameters);
    else {
      const loaded = this.load(parameters);
      this.frames.fetchAhead(ahead);
      // A link, say, that shows a part of what is there: how fine that can be is known now only.
      if ((await loaded) && !box && this.map.name && this.map.finerBox()) await this.update(this.state);
    }
    // After the picture, which it must not keep waiting.
    if (this.state === state) this.sampledRange.update(state, this.plane);
  }

  /** @param {FieldPlane} plane */
  #parameters(plane) {
    return { ...fieldParameters(this.url, plane), sampling: this.state.sampling, ...this.#resolution() };
  }

  /** Done once the lines and arrows over the picture are drawn, too. */
  get drawn() {
    return this.overlay.pending.then(() => {});
  }

  /**
   * Take over what a state says about the map; return the box of finer values that it needs.
   *
   * @param {State} state
   * @param {Parameters} whole
   */
  #showMap(state, whole) {
    const { plane, map } = this;
    this.#mapKind = mapKind(this.variable, plane);
    this.#valuesKey = JSON.stringify(whole);
    map.show(state, JSON.stringify([plane.y, plane.x, plane.box]));
    this.#chooseProjection();
    this.regions.showMap(map.name !== null, plane.y !== null);
    if (state.centre || state.zoom) this.wholeButton.disabled = false;
    return map.name ? map.finerBox() : null;
  }

  /** Take the projection that the state names, else one that suits the field, once it is known where it lies. */
  #chooseProjection() {
    const { map, state } = this;
    const canMap = this.#mapKind !== null && (state.axes !== "index" || this.plane.y === null);
    const isOff = state.projection === "none" && this.plane.y !== null;
    map.name = !canMap || isOff ? null : isProjection(state.projection) ? state.projection : map.suitable;
    this.mapControls.showState(state, map.name, canMap);
  }

  #resolution() {
    // Steps of 64 pixels, so that a small change of the window asks for nothing new.
    const density = Math.min(2, devicePixelRatio || 1);
    /** @param {number} pixels */
    const steps = (pixels) => Math.min(1600, Math.max(64, Math.ceil((pixels * density) / 64) * 64));
    return { rows: steps(this.height), columns: steps(this.width) };
  }

  /**
   * Return the resolution of a part that is in view. On both sides of the seam of a field lie its first and its last
   * column, and with them all others: the fewer rows there are, the more columns are asked for.
   *
   * @param {Box} box
   */
  #finerResolution([top, bottom, left, right]) {
    const { rows, columns } = this.#resolution();
    const [, , x0, x1] = this.plane.box;
    if (left > x0 || right < x1) return {};
    return { columns: Math.min(MOST_COLUMNS, Math.floor((columns * rows) / Math.min(rows, bottom - top))) };
  }

  redraw() {
    if (!this.answer) return;
    const { header, arrays } = this.answer;
    const [y0, y1, x0, x1] = header.box;
    const [stepY, stepX] = header.sampling.step;
    const byIndex = this.state.axes === "index";
    const y = header.y ? new DimensionScale(header.y, arrays.y, y0, y1, stepY, byIndex) : NO_ROWS;
    const x = new DimensionScale(header.x, arrays.x, x0, x1, stepX, byIndex);
    const { geometry } = this.answer;
    if (this.map.name && geometry)
      this.map.take({ answer: this.answer, key: this.#valuesKey, geometry, y, x }, this.plane.box);
    this.#chooseProjection();
    // Colours do not change with what is in view, where the range of all is known.
    const first = this.#mapLayers()[0]?.answer ?? this.answer;
    const range = this.sampledRange.answer ?? first.header.range;
    const colours = (this.colours = new ValueColours(this.state, range, this.variable));
    const flags = this.shownFlags;
    this.controls.showColours(colours, flags !== null);
    const composite = this.composite.painting(this.state, first);
    const painter = (flags ?? colours).painter();
    this.#drawField(y, x, composite?.paint ?? ((answer) => ({ cells: answer.arrays.values, painter })));
    if (composite) this.#drawWords(composite.entries, "Composite");
    else this.#drawBar(this.answer, colours);
    this.#drawTexts(header);
    clearTimeout(this.#histogramTimer);
    // While pictures pass by it would cost as much time as they do.
    if (this.sliders.isPlaying) this.#histogramTimer = setTimeout(() => this.#drawHistogram(), HISTOGRAM_PAUSE);
    else this.#drawHistogram();
    if (this.#keepsCursor) return;
    this.#showPoint();
    this.picture.point(null);
  }

  /** Draw again what is shown, with more or in other colours: the pointer stays where it is, and what was read there. */
  #drawAgain() {
    this.#keepsCursor = true;
    this.redraw();
    this.#keepsCursor = false;
  }

  #drawHistogram() {
    const { answer, colours, shownFlags } = this;
    if (!answer || !colours) return;
    const { header, arrays } = answer;
    this.histogram.draw({
      values: arrays.values,
      range: header.range,
      colourOf: (value) => (shownFlags ? shownFlags.nearestColour(value) : colours.colourOf(value)),
      low: colours.low,
      high: colours.high,
      units: this.#units(),
      missing: header.missing,
      note: header.sampling.method === "all" ? "" : " shown",
    });
  }

  /** Colours and words of the flags; null if the variable has none, or a colour map was chosen for its numbers. */
  get shownFlags() {
    return this.state.map && MAPS[this.state.map] ? null : this.flags;
  }

  /**
   * @param {import("./flag_colours.js").Legend["entries"]} entries
   * @param {string} title
   */
  #drawWords(entries, title) {
    const height = this.isNarrow ? legendHeight(entries.length) : this.barHeight;
    this.bar.drawWords({ entries, title, width: this.barWidth, height });
  }

  get barWidth() {
    if (this.isNarrow || (!this.shownFlags && !compositeBands(this.state, this.plane))) return super.barWidth;
    return Math.round(Math.min(200, 0.34 * this.stageWidth));
  }

  /**
   * @param {FieldAnswer} answer
   * @param {ValueColours} colours
   */
  #drawBar({ header, arrays }, colours) {
    const title = [shortName(this.variable), this.#units() && `(${this.#units()})`].filter(Boolean).join(" ");
    if (this.shownFlags) {
      this.#drawWords(this.shownFlags.entries(arrays.values), title);
      return;
    }
    this.bar.draw({
      low: colours.low,
      high: colours.high,
      isLog: colours.isLog,
      colourAt: (share) => colours.colourAt(share),
      below: colours.below,
      above: colours.above,
      borders: colours.borders,
      range: header.range,
      missing: header.missing ? colours.missing : undefined,
      title,
      height: this.barHeight,
      width: this.isNarrow ? this.barWidth : undefined,
    });
  }

  /** Return what is drawn on a map; nothing where the picture is none. */
  #mapLayers() {
    return this.map.name ? this.map.layersOf(this.#valuesKey) : [];
  }

  /**
   * Ask for values, for the bands of a composite, and for a map, where they lie.
   *
   * @param {Parameters} parameters
   * @param {AbortSignal} signal
   */
  async ask({ bands: _, ...parameters }, signal) {
    this.#mapProblem = "";
    const places = this.map.name ? this.#askGeometry(parameters, signal) : undefined;
    // Values that have no place are still shown by axes.
    const placed = places?.catch((problem) => {
      this.#mapProblem = `There is no map: ${problem instanceof Error ? problem.message : problem}`;
      return null;
    });
    const wanted = [parameters, ...this.composite.requests(parameters)];
    const asked = Promise.all(wanted.map((request) => super.ask(request, signal)));
    const [answers, geometry] = await Promise.all([asked, placed]);
    const [answer, ...bands] = /** @type {BinaryAnswer[]} */ (answers);
    return { ...answer, geometry, ...(bands.length ? { bands } : {}) };
  }

  /**
   * Return where cells lie; what was asked for last is known.
   *
   * @param {Parameters} parameters
   * @param {AbortSignal} signal
   */
  async #askGeometry({ variable, y, x, box, rows, columns, sampling }, signal) {
    const wanted = { url: this.url, variable, y, x, box, rows, columns, sampling };
    const key = JSON.stringify(wanted);
    const known = this.#geometries.find((one) => one.key === key);
    if (known) return known.geometry;
    const geometry = toGeometry(await askArrays("geometry", wanted, signal));
    // That of all, and those of what was in view last.
    this.#geometries = [{ key, geometry }, ...this.#geometries].slice(0, 3);
    return geometry;
  }

  /**
   * Draw the picture with what lies over it.
   *
   * @param {DimensionScale} y
   * @param {DimensionScale} x
   * @param {(answer: FieldAnswer) => Painted} paint
   */
  #drawField(y, x, paint) {
    if (!this.answer) return;
    const isMap = this.#mapLayers().length > 0;
    this.#paint = paint;
    if (isMap) {
      this.scales = { y, x };
      this.drawFrame(this.map, (canvas) => this.map.paint(canvas, this.#valuesKey, paint));
    } else {
      const { cells, painter } = paint(this.answer);
      this.drawPicture(y, x, {
        yDown: this.#isYDown(y),
        equalAspect: isEqualAspect(y, x),
        render: (canvas) => paintRaster(canvas, cells, y, x, painter),
      });
    }
    const places = isMap ? this.places : new AxesPlaces(y, x);
    this.overlay.draw({ svg: this.picture.overlay, places, size: this.picture.size });
    this.regions.draw(this.picture.overlay, places, this.#drawsPlaces ? "map" : !isMap && y.byIndex && x.byIndex ? "index" : undefined);
  }

  /** Draw a map that was moved: all but the picture is as before. */
  #drawMoved() {
    if (!this.scales || !this.#paint || !this.#mapLayers().length) return;
    this.#drawField(this.scales.y, this.scales.x, this.#paint);
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
    const coordinate = this.archive.variable(this.variable.coordinates[this.plane.y ?? ""]);
    return rowsRunDown(y, /tiff/i.test(this.archive.format ?? ""), coordinate?.attributes ?? []);
  }

  #units() {
    return this.answer?.header.units ?? this.variable.units ?? "";
  }

  /** @param {FieldHeader} header */
  #drawTexts(header) {
    const gestures = this.#mapLayers().length ? "Drag to move, turn the wheel to zoom" : "Draw a box to zoom in";
    const more = [this.sampledRange.text, this.overlay.text, this.#mapProblem];
    this.caption.textContent = [wordsOfField(header), ...more, `${gestures}, click for lines through a point.`].filter(Boolean).join(". ");
    const { variable, plane } = this;
    const { min, max } = header.range;
    const limits = `from ${formatNumber(min)} to ${joinUnits(formatNumber(max), this.#units())}`;
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
   * Let the pictures along a dimension that is played have one range, unless each shall have its own.
   *
   * @param {string} dim
   */
  #shareRange(dim) {
    if (this.state.range !== OWN_RANGE && rangeDimension(this.state, this.plane) !== dim) changeState({ range: dim });
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

  /**
   * Choose an element, or draw a part of a region.
   *
   * @param {Cell | null} cell
   * @param {Point} pixel
   */
  pick(cell, pixel) {
    if (!this.scales) return;
    const { y, x } = this.scales;
    /** @type {(scale: DimensionScale, cell: number) => number} */
    const place = (scale, cell) => (scale.byIndex ? scale.indexOfCell(cell) : scale.positions[cell]);
    /** @type {Pair | null} */
    const point = cell && [y.indexOfCell(cell.row), x.indexOfCell(cell.column)];
    const ofAxes = /** @type {Pair | null} */ (cell && [place(x, cell.column), place(y, cell.row)]);
    const vertex = this.#drawsPlaces ? this.map.placeAt(pixel) : ofAxes;
    if (!this.regions.takePoint(point, vertex) && point) changeState({ point });
  }

  /**
   * Whether polygons have longitudes and latitudes as vertices: not those of huge grids, whose cells would all have to be
   * looked at.
   */
  get #drawsPlaces() {
    const isMap = this.#mapLayers().length > 0;
    const [, rows, , columns] = this.plane.whole;
    return isMap && (this.#mapKind !== "grid" || rows * columns <= MOST_PLACES);
  }

  /**
   * Zoom, or draw a region.
   *
   * @param {Cells | null} cells
   * @param {Point} from
   * @param {Point} to
   */
  drag(cells, from, to) {
    if (!this.scales) return;
    const { y, x } = this.scales;
    const isBox = cells && this.plane.y !== null && !cells.isCut;
    if (isBox) {
      /** @type {Box} */
      const box = [...y.rangeOfCells(...cells.rows), ...x.rangeOfCells(...cells.columns)];
      if (!this.regions.takeBox(box)) changeState({ box, ...this.wholeChanges() });
    } else if (this.regions.mode === "box") this.regions.takePolygon(this.map.placesAround(from, to));
    else this.map.zoomTo(from, to);
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
    this.value.stop(); // the exact value of where the pointer was would replace that of where it is
    this.picture.point(cell);
    if (!cell) {
      this.#showPoint();
      return;
    }
    if (!this.answer || !this.scales) return;
    const { header, arrays } = this.answer;
    const { y, x } = this.scales;
    const at = cell.row * x.count + cell.column;
    const bands = wordsOfBands(this.answer, at);
    const text = bands ?? this.value.format(arrays.values[at], this.#units());
    const place = [this.map.name ? this.map.labelOfCell(cell) : "", this.#labelOfCell(y, x, cell)].filter(Boolean).join(", ");
    /** @type {Pair} */
    const point = [y.indexOfCell(cell.row), x.indexOfCell(cell.column)];
    this.value.show(text, place, METHODS[header.sampling.method], point);
    if (isSpoken) this.spoken.textContent = `${text} at ${place}`;
    if (this.plane.over.length === 0 && !bands) this.#showExactValue(point, HOVER);
  }

  /**
   * @param {DimensionScale} y
   * @param {DimensionScale} x
   * @param {Cell} cell
   */
  #labelOfCell(y, x, { row, column }) {
    const along = `${this.plane.x} ${x.labelOfCell(column)}`;
    return this.plane.y === null ? along : `${this.plane.y} ${y.labelOfCell(row)}, ${along}`;
  }

  /**
   * Return the positions of an element along the sides.
   *
   * @param {Pair} point
   * @returns {Record<string, number>}
   */
  #indexOf([row, column]) {
    const { y, x } = this.plane;
    return y === null ? { [x]: column } : { [y]: row, [x]: column };
  }

  /**
   * @param {Pair} point
   * @param {number} [pause]
   */
  #showExactValue(point, pause) {
    this.value.askExact(point, { ...this.plane.index, ...this.#indexOf(point) }, this.#units(), pause);
  }

  /** Show the chosen point: its mark, its value, the lines through it. */
  #showPoint() {
    const { point } = this.state;
    const { variable, plane, scales } = this;
    const isInside =
      point &&
      point[0] >= 0 &&
      point[1] >= 0 &&
      point[0] < plane.whole[1] &&
      point[1] < plane.whole[3];
    this.line.element.hidden = !isInside || !["number", "bool", "time"].includes(variable.kind);
    if (!isInside || !scales) {
      this.picture.mark(null);
      this.value.show("", "Move over the picture to read values.", "");
      return;
    }
    this.#markPoint();
    if (plane.over.length === 0 && !this.sliders.isPlaying) this.#showExactValue(point);
    this.#showLine(point);
  }

  #markPoint() {
    const { point } = this.state;
    const { y, x } = this.scales ?? {};
    this.picture.mark(point && y && x ? { row: y.cellOfIndex(point[0]), column: x.cellOfIndex(point[1]) } : null);
  }

  /** @param {Pair} point */
  async #showLine(point) {
    const { variable, plane, state } = this;
    /** @type {Record<string, number>} */
    const index = {
      ...Object.fromEntries(plane.rest.map((dim) => [dim, state.index?.[dim] ?? 0])),
      ...this.#indexOf(point),
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
    clearTimeout(this.#histogramTimer);
    this.map.close();
    this.overlay.close();
    this.sampledRange.close();
    this.regions.close();
    this.value.stop();
  }
}

/**
 * Return how the cells of a plane lie on the earth; null if they do not.
 *
 * @param {Variable} variable
 * @param {FieldPlane} plane
 */
function mapKind({ map }, { y, x }) {
  return map && map.y === y && map.x === x ? map.kind : null;
}

/**
 * Return what a colour bar has room for: a formula, unless it is a long one, or the name.
 *
 * @param {Variable} variable
 */
function shortName({ name, path }) {
  const text = path.replace(/^=/, "").trim();
  return path.startsWith("=") && text.length <= 40 ? text : name;
}
