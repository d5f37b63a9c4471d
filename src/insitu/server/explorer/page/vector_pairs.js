// Which variables are the two components of a vector: by standard names of CF, else by usual names.

/** @import { Archive, Variable } from "./archive.js" */

/** @typedef {{ u: Variable, v: Variable }} VectorPair */

const NAMES = /^(u|U)(?=$|[_\d]|a$|as$|o$|si$|bar|vel|wnd|grd|10|100|10m|component)|^(x)(?=_?(wind|vel|stress))/;

/**
 * Return the pairs of components along two dimensions.
 *
 * @param {Archive} archive
 * @param {string} y
 * @param {string} x
 * @returns {VectorPair[]}
 */
export function vectorPairs(archive, y, x) {
  /** @type {VectorPair[]} */
  const found = [];
  for (const group of archive.groups) {
    const drawn = group.variables.filter(({ dims, kind }) => kind === "number" && dims.includes(y) && dims.includes(x));
    const byStandardName = new Map(drawn.map((variable) => [variable.standard_name ?? "", variable]));
    const byName = new Map(drawn.map((variable) => [variable.name, variable]));
    for (const u of drawn) {
      const partner = partnerStandardName(u.standard_name ?? "");
      const v = (partner && byStandardName.get(partner)) || byName.get(partnerName(u.name) ?? "");
      if (v && v !== u && v.dims.join() === u.dims.join()) found.push({ u, v });
    }
  }
  return found;
}

/**
 * Return the standard name of the other component; null if this is no first component.
 *
 * @param {string} name
 */
export function partnerStandardName(name) {
  if (name.includes("eastward")) return name.replace("eastward", "northward");
  return /(^|_)x_/.test(name) ? name.replace(/(^|_)x_/, "$1y_") : null;
}

/**
 * Return the usual name of the other component; null if this is no first component.
 *
 * @param {string} name
 */
export function partnerName(name) {
  if (!NAMES.test(name)) return null;
  const first = { u: "v", U: "V", x: "y" }[name[0]];
  return first ? first + name.slice(1) : null;
}
