// Where the cells of a field lie on the earth: between meridians and parallels, or with corners of their own, or as points.

import { tableOfAxes, tableOfCorners } from "./cell_table.js";
import { wrapLongitude } from "./projections.js";

/** @import { BinaryAnswer, Numbers } from "./binary.js" */
/** @import { CellTable, Corners } from "./cell_table.js" */
/** @import { Bounds, MapProjection, Place } from "./projections.js" */

/** @typedef {AxesGeometry | CornerGeometry} CellGeometry */

const RADIANS = Math.PI / 180;

/** A table that is kept for as long as the projection is the same. */
class KnownTable {
  #key = "";
  /** @type {CellTable | null} */
  table = null;

  /**
   * @param {MapProjection} projection
   * @param {number} density
   * @param {() => CellTable} make
   */
  get(projection, density, make) {
    const key = `${projection.key} ${density}`;
    if (!this.table || key !== this.#key) {
      this.table = make();
      this.#key = key;
    }
    return this.table;
  }
}

/** Cells between meridians and parallels that label the two sides of a field. */
export class AxesGeometry {
  hasRows = true;
  #known = new KnownTable();

  /**
   * @param {Numbers} lonEdges borders of the columns
   * @param {Numbers} latEdges borders of the rows
   */
  constructor(lonEdges, latEdges) {
    this.lonEdges = limitedTurn(lonEdges);
    this.latEdges = reachingPoles(latEdges);
    this.rows = latEdges.length - 1;
    this.columns = lonEdges.length - 1;
    this.isRound = Math.abs(this.lonEdges[this.columns] - this.lonEdges[0]) > 359;
  }

  /** @returns {Bounds} */
  get bounds() {
    const [west, east] = [this.lonEdges[0], this.lonEdges[this.columns]].sort((one, other) => one - other);
    const [south, north] = [this.latEdges[0], this.latEdges[this.rows]].sort((one, other) => one - other);
    return { west, east, south, north };
  }

  /**
   * Return the table of a projection; it is made anew only if that differs from the last one.
   *
   * @param {MapProjection} projection
   * @param {number} density
   */
  table(projection, density) {
    return this.#known.get(projection, density, () => tableOfAxes(projection, density, this.lonEdges, this.latEdges));
  }

  /** The table that was made last. */
  get knownTable() {
    return this.#known.table;
  }

  /**
   * Return the place between the corners of the cells: whole numbers are corners.
   *
   * @param {number} row
   * @param {number} column
   * @returns {Place}
   */
  place(row, column) {
    return [between(this.lonEdges, column), between(this.latEdges, row)];
  }

  /**
   * Return the place in the middle of a cell.
   *
   * @param {number} row
   * @param {number} column
   */
  middle(row, column) {
    return this.place(row + 0.5, column + 0.5);
  }
}

/** Cells with corners of their own, in rows and columns or one after the other, or points: an answer of `api/geometry`. */
export class CornerGeometry {
  #known = new KnownTable();
  isRound = false;
  /** @type {Bounds | null} */
  #bounds = null;

  /** @param {BinaryAnswer} answer */
  constructor({ header, arrays }) {
    const [rows, columns] = header.shape;
    this.rows = Number(rows);
    this.columns = Number(columns);
    /** @type {Numbers} */
    this.lon = arrays.lon;
    /** @type {Numbers} */
    this.lat = arrays.lat;
    /** @type {Numbers | null} Of cells that do not lie in rows: where the corners of each begin. */
    this.offsets = header.kind === "cells" ? arrays.offsets : null;
    this.hasRows = this.offsets === null;
    const [, stepX] = header.sampling.step;
    /** Cells that stand for others, which were left out, are drawn larger. */
    this.growth = this.offsets && stepX > 1 ? 1.2 * Math.sqrt(stepX) : 1;
  }

  /** @returns {Corners} */
  get #corners() {
    const { lon, lat, offsets, growth, rows, columns } = this;
    return {
      count: rows * columns,
      lon,
      lat,
      growth,
      find(cell, into) {
        if (offsets) {
          for (let at = offsets[cell]; at < offsets[cell + 1]; at += 1) into[at - offsets[cell]] = at;
          return offsets[cell + 1] - offsets[cell];
        }
        const first = cell + Math.floor(cell / columns);
        [into[0], into[1], into[2], into[3]] = [first, first + 1, first + columns + 2, first + columns + 1];
        return 4;
      },
    };
  }

  /**
   * @param {MapProjection} projection
   * @param {number} density
   */
  table(projection, density) {
    return this.#known.get(projection, density, () => tableOfCorners(projection, density, this.#corners));
  }

  get knownTable() {
    return this.#known.table;
  }

  /**
   * The meridians are those beside the widest gap.
   *
   * @returns {Bounds}
   */
  get bounds() {
    if (this.#bounds) return this.#bounds;
    const hit = new Uint8Array(360);
    let [south, north] = [90, -90];
    for (let at = 0; at < this.lon.length; at += 1) {
      const [lon, lat] = [this.lon[at], this.lat[at]];
      if (!Number.isFinite(lon) || !(Math.abs(lat) <= 90)) continue;
      // At a pole a longitude says nothing.
      if (Math.abs(lat) < 89.999) hit[Math.floor(wrapLongitude(lon) + 180) % 360] = 1;
      south = Math.min(south, lat);
      north = Math.max(north, lat);
    }
    let [begin, longest] = [0, 0];
    for (let at = 0, free = 0; at < 720; at += 1) {
      free = hit[at % 360] ? 0 : free + 1;
      if (free > longest && free < 360) [begin, longest] = [at - free + 1, free];
    }
    if (south > north) this.#bounds = { west: -180, east: 180, south: -90, north: 90 };
    else if (longest < 12) {
      // Around the pole there is no corner that would say how far the cells reach.
      this.#bounds = { west: -180, east: 180, south: south < -80 ? -90 : south, north: north > 80 ? 90 : north };
    } else {
      const west = wrapLongitude(begin + longest - 180);
      this.#bounds = { west, east: west + 360 - longest, south, north };
    }
    return this.#bounds;
  }

  /**
   * @param {number} row
   * @param {number} column
   * @returns {Place}
   */
  place(row, column) {
    if (this.offsets) return this.middle(0, Math.floor(column));
    const [top, left] = [Math.max(0, Math.min(this.rows - 1, Math.floor(row))), Math.max(0, Math.min(this.columns - 1, Math.floor(column)))];
    const [down, right] = [row - top, column - left];
    const first = top * (this.columns + 1) + left;
    const below = first + this.columns + 1;
    return this.#mean([
      [first, (1 - down) * (1 - right)],
      [first + 1, (1 - down) * right],
      [below, down * (1 - right)],
      [below + 1, down * right],
    ]);
  }

  /**
   * @param {number} row
   * @param {number} column
   * @returns {Place}
   */
  middle(row, column) {
    /** @type {number[]} */
    const numbers = [];
    const count = this.#corners.find(row * this.columns + column, numbers);
    return this.#mean(numbers.slice(0, count).map((number) => [number, 1 / count]));
  }

  /**
   * Return the mean of corners on the sphere, where neither the date line nor a pole matters.
   *
   * @param {[number, number][]} parts numbers and weights
   * @returns {Place}
   */
  #mean(parts) {
    let [x, y, z] = [0, 0, 0];
    for (const [number, weight] of parts) {
      const [lambda, phi] = [this.lon[number] * RADIANS, this.lat[number] * RADIANS];
      x += weight * Math.cos(phi) * Math.cos(lambda);
      y += weight * Math.cos(phi) * Math.sin(lambda);
      z += weight * Math.sin(phi);
    }
    return [Math.atan2(y, x) / RADIANS, Math.atan2(z, Math.hypot(x, y)) / RADIANS];
  }
}

/**
 * Return where the cells of an answer of `api/geometry` lie.
 *
 * @param {BinaryAnswer} answer
 * @returns {CellGeometry}
 */
export function toGeometry(answer) {
  const { lon_edges: lonEdges, lat_edges: latEdges } = answer.arrays;
  return answer.header.kind === "axes" ? new AxesGeometry(lonEdges, latEdges) : new CornerGeometry(answer);
}

/**
 * Return what lies between numbers, also a little beyond the ends.
 *
 * @param {Numbers} numbers
 * @param {number} at
 */
function between(numbers, at) {
  const cell = Math.max(0, Math.min(Math.floor(at), numbers.length - 2));
  return numbers[cell] + (numbers[cell + 1] - numbers[cell]) * (at - cell);
}

/**
 * Return borders of columns that go around the earth once at most.
 *
 * @param {Numbers} edges
 */
function limitedTurn(edges) {
  const sign = edges[edges.length - 1] < edges[0] ? -1 : 1;
  const end = edges[0] + sign * 360;
  return Float64Array.from(edges, (edge) => (sign * edge > sign * end ? end : edge));
}

/**
 * Return borders of rows that end at the poles: there where the labels of the last row are less than a row away from them.
 *
 * @param {Numbers} edges
 */
function reachingPoles(edges) {
  const limited = Float64Array.from(edges, (edge) => Math.max(-90, Math.min(90, edge)));
  const last = limited.length - 1;
  for (const [end, next] of [[0, 1], [last, last - 1]]) {
    const height = Math.abs(limited[end] - limited[next]);
    if (last > 1 && 90 - Math.abs(limited[end]) < 0.75 * height) limited[end] = 90 * Math.sign(limited[end]);
  }
  return limited;
}
