// What is known about one chunk, as a list of facts.

import { element } from "./element.js";
import { formatBytes, formatCount, formatNumber } from "./format.js";

/**
 * Answer of `api/chunk`.
 *
 * @typedef {object} Chunk
 * @property {string} state
 * @property {string} text
 * @property {Record<string, [number, number]> | null} cell elements that it shows along each dimension
 * @property {number | null} tile
 * @property {number[] | null} grid its place in the grid of the tile
 * @property {string | null} file
 * @property {number | null} offset
 * @property {number | null} length
 * @property {string | null} range header that fetches it
 * @property {string | null} dtype
 * @property {{ name: string, configuration: object, skipped: boolean }[]} codecs
 * @property {number} filter_mask
 * @property {number[] | null} chunk_shape
 * @property {number | null} decoded_bytes
 * @property {number | null} ratio
 * @property {{ text: string } | null} packing
 * @property {string | null} fill
 */

/** @type {Record<string, string>} Names of the states of a cell. */
export const STATES = {
  stored: "stored",
  inline: "in the table",
  unwritten: "never written",
  absent: "no file",
  computed: "by name",
};

/**
 * Return a list of what is known about a chunk.
 *
 * @param {Chunk} chunk
 */
export function chunkFacts(chunk) {
  const codecs = chunk.codecs.map(
    ({ name, configuration, skipped }) =>
      `${name}${Object.keys(configuration).length ? ` ${JSON.stringify(configuration)}` : ""}${skipped ? " (skipped by the filter mask)" : ""}`,
  );
  const ratio = chunk.ratio ? `, ratio ${formatNumber(chunk.ratio, 3)}` : "";
  const elements = Object.entries(chunk.cell ?? {}).map(([dim, [first, end]]) => `${dim} ${first} to ${end - 1}`);
  /** @type {[string, string | null | undefined][]} */
  const facts = [
    ["State", STATES[chunk.state] ?? chunk.state],
    ["File", chunk.file],
    ["Offset", chunk.offset === null ? null : formatCount(chunk.offset)],
    ["Length", chunk.length === null ? null : `${formatCount(chunk.length)} bytes`],
    ["Range", chunk.range],
    ["Stored as", chunk.dtype],
    ["Codecs", codecs.join(" → ")],
    ["Filter mask", chunk.filter_mask ? String(chunk.filter_mask) : chunk.state === "stored" ? "0" : null],
    ["Packing", chunk.packing?.text],
    ["Fill value", chunk.fill],
    ["Chunk shape", chunk.chunk_shape?.join(" × ")],
    ["Decoded", chunk.decoded_bytes ? `${formatBytes(chunk.decoded_bytes)}${ratio}` : null],
    ["Shows", elements.join(", ")],
    ["Grid", chunk.tile === null ? null : `${chunk.tile}, cell ${(chunk.grid ?? []).join(", ")}`],
  ];
  return element(
    "dl",
    { class: "facts" },
    facts
      .filter(([, text]) => text)
      .map(([name, text]) => [element("dt", {}, name), element("dd", { class: "break", "data-fact": name }, text)]),
  );
}
