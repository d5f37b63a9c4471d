// What the caption of a field says: what is selected, how it was sampled, and what of it is there.

import { formatCount, formatNumber, shortenText } from "./format.js";

/** @import { FieldHeader } from "./field_view.js" */

/** Words of the ways in which the number of a cell comes from the values that lie in it. */
export const METHODS = { all: "", mean: "mean of the cell", nearest: "nearest", overview: "overview" };

/**
 * Return what is said of a field.
 *
 * @param {FieldHeader} header
 */
export function wordsOfField({ sampling, missing, shape, written, text }) {
  const block = sampling.step.map((step) => formatNumber(step, 3)).join(" × ");
  const how = {
    all: "Every value is drawn",
    mean: `Each cell is the mean of ${block} values`,
    nearest: `Each cell is one of ${block} values (nearest)`,
    overview: `From an overview of the file: each cell stands for ${block} values`,
  }[sampling.method];
  const share = sampling.share < 1 ? `; ${formatNumber(100 * sampling.share, 2)} % of the chunks were looked at` : "";
  const cells = `${formatCount(shape[0])} × ${formatCount(shape[1])} cells`;
  const gaps = missing ? `; ${formatNumber((100 * missing) / (shape[0] * shape[1]), 3)} % missing` : "";
  const selected = text ? `${shortenText(text)}. ` : "";
  return `${selected}${how}${share} (${cells})${gaps}${wordsOfChunks(written)}`;
}

/**
 * Return how much of a sparse array was written; nothing of others.
 *
 * @param {FieldHeader["written"]} written
 */
function wordsOfChunks(written) {
  if (!written) return "";
  const counts = `${formatCount(written.chunks)} of ${formatCount(written.cells)} chunks were ever written, ${formatCount(written.here)} of them lie here`;
  const first = written.here ? [] : Object.entries(written.first).map(([dim, at]) => `${dim} ${at}`);
  const elsewhere = first.length ? ` (the first begins at index ${first.join(", ")})` : "";
  return `. ${counts}: the rest is the fill value${elsewhere}`;
}
