// The plane of a variable that a state shows: its two sides, positions along the other dimensions, a box within it.

/** @import { Box, State } from "./address.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Variable } from "./archive.js" */

/**
 * What is shown of a variable, with defaults filled in and limits kept.
 *
 * @typedef {object} Plane
 * @property {Variable} variable
 * @property {string | null} y dimension of the rows
 * @property {string | null} x dimension of the columns
 * @property {string[]} rest the other dimensions
 * @property {string[]} over those that the statistic reduces
 * @property {string} statistic
 * @property {Record<string, number>} index position along the others
 * @property {Box} box
 * @property {Box} whole
 * @property {{ dim: string, bands: number[] }} [composite] several positions of one of the others
 */

/**
 * A plane with both sides; cells of a map that do not lie in rows have no `y`.
 *
 * @typedef {Plane & { x: string }} FieldPlane
 */

/**
 * Return the length of a dimension.
 *
 * @param {Variable} variable
 * @param {string} dim
 */
export function sizeOf(variable, dim) {
  return variable.shape[variable.dims.indexOf(dim)];
}

/**
 * Return the two dimensions that a picture of a variable shows: chosen, spatial, or the last two.
 *
 * @param {Variable} variable
 * @param {State} state
 */
function sidesOf({ dims, spatial }, state) {
  /** @type {(chosen: string | undefined, usual: string) => string} */
  const side = (chosen, usual) => (chosen !== undefined && dims.includes(chosen) ? chosen : usual);
  const x = side(state.x, spatial?.x ?? dims[dims.length - 1]);
  const y = side(state.y, spatial?.y ?? dims[dims.length - 2]);
  return { y: y === x ? (dims.find((dim) => dim !== x) ?? y) : y, x };
}

/**
 * Return whether a state shows a map of cells that do not lie in rows.
 *
 * @param {Variable} variable
 * @param {State} state
 */
function showsCells({ map, dims }, { projection, y }) {
  return map?.kind === "cells" && y === undefined && (projection !== "none" || dims.length < 2);
}

/**
 * Return whether a variable has a field, with two sides or on a map.
 *
 * @param {Variable} variable
 */
export function hasField({ dims, map }) {
  return dims.length >= 2 || map?.kind === "cells";
}

/**
 * Return the plane of a variable of two or more dimensions that a state shows.
 *
 * @param {Variable} variable
 * @param {State} state
 * @returns {FieldPlane}
 */
export function planeOf(variable, state) {
  const { y, x } = showsCells(variable, state) ? { y: null, x: variable.map?.x ?? "" } : sidesOf(variable, state);
  const rest = variable.dims.filter((dim) => dim !== y && dim !== x);
  const over = state.statistic ? (state.over ?? []).filter((dim) => rest.includes(dim)) : [];
  /** @type {(dim: string) => number} */
  const position = (dim) => Math.max(0, Math.min(sizeOf(variable, dim) - 1, state.index?.[dim] ?? 0));
  /** @type {Box} */
  const whole = [0, y === null ? 1 : sizeOf(variable, y), 0, sizeOf(variable, x)];
  return {
    variable,
    y,
    x,
    rest,
    over,
    statistic: over.length ? (state.statistic ?? "") : "",
    index: Object.fromEntries(rest.filter((dim) => !over.includes(dim)).map((dim) => [dim, position(dim)])),
    box: state.box && isWithin(state.box, whole) ? state.box : whole,
    whole,
  };
}

/**
 * Return the plane of a variable of less than two dimensions: one row, and the columns of a box.
 *
 * @param {Variable} variable
 * @param {Box} [box]
 * @returns {Plane}
 */
function vectorPlane(variable, box) {
  /** @type {Box} */
  const whole = [0, 1, 0, variable.shape[0] ?? 1];
  /** @type {Box | null} */
  const row = box ? [0, 1, box[2], box[3]] : null;
  return {
    variable,
    y: null,
    x: variable.dims[0] ?? null,
    rest: [],
    over: [],
    statistic: "",
    index: {},
    box: row && isWithin(row, whole) ? row : whole,
    whole,
  };
}

/**
 * Return the plane that snippets describe; variables of less than two dimensions are taken whole.
 *
 * @param {Variable} variable
 * @param {State} state
 */
export function exportedPlane(variable, state) {
  return hasField(variable) ? planeOf(variable, state) : vectorPlane(variable);
}

/**
 * Return the plane whose chunks a state shows, of a variable of any number of dimensions.
 *
 * Sides and box are others than those of the values: files often follow each other along a dimension that pictures of
 * values do not show.
 *
 * @param {Variable} variable
 * @param {State} state
 */
export function chunkPlaneOf(variable, state) {
  const { dims, shape } = variable;
  if (dims.length < 2) return vectorPlane(variable, state.chunk_box);
  const [y, x] = dims.length === 2 ? dims : [dims.find((_, at) => at > 0 && shape[at] > 1) ?? dims[1], dims[0]];
  const { chunk_y = y, chunk_x = x, chunk_box: box, index } = state;
  return planeOf(variable, { y: chunk_y, x: chunk_x, box, index });
}

/**
 * @param {Box} box
 * @param {Box} whole
 */
function isWithin([y0, y1, x0, x1], whole) {
  return y0 >= 0 && y1 <= whole[1] && y0 < y1 && x0 >= 0 && x1 <= whole[3] && x0 < x1;
}

/**
 * Return whether all rows and columns are shown.
 *
 * @param {Plane} plane
 */
export function isWhole({ box, whole }) {
  return box.every((at, side) => at === whole[side]);
}

/**
 * Return the parameters of `field` and `download` for a plane.
 *
 * @param {string} url
 * @param {Plane} plane
 * @returns {Parameters}
 */
export function fieldParameters(url, plane) {
  return {
    url,
    variable: plane.variable.path,
    y: plane.y,
    x: plane.x,
    index: plane.index,
    box: isWhole(plane) ? null : plane.box,
    statistic: plane.statistic,
    over: plane.over.join(","),
  };
}
