// An archive as the server describes it: groups and variables, found by path.

import { askJson } from "./api.js";
import { hasField } from "./plane.js";

/**
 * @typedef {{ name: string, value: string }} Attribute
 */

/**
 * How the values of an array are shown.
 *
 * @typedef {"number" | "time" | "bool" | "text" | "other"} Kind
 */

/**
 * A flag: it is set where the bits of its mask have its value, or are not zero if it has no value.
 *
 * @typedef {{ meaning: string, value: number | null, mask: number | null, colour: string | null }} Flag
 */

/**
 * How the cells of a variable lie on the earth: between meridians and parallels that label two dimensions (`axes`), with
 * corners of their own (`grid`), or counted by one dimension (`cells`: `y` is null).
 *
 * @typedef {object} EarthPlane
 * @property {"axes" | "grid" | "cells"} kind
 * @property {string | null} y
 * @property {string} x
 * @property {string | null} lon path of the longitudes
 * @property {string | null} lat
 * @property {boolean} is_global
 */

/**
 * A variable as the server describes it; `group` is added here.
 *
 * @typedef {object} Variable
 * @property {string} path
 * @property {string} name
 * @property {string} group path of its group; the root is empty
 * @property {string[]} dims
 * @property {number[]} shape
 * @property {boolean} is_coordinate
 * @property {Attribute[]} attributes
 * @property {string | null} long_name
 * @property {string | null} standard_name
 * @property {{ y: string, x: string } | null} spatial dimensions that a picture shows
 * @property {EarthPlane | null} [map] how it lies on the earth
 * @property {Record<string, string | null>} coordinates path of the coordinate of each dimension
 * @property {string} dtype
 * @property {Kind} kind
 * @property {string | null} units
 * @property {Flag[] | null} flags what values mean, of a flag variable
 * @property {number[] | null} chunk_shape null where chunks differ
 * @property {number} chunks
 * @property {number} tiles
 * @property {string[]} codecs
 * @property {number} stored_bytes
 * @property {number} virtual_bytes
 * @property {number} files
 * @property {string | null} unreadable why it cannot be read
 * @property {string[]} [variables] of a formula: what it reads
 * @property {string} [python] of a formula: code that computes it
 */

/**
 * @typedef {object} Group
 * @property {string} path
 * @property {Attribute[]} attributes
 * @property {{ name: string, size: number }[]} dimensions
 * @property {{ name: string, reason: string }[]} problems variables that cannot be read
 * @property {Variable[]} variables
 */

/**
 * Answer of `api/archive`.
 *
 * @typedef {object} ArchiveAnswer
 * @property {string} url
 * @property {string[]} urls
 * @property {string | null} format
 * @property {number} files
 * @property {number} stored_bytes
 * @property {number} virtual_bytes
 * @property {{ path: string, text: string }[]} notes
 * @property {Group[]} groups
 * @property {{ url: string, text: string }[]} forecasts views of a collection of forecasts, itself first
 * @property {string} python code that makes the view of the dataset; empty if it is none
 */

/** @param {string | null | undefined} path */
const clean = (path) => (path ?? "").replace(/^\/+|\/+$/g, "");

/** Groups, variables and totals of one archive. */
export class Archive {
  /** @type {Map<string, Variable>} */
  #variables = new Map();

  /** @param {ArchiveAnswer} answer */
  constructor(answer) {
    this.url = answer.url;
    this.urls = answer.urls;
    this.format = answer.format;
    this.files = answer.files;
    this.stored_bytes = answer.stored_bytes;
    this.virtual_bytes = answer.virtual_bytes;
    this.notes = answer.notes;
    this.groups = answer.groups;
    this.forecasts = answer.forecasts ?? [];
    this.python = answer.python ?? "";
    for (const group of this.groups) {
      for (const variable of group.variables) {
        variable.group = clean(group.path);
        this.#variables.set(clean(variable.path), variable);
      }
    }
  }

  /**
   * Return the variable at a path, or undefined.
   *
   * @param {string | null | undefined} path
   */
  variable(path) {
    return path === null || path === undefined ? undefined : this.#variables.get(clean(path));
  }

  /**
   * Return the group at a path, or undefined.
   *
   * @param {string} path
   */
  group(path) {
    return this.groups.find((group) => clean(group.path) === clean(path));
  }

  /** Return the variable to show first: one that makes a picture, with the most values. */
  get firstVariable() {
    const readable = [...this.#variables.values()].filter(({ unreadable }) => !unreadable);
    // What counts most comes first: each answer outweighs all that follow it.
    /** @param {Variable} variable */
    const weight = (variable) =>
      [
        variable.spatial ? 1 : 0,
        variable.is_coordinate ? 0 : 1,
        variable.dims.length >= 2 ? 1 : 0,
        ["number", "bool"].includes(variable.kind) ? 1 : 0,
        isBounds(variable.name) ? 0 : 1,
      ].reduce((/** @type {number} */ sum, part) => 2 * sum + part, 0);
    /** @type {Variable | undefined} */
    let best;
    for (const variable of readable) {
      if (best === undefined) {
        best = variable;
        continue;
      }
      const [own, other] = [weight(variable), weight(best)];
      // The first one of a file is usually the one that it is about, unless another is much larger.
      if (own > other || (own === other && variable.virtual_bytes > 4 * best.virtual_bytes)) best = variable;
    }
    return best;
  }
}

/**
 * Return whether a variable is drawn as a picture.
 *
 * @param {Variable} variable
 */
export const isPicture = (variable) =>
  hasField(variable) &&
  ["number", "time", "bool"].includes(variable.kind) &&
  variable.shape.every((size) => size > 0);

/** @param {string} name */
const isBounds = (name) => /(_bnds|_bounds|_vertices|_mask)$/.test(name);

/**
 * Return the archive at a URL.
 *
 * @param {string} url
 * @param {AbortSignal} signal
 */
export async function openArchive(url, signal) {
  return new Archive(await askJson("archive", { url }, signal));
}
