// A field on a map: projection, what is in view, the cells of its pixels, coastlines; moved and zoomed without a request.

import { select } from "./vendor/plotting.js";
import { findAtlas, graticuleLines, graticuleStep, pathOf } from "./coastlines.js";
import { AxesGeometry } from "./cell_geometry.js";
import { FIRST, paintTables } from "./cell_table.js";
import { parseColour } from "./colour.js";
import { formatDegrees, formatNumber } from "./format.js";
import { canvasDensity, MARGIN } from "./picture.js";
import { fitBounds, MapProjection, worldExtent, wrapLongitude } from "./projections.js";
import { contextOf } from "./raster.js";
import { themeColour } from "./theme.js";

/** @import { Box, State } from "./address.js" */
/** @import { CellGeometry } from "./cell_geometry.js" */
/** @import { CellTable } from "./cell_table.js" */
/** @import { DimensionScale } from "./dimension_scale.js" */
/** @import { FieldAnswer, Painted } from "./field_view.js" */
/** @import { Cell, Cells, Frame } from "./picture.js" */
/** @import { Place, Point, ProjectionName } from "./projections.js" */

/** @typedef {"coasts" | "borders" | "graticule"} LineName */

/**
 * Values that are drawn, with where they lie.
 *
 * @typedef {object} Layer
 * @property {FieldAnswer} answer
 * @property {string} key what the values are: those of two layers are drawn over each other only if it is the same
 * @property {CellGeometry} geometry
 * @property {DimensionScale} y
 * @property {DimensionScale} x
 */

const LEFT = 52; // pixels for the labels of parallels
const LETTER = 4; // half the width of a letter of a label, in pixels
const WIDEST_LABEL = 57; // pixels, with the room to the next one
const MOST = 4000; // pixels for each degree, at most
const POLAR = 20; // degrees: fields that lie beyond this latitude, all around, are drawn around the pole
const BOX_STEPS = 12; // places along each side of a box, which need not be straight in longitude and latitude
const SLOW = 60; // ms for a frame of a map that moves
const REST = 250; // ms that a map rests before finer values are asked for
/** @type {LineName[]} */
export const USUAL_LINES = ["coasts", "graticule"];

/**
 * Map of one variable. It is the frame of the picture while a projection is chosen.
 *
 * @implements {Frame}
 */
export class EarthMap {
  /** @type {ProjectionName | null} */
  name = null;
  /** @type {Layer | null} All that the plane shows, coarser than the file where that is large. */
  base = null;
  /** @type {Layer | null} What was in view, finer. */
  detail = null;
  /** @type {MapProjection | null} */
  projection = null;
  width = 0;
  height = 0;
  /** @type {LineName[]} */
  lines = USUAL_LINES;
  /** @type {string | undefined} */
  mask = undefined;
  #geometryKey = "";
  #viewKey = "";
  #shownKey = "";
  /** @type {string | undefined} */
  #shownProjection = undefined;
  /** @type {{ centre: Place, zoom: number } | null} Null: all of the field. */
  #view = null;
  /** @type {{ centre: Place, width: number, height: number }} */
  #fit = { centre: [0, 0], width: 1, height: 1 };
  /** @type {Place | null} The place that the pointer holds. */
  #grasped = null;
  #isMoving = false;
  #movingDensity = 1;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {{ key: string, paths: Record<string, Path2D> }} */
  #paths = { key: "", paths: {} };

  /**
   * @param {object} actions
   * @param {() => void} actions.redraw called when the view moved, or lines came
   * @param {(view: { centre: Place, zoom: number }) => void} actions.rest called when the map rests
   * @param {() => boolean} actions.isHandOn whether dragging moves the map
   */
  constructor(actions) {
    this.actions = actions;
    this.handle = {
      isOn: actions.isHandOn,
      grasp: (/** @type {Point} */ point) => this.#grasp(point),
      drag: (/** @type {Point} */ point) => this.#drag(point),
      zoom: (/** @type {Point} */ point, /** @type {number} */ factor) => this.#zoom(point, factor),
      release: () => this.#startRest(),
    };
  }

  /**
   * Take over what a state chooses.
   *
   * @param {State} state
   * @param {string} geometryKey what the cells are: of others all is forgotten
   */
  show(state, geometryKey) {
    if (geometryKey !== this.#geometryKey) {
      this.#geometryKey = geometryKey;
      this.base = this.detail = null;
    }
    this.lines = state.lines ? /** @type {LineName[]} */ (state.lines.split(",")) : USUAL_LINES;
    this.mask = state.mask;
    this.#shownProjection = state.projection;
    const key = JSON.stringify([state.projection, state.centre, state.zoom]);
    if (key === this.#viewKey) return; // the pointer may have moved the map since
    this.#viewKey = key;
    clearTimeout(this.#timer);
    this.#isMoving = false;
    this.#view = state.centre || state.zoom ? { centre: state.centre ?? [NaN, NaN], zoom: state.zoom ?? 1 } : null;
  }

  /**
   * Take values to draw.
   *
   * @param {Layer} layer
   * @param {Box} whole box of all that the plane shows
   */
  take(layer, whole) {
    if (layer.answer.header.box.every((at, side) => at === whole[side])) this.base = layer;
    else this.detail = layer;
  }

  /**
   * Return the layers of what is shown, those drawn first in front.
   *
   * @param {string} key
   */
  layersOf(key) {
    return [this.base, this.detail].filter((layer) => layer !== null && layer.key === key).map((layer) => /** @type {Layer} */ (layer));
  }

  /** The sides of what is read, once it is drawn. */
  get scales() {
    const layer = this.#reading;
    return layer && { y: layer.y, x: layer.x };
  }

  /**
   * The projection that suits the field: around a pole that of the pole.
   *
   * @returns {ProjectionName}
   */
  get suitable() {
    const { west, east, south, north } = this.base?.geometry.bounds ?? { west: 0, east: 0, south: 0, north: 0 };
    if (east - west < 300) return "plate";
    return south > POLAR ? "north" : north < -POLAR ? "south" : "plate";
  }

  /** Show all of the field again. */
  showAll() {
    clearTimeout(this.#timer);
    this.#view = null;
    this.#isMoving = false;
    this.#viewKey = JSON.stringify([this.#shownProjection, undefined, undefined]);
  }

  /** @param {{ width: number, height: number }} room */
  place(room) {
    const name = this.name ?? "plate";
    const bounds = this.base?.geometry.bounds ?? { west: -180, east: 180, south: -90, north: 90 };
    this.#fit = fitBounds(name, bounds);
    const wide = Math.max(120, room.width - LEFT - MARGIN.right);
    const ratio = Math.max(0.4, Math.min(1.2, this.#fit.height / this.#fit.width));
    const height = Math.min(room.height, Math.max(wide * ratio, Math.min(room.height, 140)));
    [this.width, this.height] = [Math.round(Math.min(wide, height / ratio)), Math.round(height)];
    this.#project();
    return { left: LEFT, width: this.width, height: this.height };
  }

  /** Pixels for each unit of the projection at which all of the field is in view. */
  get #fitScale() {
    return Math.min(this.width / this.#fit.width, this.height / this.#fit.height);
  }

  #project() {
    const name = this.name ?? "plate";
    const { centre, zoom } = this.#view ?? { centre: this.#fit.centre, zoom: 1 };
    const size = { width: this.width, height: this.height };
    const known = /** @type {Place} */ (centre.every(Number.isFinite) ? centre : this.#fit.centre);
    this.projection = this.#within(new MapProjection(name, known, this.#fitScale * this.#limitZoom(zoom), size));
  }

  /** @param {number} zoom */
  #limitZoom(zoom) {
    const world = worldExtent(this.name ?? "plate");
    const smallest = Math.min(1, Math.min(this.width / world.width, this.height / world.height) / this.#fitScale);
    const largest = (MOST * 180) / Math.PI / this.#fitScale;
    return Math.max(smallest, Math.min(largest, zoom));
  }

  /**
   * Return a projection whose map fills the picture from top to bottom where it can.
   *
   * @param {MapProjection} projection
   */
  #within(projection) {
    const { name, kind, scale, size, middle } = projection;
    if (!kind.raw) return projection;
    const half = (worldExtent(name).height * scale) / 2;
    const [top, bottom] = [middle[1] - half, middle[1] + half];
    if (2 * half <= size.height) return new MapProjection(name, [projection.centre[0], 0], scale, size);
    const by = top > 0 ? top : bottom < size.height ? bottom - size.height : 0;
    if (!by) return projection;
    const place = projection.invert([size.width / 2, Math.max(top, Math.min(bottom, size.height / 2 + by))]);
    return place ? new MapProjection(name, [projection.centre[0], place[1]], scale, size) : projection;
  }

  /** @param {Point} point */
  #grasp(point) {
    this.#grasped = this.projection?.invert(point) ?? null;
  }

  /** @param {Point} point */
  #drag(point) {
    if (this.projection && this.#grasped) this.#move(this.projection.movedTo(this.#grasped, point));
  }

  /**
   * @param {Point} point
   * @param {number} factor
   */
  #zoom(point, factor) {
    const { projection } = this;
    if (!projection) return false;
    const zoom = this.#limitZoom((projection.scale / this.#fitScale) * factor);
    const scale = zoom * this.#fitScale;
    if (Math.abs(scale / projection.scale - 1) < 1e-9) return false;
    const place = projection.invert(point);
    const scaled = new MapProjection(projection.name, projection.centre, scale, projection.size);
    this.#move(place ? scaled.movedTo(place, point) : scaled);
    this.#startRest();
    return true;
  }

  /** @param {MapProjection} moved */
  #move(moved) {
    this.projection = this.#within(moved);
    this.#view = { centre: this.projection.centre, zoom: moved.scale / this.#fitScale };
    this.#isMoving = true;
    clearTimeout(this.#timer);
    this.actions.redraw();
  }

  #startRest() {
    this.#grasped = null;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#isMoving = false;
      const { centre, zoom } = this.#view ?? { centre: this.#fit.centre, zoom: 1 };
      /** @type {(number: number) => number} */
      const round = (number) => Number(number.toFixed(4));
      this.#view = { centre: [round(centre[0]), round(centre[1])], zoom: Number(zoom.toPrecision(5)) };
      this.#viewKey = JSON.stringify([this.#shownProjection, this.#view.centre, this.#view.zoom]);
      this.actions.rest(this.#view);
    }, REST);
  }

  /** Stop what is under way. */
  close() {
    clearTimeout(this.#timer);
  }

  /**
   * Paint what is shown on a canvas.
   *
   * @param {HTMLCanvasElement} canvas
   * @param {string} key what is shown
   * @param {(answer: FieldAnswer) => Painted} paint
   */
  paint(canvas, key, paint) {
    // A map that moves is drawn coarser where a frame would take too long.
    this.#shownKey = key;
    const density = this.#isMoving ? this.#movingDensity : canvasDensity();
    const begin = performance.now();
    const projection = /** @type {MapProjection} */ (this.projection);
    const layers = this.layersOf(key).map(({ geometry, answer }) => {
      const { cells, painter } = paint(answer);
      return { table: geometry.table(projection, density), values: cells, paint: painter };
    });
    if (!layers.length) return;
    const { width, height } = layers[0].table;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = contextOf(canvas);
    paintTables(context, layers, { outside: pixelColour("paper"), empty: pixelColour("unwritten") });
    this.#drawLines(context, density);
    if (this.#isMoving && performance.now() - begin > SLOW) this.#movingDensity = 0.5;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} density
   */
  #drawLines(context, density) {
    const projection = /** @type {MapProjection} */ (this.projection);
    const atlas = findAtlas(projection, this.#isMoving, () => this.actions.redraw());
    const key = `${projection.key} ${atlas?.resolution}`;
    if (this.#paths.key !== key) this.#paths = { key, paths: {} };
    const { paths } = this.#paths;
    context.save();
    context.scale(density, density);
    context.lineJoin = "round";
    const sphere = (paths.sphere ??= pathOf(projection, { type: "Sphere" }));
    if (atlas && (this.mask === "land" || this.mask === "ocean")) {
      const land = (paths.land ??= pathOf(projection, atlas.land));
      context.fillStyle = themeColour(this.mask === "land" ? "land" : "ocean");
      if (this.mask === "land") context.fill(land);
      else {
        const ocean = new Path2D(sphere);
        ocean.addPath(land);
        context.fill(ocean, "evenodd");
      }
    }
    /** @type {(path: Path2D, colour: string, width: number) => void} */
    const stroke = (path, colour, width) => {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.stroke(path);
    };
    if (this.lines.includes("graticule"))
      stroke((paths.graticule ??= pathOf(projection, graticuleLines(projection))), "rgba(128, 128, 128, 0.55)", 0.7);
    if (atlas && this.lines.includes("borders")) {
      const borders = (paths.borders ??= pathOf(projection, atlas.borders));
      stroke(borders, "rgba(255, 255, 255, 0.35)", 1.8);
      stroke(borders, "rgba(20, 20, 20, 0.65)", 0.7);
    }
    if (atlas && this.lines.includes("coasts")) {
      const coasts = (paths.coasts ??= pathOf(projection, atlas.coasts));
      const width = this.width < 400 ? 0.7 : 1; // on a phone all lines are near each other
      stroke(coasts, "rgba(255, 255, 255, 0.45)", 2.4 * width);
      stroke(coasts, "rgba(15, 15, 15, 0.9)", width);
    }
    stroke(sphere, themeColour("line-strong"), 1);
    if (this.lines.includes("graticule") && !this.#isFramed) this.#writeLabels(context);
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context */
  #writeLabels(context) {
    Object.assign(context, { font: "11px system-ui, sans-serif", textAlign: "center", textBaseline: "middle", lineWidth: 3 });
    context.strokeStyle = "rgba(255, 255, 255, 0.75)";
    context.fillStyle = "#111";
    for (const { at, text } of this.#graticuleLabels()) {
      context.strokeText(text, at[0], at[1]);
      context.fillText(text, at[0], at[1]);
    }
  }

  /** Whether the map is a rectangle, whose meridians and parallels are labelled beside it. */
  get #isFramed() {
    return this.name === "plate" || this.name === "mercator";
  }

  /** @param {SVGSVGElement} svg */
  drawAround(svg) {
    if (!this.#isFramed || !this.lines.includes("graticule")) return;
    const root = select(svg).append("g").attr("class", "axis").attr("transform", `translate(${LEFT},${MARGIN.top})`);
    for (const { at, text, isMeridian } of this.#graticuleLabels()) {
      const label = root.append("text").attr("dy", ".32em").text(text);
      if (isMeridian) label.attr("x", at[0]).attr("y", this.height + 14).attr("text-anchor", "middle");
      else label.attr("x", -8).attr("y", at[1]).attr("text-anchor", "end");
    }
  }

  /** Return the labels of the meridians and parallels in view, without those that would run into each other. */
  #graticuleLabels() {
    const projection = /** @type {MapProjection} */ (this.projection);
    const step = graticuleStep(projection.scale);
    /** @type {{ at: Point, text: string, isMeridian: boolean }[]} */
    const labels = [];
    const [lon, lat] = projection.centre;
    const reach = Math.min(180, ((this.width + this.height) / projection.scale) * (180 / Math.PI));
    // Meridians are labelled along the parallel in the middle; around a pole, near the rim, where they are apart.
    const { pole } = projection.kind;
    const rim = 0.42 * Math.min(this.width, this.height);
    const aroundPole = Math.max(step, Math.abs(lat) - 2 * Math.atan(rim / projection.scale) * (180 / Math.PI));
    const parallel = pole === undefined ? Math.round(lat / step) * step : aroundPole * Math.sign(pole);
    const [first, last] = [Math.ceil((lon - reach) / step), Math.floor((lon + reach) / step)];
    // Beside a map those that have room are evenly spread.
    const every = this.#isFramed ? Math.ceil(WIDEST_LABEL / (step * projection.scale * (Math.PI / 180))) : 1;
    for (let at = first; at <= last && (at - first) * step < 360; at += 1) {
      if (at % every !== 0) continue;
      const point = projection.project(at * step, this.#isFramed ? lat : parallel);
      if (point && this.#isSeen(point)) labels.push({ at: point, text: nameDegrees(at * step, "longitude"), isMeridian: true });
    }
    for (let at = Math.ceil(Math.max(-90, lat - reach) / step); at * step <= Math.min(90, lat + reach); at += 1) {
      const point = Math.abs(at * step) === 90 ? null : projection.project(lon, at * step);
      if (point && this.#isSeen(point)) labels.push({ at: point, text: nameDegrees(at * step, "latitude"), isMeridian: false });
    }
    /** @type {typeof labels} */
    const kept = [];
    for (const label of labels) {
      const half = LETTER * label.text.length;
      if (!this.#isFramed && (label.at[0] < half || label.at[0] > this.width - half)) continue; // it would be cut
      const isFree = kept.every(
        ({ at, text, isMeridian }) =>
          (this.#isFramed && isMeridian !== label.isMeridian) ||
          Math.abs(at[0] - label.at[0]) > LETTER * (text.length + label.text.length) ||
          Math.abs(at[1] - label.at[1]) > 14,
      );
      if (isFree) kept.push(label);
    }
    return kept;
  }

  /** The layer whose cells the pointer reads: that of the newest answer. */
  get #reading() {
    return this.layersOf(this.#shownKey).at(-1) ?? null;
  }

  /**
   * @param {Point} point
   * @returns {Cell | null}
   */
  cellAt([left, top]) {
    const layer = this.#reading;
    const table = layer?.geometry.knownTable;
    if (!layer || !table) return null;
    const column = Math.floor((left / this.width) * table.width);
    const row = Math.max(0, Math.ceil((top / this.height) * table.height) - 1); // on a border, the cell above
    if (column < 0 || row < 0 || column >= table.width || row >= table.height) return null;
    const cell = table.cells[row * table.width + column] - FIRST;
    const { columns } = layer.geometry;
    return cell < 0 ? null : { row: Math.floor(cell / columns), column: cell % columns };
  }

  /**
   * @param {Cell} cell
   * @returns {Point | null}
   */
  pixelOfCell({ row, column }) {
    const layer = this.#reading;
    if (!layer || row < 0 || column < 0 || row >= layer.geometry.rows || column >= layer.geometry.columns) return null;
    const point = this.projection?.project(...layer.geometry.middle(row, column)) ?? null;
    return point && this.#isSeen(point) ? point : null;
  }

  /** @param {Point} point */
  #isSeen([left, top]) {
    return left >= 0 && top >= 0 && left <= this.width && top <= this.height;
  }

  /**
   * Return the place of a cell as a text; empty where labels of the sides say it.
   *
   * @param {Cell} cell
   */
  labelOfCell({ row, column }) {
    const { geometry, y, x } = this.#reading ?? {};
    if (!geometry || (geometry instanceof AxesGeometry && !y?.byIndex && !x?.byIndex)) return "";
    const [lon, lat] = geometry.middle(row, column);
    return `${nameDegrees(lat, "latitude")}, ${nameDegrees(lon, "longitude")}`;
  }

  /**
   * The next cells that one comes to on the screen.
   *
   * @param {Cell} cursor
   * @param {[number, number]} direction
   * @param {number} by
   * @returns {Cell}
   */
  neighbour(cursor, [down, right], by) {
    let cell = cursor;
    for (let found = 0; found < by; found += 1) {
      const from = this.pixelOfCell(cell);
      if (!from) return cell;
      let next = null;
      for (let pixels = 1; !next; pixels += 1) {
        const point = /** @type {Point} */ ([from[0] + pixels * right, from[1] + pixels * down]);
        if (!this.#isSeen(point)) return cell;
        const there = this.cellAt(point);
        const middle = there && this.pixelOfCell(there);
        // Its middle lies ahead, too: around a pole cells are narrower than a pixel, and one would go round in circles.
        if (middle && (middle[0] - from[0]) * right + (middle[1] - from[1]) * down > 0.5) next = there;
      }
      cell = next;
    }
    return cell;
  }

  /**
   * @param {Point} from
   * @param {Point} to
   * @returns {Cells | null}
   */
  cellsWithin(from, to) {
    const layer = this.#reading;
    const table = layer?.geometry.knownTable;
    return layer && table ? cellRange(table, layer.geometry.columns, this.#share(from), this.#share(to)) : null;
  }

  /**
   * Return the place at a point, on flat maps with a longitude that is half a turn from the middle at most.
   *
   * @param {Point} point
   * @returns {Place | null}
   */
  placeAt(point) {
    const { projection } = this;
    const place = projection?.invert(point) ?? null;
    if (!place || !projection?.kind.raw) return place;
    return [projection.centre[0] + wrapLongitude(place[0] - projection.centre[0]), place[1]];
  }

  /**
   * Return places along a box on the screen, all around it.
   *
   * @param {Point} from
   * @param {Point} to
   * @returns {Place[]}
   */
  placesAround([x0, y0], [x1, y1]) {
    const corners = [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]; // prettier-ignore
    const isShort = this.#isFramed && 2 * Math.abs(x1 - x0) < Math.PI * (this.projection?.scale ?? 0);
    const steps = isShort ? 1 : BOX_STEPS;
    return corners.slice(1).flatMap((corner, at) =>
      Array.from({ length: steps }, (_, step) => {
        const [left, top] = corners[at].map((begin, side) => begin + ((corner[side] - begin) * step) / steps);
        return this.placeAt([left, top]);
      }).filter((place) => place !== null),
    );
  }

  /**
   * Show what lies in a box on the screen.
   *
   * @param {Point} from
   * @param {Point} to
   */
  zoomTo([x0, y0], [x1, y1]) {
    const factor = Math.min(this.width / Math.max(1, Math.abs(x1 - x0)), this.height / Math.max(1, Math.abs(y1 - y0)));
    /** @type {Point} */
    const middle = [(x0 + x1) / 2, (y0 + y1) / 2];
    this.#zoom(middle, factor);
    this.#grasp(middle);
    this.#drag([this.width / 2, this.height / 2]);
    this.#startRest();
  }

  /**
   * Return a point as shares of the picture.
   *
   * @param {Point} point
   * @returns {Point}
   */
  #share([left, top]) {
    return [left / this.width, top / this.height];
  }

  /**
   * Return the elements in view, with some around them, where finer values of them could be had than those that are drawn;
   * null if those of all suffice.
   *
   * @returns {Box | null}
   */
  finerBox() {
    const { base, detail } = this;
    if (!base || !this.width) return null;
    this.#project();
    const [stepY, stepX] = base.answer.header.sampling.step;
    const projection = /** @type {MapProjection} */ (this.projection);
    if (stepY <= 1 && stepX <= 1) return null;
    const seen = cellRange(base.geometry.table(projection, canvasDensity()), base.geometry.columns, [0, 0], [1, 1]);
    if (!seen) return null;
    const [rows, columns] = [base.y.rangeOfCells(...seen.rows), base.x.rangeOfCells(...seen.columns)];
    const [y0, y1, x0, x1] = base.answer.header.box;
    const [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
    const gains = (stepY > 1 && height < 0.6 * (y1 - y0)) || (stepX > 1 && width < 0.6 * (x1 - x0));
    if (!gains) return null;
    if (detail) {
      const [top, bottom, left, right] = detail.answer.header.box;
      const isInside = top <= rows[0] && bottom >= rows[1] && left <= columns[0] && right >= columns[1];
      const [isHigh, isWide] = [bottom - top > 2.2 * height + 4, right - left > 2.2 * width + 4];
      if (isInside && !(isHigh || isWide)) return detail.answer.header.box;
    }
    const [aboveRows, asideColumns] = [Math.ceil(height * 0.2), Math.ceil(width * 0.2)];
    return [
      Math.max(y0, rows[0] - aboveRows),
      Math.min(y1, rows[1] + aboveRows),
      Math.max(x0, columns[0] - asideColumns),
      Math.min(x1, columns[1] + asideColumns),
    ];
  }
}

/**
 * Return the rows and columns of the cells in a part of a table; null if there is none.
 *
 * @param {CellTable} table
 * @param {number} count columns of the field
 * @param {Point} from shares of the width and the height
 * @param {Point} to
 * @returns {Cells | null}
 */
function cellRange({ cells, width, height }, count, from, to) {
  /** @type {(side: 0 | 1, length: number) => [number, number]} */
  const range = (side, length) => [
    Math.max(0, Math.floor(Math.min(from[side], to[side]) * length)),
    Math.min(length - 1, Math.floor(Math.max(from[side], to[side]) * length)),
  ];
  const [[left, right], [top, bottom]] = [range(0, width), range(1, height)];
  const rows = /** @type {[number, number]} */ ([Infinity, -1]);
  const found = new Uint8Array(count);
  for (let y = top; y <= bottom; y += 1) {
    for (let x = left; x <= right; x += 1) {
      const cell = cells[y * width + x] - FIRST;
      if (cell < 0) continue;
      const row = Math.floor(cell / count);
      found[cell - row * count] = 1;
      if (row < rows[0]) rows[0] = row;
      if (row > rows[1]) rows[1] = row;
    }
  }
  if (rows[1] < 0) return null;
  // Cells smaller than a pixel leave gaps, too; a seam leaves one that is far wider.
  const columns = Array.from(found.keys()).filter((column) => found[column]);
  const gaps = columns.slice(1).map((column, at) => column - columns[at]).sort((one, other) => other - one);
  const usual = gaps[1] ?? 1;
  const [first, last] = [columns[0], columns[columns.length - 1]];
  const isCut = gaps.length > 1 && gaps[0] > 2 * usual + 1 && first <= usual && last >= count - 1 - usual;
  return { rows, columns: [first, last], isCut };
}

/** @param {string} name of a colour of the theme */
function pixelColour(name) {
  const [red, green, blue] = parseColour(themeColour(name));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * Return degrees as maps have them, without those that arithmetic adds.
 *
 * @param {number} degrees
 * @param {"latitude" | "longitude"} axis
 */
function nameDegrees(degrees, axis) {
  const known = Number((axis === "longitude" ? wrapLongitude(degrees) : degrees).toFixed(4));
  return formatDegrees(known, axis, (value) => formatNumber(value, 7));
}
