// Places of the values of a line along its axis: their coordinates, or positions where no axis could hold these.

import { isMonotonic } from "./dimension_scale.js";

/** @import { BinaryAnswer } from "./binary.js" */

export const UNPLACED = "Its coordinate repeats, turns back or has gaps, so that it is drawn by position";

/**
 * Return an answer of `api/line` or `api/region` whose places rise or fall.
 *
 * @param {BinaryAnswer} answer
 * @returns {BinaryAnswer}
 */
export function withPlaces(answer) {
  const { position } = answer.arrays;
  const { header } = answer;
  if (!position || isMonotonic(position)) return answer;
  const step = header.size / position.length;
  const places = Float64Array.from(position, (_, at) => (at + 0.5) * step - 0.5);
  const side = { dim: header.position.dim, kind: "index", units: null, name: header.position.dim, labels: null };
  return { header: { ...header, position: side }, arrays: { ...answer.arrays, position: places } };
}
