// Where elements, boxes and polygons of a variable lie on a map.

import { closeAroundPole } from "./projections.js";

/** @import { Box } from "./address.js" */
/** @import { BinaryAnswer } from "./binary.js" */
/** @import { DimensionScale } from "./dimension_scale.js" */
/** @import { EarthMap } from "./earth_map.js" */
/** @import { Point } from "./picture.js" */
/** @import { CellPlaces, Places } from "./picture_places.js" */
/** @import { Place } from "./projections.js" */

const STEPS = 48; // pieces of a line between two corners
const STEP = 0.01; // degrees, along which the direction of a vector is taken

/**
 * Places on a map.
 *
 * @implements {Places}
 */
export class MapPlaces {
  /** @param {EarthMap} map */
  constructor(map) {
    this.map = map;
  }

  /**
   * The cells of the answer may be of another size: their elements have places.
   *
   * @param {BinaryAnswer} answer
   * @returns {CellPlaces | null}
   */
  ofAnswer({ header }) {
    const { projection, base, width } = this.map;
    if (!base?.geometry.hasRows) return null;
    const [y0, , x0] = header.box;
    const [stepY, stepX] = header.sampling.step;
    /** @type {(row: number, column: number) => Place} */
    const place = (row, column) => this.#placeOf(y0 + (row + 0.5) * stepY, x0 + (column + 0.5) * stepX);
    /** @type {(from: Place, to: Place) => Point | null} */
    const way = (from, to) => {
      const [begin, end] = [projection?.project(...from), projection?.project(...to)];
      const found = begin && end ? /** @type {Point} */ ([end[0] - begin[0], end[1] - begin[1]]) : null;
      return found && Math.hypot(...found) > 0 && Math.hypot(...found) < width / 3 ? found : null;
    };
    return {
      reach: width / 3,
      point: (row, column) => projection?.project(...place(row, column)) ?? null,
      direction: (row, column, [right, up], isOfGrid) => {
        const from = place(row, column);
        // A degree of longitude is shorter than one of latitude.
        const degree = STEP / Math.max(0.01, Math.cos((from[1] * Math.PI) / 180));
        const [signX, signY] = [base.x.rising ? 0.2 : -0.2, base.y.rising ? 0.2 : -0.2];
        const ahead = way(from, isOfGrid ? place(row, column + signX) : [from[0] + degree, from[1]]);
        const above = way(from, isOfGrid ? place(row + signY, column) : [from[0], from[1] + STEP]);
        if (!ahead || !above) return null;
        const [x, y] = [right / Math.hypot(...ahead), up / Math.hypot(...above)];
        return [x * ahead[0] + y * above[0], x * ahead[1] + y * above[1]];
      },
    };
  }

  /**
   * Return the place of an element: whole numbers are corners of elements.
   *
   * @param {number} row
   * @param {number} column
   * @returns {Place}
   */
  #placeOf(row, column) {
    const { base } = this.map;
    if (!base?.geometry.hasRows) return [NaN, NaN];
    return base.geometry.place((row - base.y.first) / base.y.step, (column - base.x.first) / base.x.step);
  }

  /**
   * @param {[number, number]} element
   * @returns {Point | null}
   */
  ofElement([row, column]) {
    const { y, x } = this.map.scales ?? {};
    return y && x ? this.map.pixelOfCell({ row: y.cellOfIndex(row), column: x.cellOfIndex(column) }) : null;
  }

  /**
   * @param {Box} box
   * @returns {Point[][]}
   */
  ofBox([y0, y1, x0, x1]) {
    return this.#lines([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], true); // prettier-ignore
  }

  /**
   * @param {[number, number][]} vertices
   * @param {boolean} isClosed
   * @returns {Point[][]}
   */
  ofVertices(vertices, isClosed) {
    const { base } = this.map;
    if (!base?.geometry.hasRows) return [];
    const { x, y } = base;
    /** @type {(scale: DimensionScale, position: number) => number} */
    const index = (scale, position) => (scale.byIndex ? position + 0.5 : scale.indexAt(position));
    return this.#lines(vertices.map(([along, down]) => [index(x, along), index(y, down)]), isClosed); // prettier-ignore
  }

  /**
   * @param {[number, number][]} places
   * @param {boolean} isClosed
   * @returns {Point[][]}
   */
  ofPlaces(places, isClosed) {
    const ends = isClosed ? places : this.ringOf(places).slice(0, places.length);
    return this.#lines(ends, isClosed, (lon, lat) => [lon, lat]);
  }

  /**
   * Flat maps show which way an edge goes.
   *
   * @param {Place[]} places
   */
  ringOf(places) {
    return this.map.projection?.kind.raw ? places : closeAroundPole(places);
  }

  /**
   * Return the lines between elements, which are bent on a map, cut where the map ends.
   *
   * @param {[number, number][]} ends columns and rows, or what `placeOf` takes
   * @param {boolean} isClosed
   * @param {(along: number, down: number) => Place} placeOf
   */
  #lines(ends, isClosed, placeOf = (column, row) => this.#placeOf(row, column)) {
    const { projection, width } = this.map;
    /** @type {Point[][]} */
    const pieces = [];
    /** @type {Point | null} */
    let last = null;
    const line = isClosed ? [...ends, ends[0]] : ends;
    line.forEach(([column, row], at) => {
      const [before, above] = line[Math.max(0, at - 1)];
      for (let step = at ? 1 : STEPS; step <= STEPS; step += 1) {
        const share = step / STEPS;
        const place = placeOf(before + (column - before) * share, above + (row - above) * share);
        const point = place.every(Number.isFinite) ? (projection?.project(...place) ?? null) : null;
        if (point && last && Math.hypot(point[0] - last[0], point[1] - last[1]) < width / 3) pieces[pieces.length - 1].push(point);
        else if (point) pieces.push([point]);
        last = point;
      }
    });
    return pieces;
  }
}
