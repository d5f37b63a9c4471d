// Texts for numbers, bytes, times and labels.

import { format } from "./vendor/plotting.js";
import { formatDate } from "./calendar.js";

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
 * @param {number} largest beyond it as powers of ten
 * @returns {(value: number) => string}
 */
export function tickFormat(low, high, largest = 1e6) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (size !== 0 && (size < 1e-3 || size > largest)) return (value) => (value === 0 ? "0" : format("~e")(value).replace("e+", "e"));
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
 * @param {string | null} [calendar] of dates that browsers do not have
 */
export function formatLabel(value, kind, units, calendar) {
  if (value === null || value === undefined) return "–";
  if (kind === "time" && typeof value === "number") return calendar ? formatDate(value, calendar) : formatTime(value);
  if (kind === "time") return shortenTime(String(value));
  if (typeof value !== "number") return String(value);
  const axis = degreeAxis(units);
  if (axis) return formatDegrees(value, axis, (degrees) => formatNumber(degrees, 7));
  return joinUnits(formatNumber(value, 7), units);
}

/**
 * Return whether units are degrees of latitude or of longitude; null: neither.
 *
 * @param {string | null | undefined} units
 * @returns {"latitude" | "longitude" | null}
 */
export function degreeAxis(units) {
  if (/^degrees?_?(north|N)$/.test(units ?? "")) return "latitude";
  return /^degrees?_?(east|E)$/.test(units ?? "") ? "longitude" : null;
}

/**
 * Return a latitude or longitude as maps have it: "26.6° S", "90° W".
 *
 * @param {number} value
 * @param {"latitude" | "longitude"} axis
 * @param {(value: number) => string} format of the number
 */
export function formatDegrees(value, axis, format) {
  const turned = axis === "longitude" && value > 180 && value <= 360 ? value - 360 : value;
  const isNone = turned === 0 || (axis === "longitude" && Math.abs(turned) === 180);
  const [positive, negative] = axis === "latitude" ? ["N", "S"] : ["E", "W"];
  return `${format(Math.abs(turned))}°${isNone ? "" : ` ${turned > 0 ? positive : negative}`}`;
}

/**
 * Return about so many round degrees between two; null where they are not whole ones.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count
 */
export function degreeTicks(low, high, count) {
  const step = [1, 2, 5, 10, 15, 20, 30, 45, 60, 90].find((size) => (high - low) / size <= count);
  if (!step || high - low < 2) return null;
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, at) => (Math.ceil(low / step) + at) * step);
}

/**
 * Return a text of the server's with shorter units and times.
 *
 * @param {string} text
 */
export function shortenText(text) {
  return text
    .replace(/(-?\d[\d.]*(?:e-?\d+)?) (degrees?_(?:north|N|east|E))\b/g, (_, number, units) =>
      formatLabel(Number(number), "number", units),
    )
    .replaceAll("T00:00:00", "");
}

/**
 * Return a text with units; degrees become signs.
 *
 * @param {string} text
 * @param {string | null | undefined} units
 */
export function joinUnits(text, units) {
  if (units && /^degrees?$/.test(units)) return `${text}°`;
  return units && units !== "1" ? `${text} ${units}` : text;
}
