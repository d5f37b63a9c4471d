// Scale of one side of a picture: element index <-> row or column of the sampled array <-> coordinate <-> screen.

import { scaleLinear, scaleUtc, utcFormat } from "./vendor/plotting.js";
import { dateTicks } from "./calendar.js";
import { degreeAxis, degreeTicks, formatDegrees, formatLabel, tickFormat } from "./format.js";

/** @import { Axis } from "d3-axis" */
/** @import { NumberValue, ScaleLinear, ScaleTime } from "d3-scale" */
/** @import { Kind } from "./archive.js" */
/** @import { Numbers } from "./binary.js" */

/**
 * The header's description of a side of a picture.
 *
 * @typedef {object} Side
 * @property {string} dim
 * @property {Kind | "index"} kind `index`: there is no coordinate
 * @property {string | null} units
 * @property {string} name
 * @property {string | null} calendar of dates that browsers do not have
 * @property {string[] | null} labels texts of the cells where the coordinate has no numbers
 */

/**
 * What a picture needs to know of a side.
 *
 * @typedef {DimensionScale | IndexScale} CellScale
 */

/** How one dimension of a picture is drawn. Rows and columns are `cells`; `first` and `end` are element indices. */
export class DimensionScale {
  /**
   * @param {Side} side
   * @param {Numbers} positions coordinate of each cell
   * @param {number} first element index where the picture begins
   * @param {number} end element index where it ends (exclusive)
   * @param {number} step elements for each cell
   * @param {boolean} byIndex draw by element index also where there are coordinates
   */
  constructor(side, positions, first, end, step, byIndex) {
    this.side = side;
    this.positions = positions;
    this.first = first;
    this.end = end;
    this.step = step;
    this.count = positions.length;
    // Where coordinates repeat or turn back (a day line, a swath), no axis could place them.
    this.byIndex = byIndex || Boolean(side.labels) || side.kind === "index" || !isMonotonic(positions);
    this.edges = this.byIndex ? this.#indexEdges() : coordinateEdges(positions);
    this.rising = this.edges[this.count] > this.edges[0];
    /** @type {ScaleLinear<number, number> | ScaleTime<number, number>} */
    this.scale = scaleLinear();
  }

  #indexEdges() {
    return Float64Array.from({ length: this.count + 1 }, (_, cell) =>
      Math.min(this.end, this.first + cell * this.step),
    );
  }

  /**
   * Place the scale on the screen, from `begin` (where the smallest coordinate lies) to `stop`.
   *
   * @param {number} begin
   * @param {number} stop
   */
  place(begin, stop) {
    const ends = [this.edges[0], this.edges[this.count]];
    if (!this.rising) ends.reverse();
    const isTime = this.side.kind === "time" && !this.byIndex;
    // The scale of d3 knows one calendar.
    this.scale = isTime && !this.side.calendar ? scaleUtc(ends, [begin, stop]) : scaleLinear(ends, [begin, stop]);
  }

  /** Return the length of the shown range in units of the coordinate. */
  get extent() {
    return Math.abs(this.edges[this.count] - this.edges[0]);
  }

  /**
   * Return the cell at a place on the screen.
   *
   * @param {number} pixel
   */
  cellAt(pixel) {
    return this.#search(Number(this.scale.invert(pixel)));
  }

  /**
   * Return the cell that a coordinate lies in; cells need not have one size, so that it is searched, not computed.
   *
   * @param {number} position
   */
  #search(position) {
    let [low, high] = [0, this.count - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      const edge = this.edges[middle + 1];
      if (this.rising ? position < edge : position > edge) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /**
   * Return the cell for each of `length` pixels of a canvas, from its left or upper end.
   *
   * @param {number} length
   */
  cellsOfPixels(length) {
    return Int32Array.from({ length }, (_, pixel) => this.cellAt(((pixel + 0.5) * this.span) / length));
  }

  /** Return the pixels that the scale covers. */
  get span() {
    const [begin, stop] = this.scale.range();
    return Math.abs(stop - begin);
  }

  /**
   * Return the element index that a cell stands for: its middle.
   *
   * @param {number} cell
   */
  indexOfCell(cell) {
    return Math.min(this.end - 1, this.first + Math.floor((cell + 0.5) * this.step));
  }

  /**
   * Return the cell that holds an element, or -1 outside of the picture.
   *
   * @param {number} index
   */
  cellOfIndex(index) {
    if (index < this.first || index >= this.end) return -1;
    return Math.min(this.count - 1, Math.floor((index - this.first) / this.step));
  }

  /**
   * Return element indices `[first, end)` of cells `from` to `to` (inclusive).
   *
   * @param {number} from
   * @param {number} to
   * @returns {[number, number]}
   */
  rangeOfCells(from, to) {
    const begin = this.first + Math.floor(from * this.step);
    return [begin, Math.max(begin + 1, Math.min(this.end, this.first + Math.ceil((to + 1) * this.step)))];
  }

  /**
   * Return the coordinate of the border before an element, within what is shown.
   *
   * @param {number} index
   */
  edgeAt(index) {
    const cell = Math.min(this.count, Math.max(0, (index - this.first) / this.step));
    const floor = Math.min(Math.floor(cell), this.count - 1);
    return this.edges[floor] + (this.edges[floor + 1] - this.edges[floor]) * (cell - floor);
  }

  /**
   * Return the element index of a coordinate, with the share of the element that lies before it.
   *
   * @param {number} position
   */
  indexAt(position) {
    const cell = this.#search(position);
    const share = (position - this.edges[cell]) / (this.edges[cell + 1] - this.edges[cell]);
    return this.first + (cell + share) * this.step;
  }

  /**
   * Return the screen pixel in the middle of a cell.
   *
   * @param {number} cell
   */
  pixelOfCell(cell) {
    return this.scale((this.edges[cell] + this.edges[cell + 1]) / 2);
  }

  /**
   * Return the label of a cell: its coordinate with units, or its index.
   *
   * @param {number} cell
   */
  labelOfCell(cell) {
    if (this.side.labels) return String(this.side.labels[cell]);
    if (this.side.kind === "index") return String(this.indexOfCell(cell));
    return formatLabel(this.positions[cell], this.side.kind, this.side.units, this.side.calendar);
  }

  /** Return about how many letters the longest label of a tick has. */
  get labelLength() {
    if (this.side.labels) return Math.min(16, Math.max(...Array.from(this.side.labels, (text) => String(text).length)));
    if (this.byIndex) return String(this.end).length;
    if (this.side.kind === "time") return 6;
    return Math.max(...[0, this.count >> 1, this.count].map((at) => this.#coordinateFormat()(this.edges[at]).length));
  }

  /** Return the title of the axis. */
  get title() {
    const name = this.side.name || this.side.dim;
    if (this.byIndex && !this.side.labels) return `${this.side.dim} (index)`;
    const units = this.side.kind === "time" ? this.side.calendar : this.side.units;
    return units && units !== "1" && !degreeAxis(units) ? `${name} (${units})` : name;
  }

  /**
   * Put ticks and their texts on a d3 axis.
   *
   * @param {Axis<NumberValue | Date>} axis
   * @param {number} pixelsApart
   */
  decorate(axis, pixelsApart) {
    const count = Math.max(2, Math.floor(this.span / pixelsApart));
    axis.tickSizeOuter(0);
    if (this.side.labels) return axis.tickValues(this.#labelTicks(count)).tickFormat((at) => this.#labelAt(Number(at)));
    axis.ticks(count);
    if (this.side.kind === "time" && !this.byIndex && !this.side.calendar)
      return axis.tickValues(this.#withinData(this.scale.ticks(count))).tickFormat((value) => tickOfTime(new Date(Number(value))));
    if (this.side.calendar && !this.byIndex) {
      const [low, high] = this.#dataRange();
      const { values, format } = dateTicks(low, high, count, this.side.calendar);
      return axis.tickValues(values).tickFormat((value) => format(Number(value)));
    }
    if (this.byIndex) return axis.tickValues(this.scale.ticks(count).filter(Number.isInteger)).tickFormat(String);
    const format = this.#coordinateFormat();
    const degrees = degreeAxis(this.side.units) ? degreeTicks(...this.#dataRange(), count) : null;
    const ticks = degrees ?? this.#withinData(this.scale.ticks(count));
    return axis.tickValues(ticks).tickFormat((value) => format(Number(value)));
  }

  /**
   * Return the lowest and highest coordinate; of one cell, its borders.
   *
   * @returns {[number, number]}
   */
  #dataRange() {
    const { positions, edges, count } = this;
    const ends = count > 1 ? [positions[0], positions[count - 1]] : [edges[0], edges[count]];
    return [Math.min(...ends), Math.max(...ends)];
  }

  /**
   * Return the ticks that lie where there are data: the borders of the first and the last cell are half a cell further.
   *
   * @param {readonly (number | Date)[]} ticks
   */
  #withinData(ticks) {
    const [low, high] = this.#dataRange();
    const room = (high - low) * 1e-9;
    return ticks.filter((tick) => Number(tick) >= low - room && Number(tick) <= high + room);
  }

  /** @returns {(value: number) => string} */
  #coordinateFormat() {
    const text = tickFormat(this.edges[0], this.edges[this.count], 1e9);
    const axis = degreeAxis(this.side.units);
    if (axis) return (value) => formatDegrees(value, axis, text);
    return text;
  }

  /** @param {number} count */
  #labelTicks(count) {
    const every = Math.max(1, Math.ceil(this.count / count));
    const cells = Array.from({ length: Math.ceil(this.count / every) }, (_, at) => at * every);
    return cells.map((cell) => (this.edges[cell] + this.edges[cell + 1]) / 2);
  }

  /** @param {number} position */
  #labelAt(position) {
    const text = String(this.side.labels?.[this.#search(position)]);
    return text.length > 16 ? `${text.slice(0, 15)}…` : text;
  }
}

/**
 * Scale of one side in element indices, every element a cell: for pictures of chunks. It computes what `DimensionScale`
 * looks up, whose borders of cells would be an array of millions here.
 */
export class IndexScale {
  /**
   * @param {string | null} dim null: the picture has no such side
   * @param {number} first
   * @param {number} end exclusive
   */
  constructor(dim, first, end) {
    this.dim = dim;
    this.first = first;
    this.end = end;
    this.count = end - first;
    this.scale = scaleLinear();
  }

  /**
   * @param {number} begin
   * @param {number} stop
   */
  place(begin, stop) {
    this.scale = scaleLinear([this.first, this.end], [begin, stop]);
  }

  get span() {
    const [begin, stop] = this.scale.range();
    return Math.abs(stop - begin);
  }

  /** @param {number} pixel */
  cellAt(pixel) {
    return Math.max(0, Math.min(this.count - 1, Math.floor(this.scale.invert(pixel)) - this.first));
  }

  /** @param {number} cell */
  indexOfCell(cell) {
    return this.first + cell;
  }

  /** @param {number} index */
  cellOfIndex(index) {
    return index >= this.first && index < this.end ? index - this.first : -1;
  }

  /**
   * @param {number} from
   * @param {number} to
   * @returns {[number, number]}
   */
  rangeOfCells(from, to) {
    return [this.first + from, this.first + to + 1];
  }

  /** @param {number} cell */
  pixelOfCell(cell) {
    return this.scale(this.first + cell + 0.5);
  }

  get extent() {
    return this.count;
  }

  get labelLength() {
    return String(this.end).length;
  }

  get title() {
    return this.dim ? `${this.dim} (index)` : "";
  }

  /**
   * @param {Axis<NumberValue | Date>} axis
   * @param {number} pixelsApart
   */
  decorate(axis, pixelsApart) {
    const ticks = this.scale.ticks(Math.max(2, Math.floor(this.span / pixelsApart))).filter(Number.isInteger);
    return axis
      .tickSizeOuter(0)
      .tickValues(this.dim ? ticks : [])
      .tickFormat(String);
  }
}

/** @param {Numbers} positions */
export function isMonotonic(positions) {
  if (positions.length === 0 || !positions.every(Number.isFinite)) return false;
  if (positions.length === 1) return true;
  const rising = positions[1] > positions[0];
  for (let at = 1; at < positions.length; at += 1) {
    if (rising ? positions[at] <= positions[at - 1] : positions[at] >= positions[at - 1]) return false;
  }
  return true;
}

/**
 * Return the borders between cells: halfway between their coordinates.
 *
 * @param {Numbers} positions
 */
function coordinateEdges(positions) {
  const count = positions.length;
  if (count === 1) return Float64Array.of(positions[0] - 0.5, positions[0] + 0.5);
  const edges = new Float64Array(count + 1);
  for (let at = 1; at < count; at += 1) edges[at] = (positions[at - 1] + positions[at]) / 2;
  edges[0] = positions[0] - (positions[1] - positions[0]) / 2;
  edges[count] = positions[count - 1] + (positions[count - 1] - positions[count - 2]) / 2;
  return edges;
}

/**
 * Return whether two sides are drawn in one scale: degrees and degrees, metres and metres, pixels and pixels.
 *
 * @param {DimensionScale} y
 * @param {DimensionScale} x
 */
export function isEqualAspect(y, x) {
  if (y.byIndex !== x.byIndex) return false;
  if (y.byIndex) return !y.side.labels && !x.side.labels && y.side.kind === "index" && x.side.kind === "index";
  if (y.side.kind !== "number" || x.side.kind !== "number") return false;
  /** @param {Side} side */
  const unit = (side) => (side.units ?? "").replace(/_?(north|east|N|E)$/, "");
  return unit(y.side) !== "" && unit(y.side) === unit(x.side);
}

/**
 * Return whether the coordinate of the rows of a picture rises downwards on the screen.
 *
 * @param {Pick<DimensionScale, "byIndex" | "rising" | "side">} scale
 * @param {boolean} isImage
 * @param {{ name: string, value: string }[]} attributes of the coordinate
 */
export function rowsRunDown({ byIndex, rising, side }, isImage, attributes) {
  // Rows of an image run downwards; where it lies on the earth, its coordinates fall.
  if (isImage) return rising;
  return byIndex ? Boolean(side.labels) : risesDownwards(attributes, side.dim);
}

/**
 * Return whether values of a vertical coordinate rise downwards, as depth and pressure do.
 *
 * @param {{ name: string, value: string }[]} attributes of the coordinate
 * @param {string} dim
 */
export function risesDownwards(attributes, dim) {
  /** @param {string} name */
  const text = (name) => attributes.find((attribute) => attribute.name === name)?.value.trim().toLowerCase() ?? "";
  if (text("positive")) return text("positive") === "down";
  return (
    /(^|_)(depth|pressure)(_|$)|^(ocean|atmosphere)_sigma|atmosphere_hybrid_sigma/.test(text("standard_name")) ||
    /^(k|h|da|m|d)?pa(scals?)?$|^(milli|deci)?bars?$|^[dm]b(ar)?$/.test(text("units")) ||
    /^(depth[a-z]?|dep|deptht|lev_p|p?lev_?p?|plev\w*|pressure|pres|isobaric\w*|level_p|deptho)$/i.test(dim)
  );
}

/**
 * Return the text of a tick: the smallest part of a time that is not its first. Those of d3 have AM and PM.
 *
 * @param {Date} time
 */
function tickOfTime(time) {
  if (time.getUTCMilliseconds()) return utcFormat(":%S.%L")(time);
  if (time.getUTCSeconds()) return utcFormat("%H:%M:%S")(time);
  if (time.getUTCHours() || time.getUTCMinutes()) return utcFormat("%H:%M")(time);
  if (time.getUTCDate() > 1) return utcFormat("%b %d")(time);
  return utcFormat(time.getUTCMonth() ? "%b" : "%Y")(time);
}
