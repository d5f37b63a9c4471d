// Axis of a line plot along a dimension: real dates of any calendar, degrees, or numbers with units.

import { dateTicks } from "./calendar.js";
import { degreeAxis, formatDegrees, formatNumber } from "./format.js";

/** @import { Side } from "./dimension_scale.js" */

const [DAY, MINUTE] = [86_400, 60]; // seconds
const DATE = "\n{YYYY}-{MM}-{DD}";
/** Texts of times by how far ticks are apart, what is added where a year and a day begins: uPlot's own have AM and PM. */
const TIME_TEXTS = [
  [365 * DAY, "{YYYY}", null, null, null, null, null, null, 1],
  [28 * DAY, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [DAY, "{MMM} {DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [MINUTE, "{HH}:{mm}", DATE, null, DATE, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DATE, null, DATE, null, null, null, 1],
  [0.001, ":{ss}.{fff}", `${DATE} {HH}:{mm}`, null, `${DATE} {HH}:{mm}`, null, "\n{HH}:{mm}", null, 1],
];

/**
 * Return how the positions of a side are plotted by uPlot: what they are divided by (its times are seconds), whether it
 * knows them as times, and options of its axis.
 *
 * @param {Side} side
 * @returns {{ divide: number, isTime: boolean, axis: import("uplot").Axis }}
 */
export function positionAxis(side) {
  const name = side.name || side.dim;
  if (side.kind === "time" && !side.calendar) return { divide: 1000, isTime: true, axis: { label: name, values: TIME_TEXTS } };
  if (side.kind === "time") {
    /** @param {number[]} values */
    const ticks = (values) => dateTicks(values[0], values[values.length - 1], values.length, side.calendar);
    return {
      divide: 1,
      isTime: false,
      axis: {
        label: `${name} (${side.calendar})`,
        splits: (plot, _, low, high) => ticks(evenly(low, high, Math.max(2, plot.width / 90))).values,
        values: (_, splits) => splits.map(ticks(splits).format),
      },
    };
  }
  const degrees = degreeAxis(side.units);
  if (degrees)
    return {
      divide: 1,
      isTime: false,
      axis: {
        label: name,
        values: (_, splits) =>
          splits.map((value) => formatDegrees(value, degrees, (size) => formatNumber(size, 5))),
      },
    };
  const units = side.units && side.units !== "1" ? ` (${side.units})` : "";
  return { divide: 1, isTime: false, axis: { label: `${name}${units}` } };
}

/** @type {(low: number, high: number, count: number) => number[]} */
const evenly = (low, high, count) =>
  Array.from({ length: Math.floor(count) }, (_, at) => low + ((high - low) * at) / (Math.floor(count) - 1));
