// Where elements, boxes and polygons of a variable lie on a map.

/** @import { Box } from "./address.js" */
/** @import { BinaryAnswer, Numbers } from "./binary.js" */
/** @import { EarthMap } from "./earth_map.js" */
/** @import { Point } from "./picture.js" */
/** @import { CellPlaces, Places } from "./picture_places.js" */
/** @import { Place } from "./projections.js" */

const DEGREES = 2; // between the points of a line, which is bent on a map
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
   * @param {BinaryAnswer} answer
   * @returns {CellPlaces}
   */
  ofAnswer({ arrays }) {
    const projection = this.map.projection;
    /** @type {(row: number, column: number) => Place} */
    const place = (row, column) => [between(arrays.x, column), between(arrays.y, row)];
    return {
      reach: this.map.width / 3,
      point: (row, column) => projection?.project(...place(row, column)) ?? null,
      direction: (row, column, [right, up]) => {
        const [lon, lat] = place(row, column);
        const length = Math.hypot(right, up) || 1;
        // A degree of longitude is shorter than one of latitude.
        const east = (STEP * right) / length / Math.max(0.01, Math.cos((lat * Math.PI) / 180));
        const [from, to] = [projection?.project(lon, lat), projection?.project(lon + east, lat + (STEP * up) / length)];
        if (!from || !to) return null;
        const way = /** @type {Point} */ ([to[0] - from[0], to[1] - from[1]]);
        return Math.hypot(...way) > 0 && Math.hypot(...way) < this.map.width / 3 ? way : null;
      },
    };
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
    const { base } = this.map;
    if (!base) return [];
    const [[south, north], [west, east]] = [[y0, y1].map((at) => base.y.edgeAt(at)), [x0, x1].map((at) => base.x.edgeAt(at))];
    return this.#lines([[west, south], [east, south], [east, north], [west, north]], true); // prettier-ignore
  }

  /**
   * @param {[number, number][]} vertices
   * @param {boolean} isClosed
   * @returns {Point[][]}
   */
  ofVertices(vertices, isClosed) {
    return this.#lines(vertices, isClosed);
  }

  /**
   * Return the lines between places: straight in degrees, cut where the map ends.
   *
   * @param {Place[]} places
   * @param {boolean} isClosed
   */
  #lines(places, isClosed) {
    const { projection, width } = this.map;
    /** @type {Place[]} */
    const dense = [];
    const ends = isClosed ? [...places, places[0]] : places;
    ends.forEach((to, at) => {
      const from = ends[Math.max(0, at - 1)];
      const steps = Math.max(1, Math.ceil(Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])) / DEGREES));
      for (let step = at ? 1 : steps; step <= steps; step += 1)
        dense.push([from[0] + ((to[0] - from[0]) * step) / steps, from[1] + ((to[1] - from[1]) * step) / steps]);
    });
    /** @type {Point[][]} */
    const pieces = [];
    /** @type {Point | null} */
    let last = null;
    for (const [lon, lat] of dense) {
      const point = projection?.project(lon, Math.max(-90, Math.min(90, lat))) ?? null;
      if (point && last && Math.hypot(point[0] - last[0], point[1] - last[1]) < width / 3) pieces[pieces.length - 1].push(point);
      else if (point) pieces.push([point]);
      last = point;
    }
    return pieces;
  }
}

/**
 * Return what lies between numbers, also a little beyond the ends.
 *
 * @param {Numbers} numbers
 * @param {number} at
 */
function between(numbers, at) {
  const cell = Math.max(0, Math.min(Math.floor(at), numbers.length - 2));
  return numbers.length < 2 ? numbers[0] : numbers[cell] + (numbers[cell + 1] - numbers[cell]) * (at - cell);
}
