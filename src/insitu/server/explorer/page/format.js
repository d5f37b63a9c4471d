// Texts for numbers, bytes, times and labels.

import { format } from "./vendor/plotting.js";

/** @import { Kind } from "./archive.js" */

/**
 * Return a number with about six digits, as a scientist would write it.
 *
 * @param {number | null | undefined} value
 * @param {number} digits
 */
export function formatNumber(value, digits = 6) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "missing" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e7))
    return value
      .toExponential(Math.max(0, digits - 3))
      .replace("-", "−")
      .replace("e+", "e");
  return Number(value.toPrecision(digits)).toString().replace("-", "−");
}

/**
 * Return the format of the ticks of a scale: short where that is enough.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} largest from here on as powers of ten
 * @returns {(value: number) => string}
 */
export function tickFormat(low, high, largest = 1e5) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (size !== 0 && (size < 1e-3 || size >= largest)) return (value) => format("~e")(value).replace("e+", "e");
  const step = Math.abs(high - low) / 8;
  const decimals = step > 0 ? Math.min(8, Math.max(0, Math.ceil(-Math.log10(step)))) : 3;
  return (value) => format(`.${decimals}~f`)(value);
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/**
 * Return a number of bytes with a unit.
 *
 * @param {number | null | undefined} count
 */
export function formatBytes(count) {
  if (count === null || count === undefined) return "–";
  let power = 0;
  while (count >= 1000 && power < UNITS.length - 1) [count, power] = [count / 1000, power + 1];
  return `${power === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${UNITS[power]}`;
}

/**
 * Return a count with thin spaces between thousands.
 *
 * @param {number} count
 */
export function formatCount(count) {
  return format(",")(count).replaceAll(",", "\u202f");
}

/**
 * Return "1 file", "3 files".
 *
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * Return a time in ms since 1970 as a short ISO text.
 *
 * @param {number} milliseconds
 */
export function formatTime(milliseconds) {
  if (!Number.isFinite(milliseconds)) return "missing";
  return shortenTime(new Date(milliseconds).toISOString());
}

/**
 * Return an ISO time without what is zero at its end.
 *
 * @param {string} text
 */
export function shortenTime(text) {
  return text
    .replace("Z", "")
    .replace(/\.0+$/, "")
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/T00:00:00$/, "")
    .replace(/(T\d\d:\d\d):00$/, "$1")
    .replace("T", " ");
}

/**
 * Return the label of a coordinate's value: number with units, time or text.
 *
 * @param {number | string | null | undefined} value
 * @param {Kind | "index" | undefined} kind
 * @param {string | null | undefined} units
 */
export function formatLabel(value, kind, units) {
  if (value === null || value === undefined) return "–";
  if (kind === "time") return typeof value === "number" ? formatTime(value) : shortenTime(String(value));
  if (typeof value !== "number") return String(value);
  return joinUnits(formatNumber(value, 7), units);
}

/**
 * Return a text of the server's with shorter units and times.
 *
 * @param {string} text
 */
export function shortenText(text) {
  return text
    .replace(/ degrees?_(north|N)\b/g, "°N")
    .replace(/ degrees?_(east|E)\b/g, "°E")
    .replaceAll("T00:00:00", "");
}

/** @type {Record<string, string>} */
const UNIT_SIGNS = { degrees_north: "°N", degree_north: "°N", degrees_east: "°E", degree_east: "°E", degrees: "°" };

/**
 * Return a text with units; degrees become signs.
 *
 * @param {string} text
 * @param {string | null | undefined} units
 */
export function joinUnits(text, units) {
  const sign = UNIT_SIGNS[units ?? ""];
  if (sign) return `${text}${sign}`;
  return units && units !== "1" ? `${text} ${units}` : text;
}
