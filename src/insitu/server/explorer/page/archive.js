// An archive as the server describes it: groups and variables, found by path.

import { askJson } from "./api.js";

const clean = (path) => (path ?? "").replace(/^\/+|\/+$/g, "");

/** Groups, variables and totals of one archive. */
export class Archive {
  #variables = new Map();

  constructor(answer) {
    Object.assign(this, answer);
    for (const group of this.groups) {
      for (const variable of group.variables) {
        variable.group = clean(group.path);
        this.#variables.set(clean(variable.path), variable);
      }
    }
  }

  /** Return the variable at a path, or undefined. */
  variable(path) {
    return path === null || path === undefined ? undefined : this.#variables.get(clean(path));
  }

  /** Return the group at a path, or undefined. */
  group(path) {
    return this.groups.find((group) => clean(group.path) === clean(path));
  }

  /** Return the variable to show first: one that makes a picture, with the most values. */
  get firstVariable() {
    const readable = [...this.#variables.values()].filter(({ unreadable }) => !unreadable);
    const weight = (variable) =>
      [
        variable.spatial ? 1 : 0,
        variable.is_coordinate ? 0 : 1,
        variable.dims.length >= 2 ? 1 : 0,
        ["number", "bool"].includes(variable.kind) ? 1 : 0,
        isBounds(variable.name) ? 0 : 1,
      ].reduce((sum, part) => 2 * sum + part, 0);
    let best;
    for (const variable of readable) {
      const heavier = best === undefined || weight(variable) > weight(best);
      if (heavier || (weight(variable) === weight(best) && variable.virtual_bytes > 4 * best.virtual_bytes))
        best = variable;
    }
    return best;
  }
}

const isBounds = (name) => /(_bnds|_bounds|_vertices|_mask)$/.test(name);

/** Return the archive at a URL. */
export async function openArchive(url, signal) {
  return new Archive(await askJson("archive", { url }, signal));
}
