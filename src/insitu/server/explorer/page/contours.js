// Contour lines of a grid of cells: marching squares, missing values left out.

/** @import { Numbers } from "./binary.js" */

/** @typedef {[number, number, number, number]} Segment column and row of both ends, in cells; whole numbers are middles */

/**
 * Edges of a square that a line of one level joins, by which corners lie above it: 1 upper left, 2 upper right, 4 lower
 * right, 8 lower left. Edges: 0 upper, 1 right, 2 lower, 3 left. The two saddles (5 and 10) are told apart below.
 *
 * @type {readonly (readonly [number, number][])[]}
 */
const EDGES = [
  [], [[3, 0]], [[0, 1]], [[3, 1]], [[1, 2]], [[3, 0], [1, 2]], [[0, 2]], [[3, 2]],
  [[2, 3]], [[2, 0]], [[0, 1], [2, 3]], [[2, 1]], [[1, 3]], [[1, 0]], [[0, 3]], [],
]; // prettier-ignore

/** @type {readonly [number, number][]} */
const SADDLE_5 = [
  [3, 2],
  [0, 1],
];
/** @type {readonly [number, number][]} */
const SADDLE_10 = [
  [3, 0],
  [2, 1],
];

/**
 * Return the pieces of the contour line of one level. Between cells the values are taken to change evenly.
 *
 * @param {Numbers} values rows after each other
 * @param {number} rows
 * @param {number} columns
 * @param {number} level
 * @returns {Segment[]}
 */
export function contourSegments(values, rows, columns, level) {
  /** @type {Segment[]} */
  const found = [];
  for (let row = 0; row + 1 < rows; row += 1) {
    for (let column = 0; column + 1 < columns; column += 1) {
      const at = row * columns + column;
      const corners = [values[at], values[at + 1], values[at + columns + 1], values[at + columns]];
      let shape = 0;
      for (let corner = 0; corner < 4; corner += 1) if (corners[corner] >= level) shape |= 1 << corner;
      if (shape === 0 || shape === 15 || corners.some(Number.isNaN)) continue;
      /** @type {(edge: number) => [number, number]} */
      const place = (edge) => {
        const [one, other] = [corners[edge], corners[(edge + 1) % 4]];
        const share = (level - one) / (other - one);
        if (edge === 0) return [column + share, row];
        if (edge === 1) return [column + 1, row + share];
        if (edge === 2) return [column + 1 - share, row + 1];
        return [column, row + 1 - share];
      };
      const isHigh = (corners[0] + corners[1] + corners[2] + corners[3]) / 4 >= level;
      const pairs = isHigh && shape === 5 ? SADDLE_5 : isHigh && shape === 10 ? SADDLE_10 : EDGES[shape];
      for (const [from, to] of pairs) found.push([...place(from), ...place(to)]);
    }
  }
  return found;
}
