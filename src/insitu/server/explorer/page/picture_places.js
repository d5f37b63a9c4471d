// Where elements, boxes and polygons of a variable lie on a picture between two axes.

import { DimensionScale } from "./dimension_scale.js";

/** @import { Box } from "./address.js" */
/** @import { BinaryAnswer } from "./binary.js" */
/** @import { Point } from "./picture.js" */

/**
 * Where the cells of an answer lie that is drawn over a picture; it may have other cells than the picture.
 *
 * @typedef {object} CellPlaces
 * @property {(row: number, column: number) => Point | null} point of a place between cells: whole numbers are middles
 * @property {(row: number, column: number, vector: [number, number], isOfGrid: boolean) => Point | null} direction on the
 *   screen of a vector to the east and the north, or along columns and rows; its length does not count
 * @property {number} reach pixels: what is longer crosses the seam of a map
 */

/**
 * Where things lie on a picture, in pieces that are not cut.
 *
 * @typedef {object} Places
 * @property {(answer: BinaryAnswer) => CellPlaces | null} ofAnswer null: they have no place here
 * @property {(element: [number, number]) => Point | null} ofElement row and column of the variable
 * @property {(box: Box) => Point[][]} ofBox closed lines, or pieces of one
 * @property {(vertices: [number, number][], isClosed: boolean) => Point[][]} ofVertices coordinates of the axes
 * @property {(places: [number, number][], isClosed: boolean) => Point[][]} ofPlaces longitudes and latitudes
 * @property {(places: [number, number][]) => [number, number][]} ringOf a polygon whose longitudes do not jump
 */

/**
 * Places on a picture between two axes.
 *
 * @implements {Places}
 */
export class AxesPlaces {
  /**
   * @param {DimensionScale} y
   * @param {DimensionScale} x
   */
  constructor(y, x) {
    this.y = y;
    this.x = x;
  }

  /**
   * @param {BinaryAnswer} answer
   * @returns {CellPlaces}
   */
  ofAnswer({ header, arrays }) {
    const [y0, y1, x0, x1] = header.box;
    const [stepY, stepX] = header.sampling.step;
    const y = new DimensionScale(header.y, arrays.y, y0, y1, stepY, this.y.byIndex);
    const x = new DimensionScale(header.x, arrays.x, x0, x1, stepX, this.x.byIndex);
    y.scale = this.y.scale;
    x.scale = this.x.scale;
    /** @type {(scale: DimensionScale, at: number) => number} */
    const pixel = (scale, at) => {
      const cell = Math.min(Math.floor(at), scale.count - 1);
      const [one, next] = [scale.pixelOfCell(cell), scale.pixelOfCell(Math.min(cell + 1, scale.count - 1))];
      return one + (next - one) * (at - cell);
    };
    // A component points to where its coordinate rises.
    const rises = (/** @type {DimensionScale} */ scale) =>
      Math.sign(scale.pixelOfCell(scale.count - 1) - scale.pixelOfCell(0)) * (scale.rising ? 1 : -1);
    const [toRight, toBottom] = [rises(x) || 1, rises(y) || -1];
    return {
      reach: Infinity,
      point: (row, column) => [pixel(x, column), pixel(y, row)],
      direction: (_row, _column, [right, up]) => [right * toRight, up * toBottom],
    };
  }

  /**
   * @param {[number, number]} element
   * @returns {Point | null}
   */
  ofElement([row, column]) {
    const [y, x] = [this.y.cellOfIndex(row), this.x.cellOfIndex(column)];
    return y < 0 || x < 0 ? null : [this.x.pixelOfCell(x), this.y.pixelOfCell(y)];
  }

  /**
   * @param {Box} box
   * @returns {Point[][]}
   */
  ofBox([y0, y1, x0, x1]) {
    const [top, bottom] = [y0, y1].map((index) => this.y.scale(this.y.edgeAt(index)));
    const [left, right] = [x0, x1].map((index) => this.x.scale(this.x.edgeAt(index)));
    return [[[left, top], [right, top], [right, bottom], [left, bottom]]]; // prettier-ignore
  }

  /**
   * Positions count from the borders of cells on an axis, and from middles in a vertex.
   *
   * @param {[number, number][]} vertices
   * @returns {Point[][]}
   */
  ofVertices(vertices) {
    const { y, x } = this;
    return [vertices.map(([at, down]) => [x.scale(x.byIndex ? at + 0.5 : at), y.scale(y.byIndex ? down + 0.5 : down)])];
  }

  /**
   * Only maps have places.
   *
   * @returns {Point[][]}
   */
  ofPlaces() {
    return [];
  }

  /** @param {[number, number][]} places */
  ringOf(places) {
    return places;
  }
}
