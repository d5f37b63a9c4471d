// Histogram of the values of a picture. Drawing a range over it sets the range of the colours.

import { axisBottom, scaleLinear, select } from "./vendor/plotting.js";
import { drawableRange } from "./colour.js";
import { element, svgElement } from "./element.js";
import { formatCount, formatNumber, joinUnits, tickFormat } from "./format.js";

const [HEIGHT, SIDE, BOTTOM, BINS] = [150, 10, 24, 60];

/** @import { ScaleLinear } from "d3-scale" */
/** @import { Numbers } from "./binary.js" */
/** @import { Range } from "./colour.js" */

/**
 * What a histogram shows.
 *
 * @typedef {object} Distribution
 * @property {Numbers} values
 * @property {Range} range
 * @property {(value: number) => string} colourOf
 * @property {number} low limits of the colours
 * @property {number} high
 * @property {string} units
 * @property {number} missing
 * @property {string} note
 */

/**
 * Return counts of finite values in equal bins from `low` to `high`, and how many lie outside.
 *
 * @param {Numbers} values
 * @param {number} low
 * @param {number} high
 * @param {number} bins
 */
export function countValues(values, low, high, bins = BINS) {
  const counts = new Uint32Array(bins);
  let outside = 0;
  let sum = 0;
  let finite = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    finite += 1;
    sum += value;
    const bin = Math.floor(((value - low) / (high - low)) * bins);
    if (value === high) counts[bins - 1] += 1;
    else if (bin >= 0 && bin < bins) counts[bin] += 1;
    else outside += 1;
  }
  return { counts, outside, finite, mean: finite ? sum / finite : NaN };
}

/** Histogram card. */
export class Histogram {
  /** @type {Distribution | null} */
  #distribution = null;
  #drawnWidth = 0;
  #cardWidth = 0;
  /** @type {ScaleLinear<number, number> | null} */
  #scale = null;

  /** @param {(low: number, high: number) => void} onrange called with the range that was drawn */
  constructor(onrange) {
    this.onrange = onrange;
    this.svg = svgElement("svg", { class: "histogram", role: "img" });
    this.text = element("p", { class: "muted small-text" });
    this.element = element(
      "section",
      { class: "card", "aria-label": "Histogram" },
      element("h3", {}, "Histogram"),
      this.svg,
      this.text,
    );
    this.#listen();
    new ResizeObserver(() => {
      this.#cardWidth = this.element.clientWidth;
      if (this.#distribution && this.#width() !== this.#drawnWidth) this.draw(this.#distribution);
    }).observe(this.element);
  }

  #width() {
    return Math.max(200, (this.#cardWidth || this.element.clientWidth) - 28);
  }

  /** @param {Distribution} distribution */
  draw(distribution) {
    this.#distribution = distribution;
    const { values, range, colourOf, low, high, units, missing, note } = distribution;
    const width = (this.#drawnWidth = this.#width());
    const { min, max, low: lowest, high: highest } = range;
    if (min === null || max === null || lowest === null || highest === null) {
      select(this.svg).attr("height", 0).selectAll("*").remove();
      this.text.textContent = "All values shown are missing.";
      return;
    }
    // A few outliers must not squeeze all others into one bin: at most five times the width of the bulk.
    const bulk = (highest - lowest || Math.abs(highest) * 0.1 || 1) * 2;
    let [begin, end] = [Math.max(min, lowest - bulk), Math.min(max, highest + bulk)];
    [begin, end] = begin === end ? [begin - 0.5, end + 0.5] : drawableRange(begin, end);
    const { counts, outside, finite, mean } = countValues(values, begin, end);
    const x = scaleLinear()
      .domain([begin, end])
      .range([SIDE, width - SIDE]);
    this.#scale = x;
    const top = Math.max(...counts);
    const y = scaleLinear()
      .domain([0, top])
      .range([HEIGHT - BOTTOM, 6]);
    const root = select(this.svg).attr("width", width).attr("height", HEIGHT).attr("viewBox", `0 0 ${width} ${HEIGHT}`);
    root.selectAll("*").remove();
    const wide = (width - 2 * SIDE) / BINS;
    counts.forEach((count, bin) => {
      const middle = begin + ((bin + 0.5) * (end - begin)) / BINS;
      root
        .append("rect")
        .attr("x", SIDE + bin * wide)
        .attr("width", Math.max(1, wide - 0.7))
        .attr("y", y(count))
        .attr("height", HEIGHT - BOTTOM - y(count))
        .attr("fill", colourOf(middle));
    });
    for (const limit of [low, high]) {
      if (limit >= begin && limit <= end)
        root
          .append("line")
          .attr("class", "limit")
          .attr("x1", x(limit))
          .attr("x2", x(limit))
          .attr("y1", 2)
          .attr("y2", HEIGHT - BOTTOM);
    }
    const format = tickFormat(begin, end);
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(0,${HEIGHT - BOTTOM})`)
      .call(
        axisBottom(x)
          .ticks(Math.max(2, Math.floor(width / 80)))
          .tickSizeOuter(0)
          .tickFormat((value) => format(Number(value))),
      );
    const spread = `${formatNumber(min)} to ${joinUnits(formatNumber(max), units)}, mean ${formatNumber(mean)}`;
    this.svg.setAttribute("aria-label", `Histogram of ${finite} values: ${spread}`);
    this.text.textContent =
      `${formatCount(finite)} values${note}: ${spread}` +
      (missing ? `; ${formatCount(missing)} missing` : "") +
      (outside ? `; ${formatCount(outside)} beyond the picture` : "") +
      ". Draw over the bars to set the range of the colours.";
  }

  #listen() {
    /** @type {number | null} */
    let start = null;
    /** @param {PointerEvent} event */
    const at = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.svg.addEventListener("pointerdown", (event) => {
      start = this.#scale ? at(event) : null;
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const ends = [start, at(event)].sort((one, other) => one - other);
      const marked = select(this.svg).selectAll("rect.brush").data([0]).join("rect").attr("class", "brush");
      marked
        .attr("x", ends[0])
        .attr("width", ends[1] - ends[0])
        .attr("y", 0)
        .attr("height", HEIGHT - BOTTOM);
    });
    this.svg.addEventListener("pointerup", (event) => {
      const ends = start === null ? null : [start, at(event)].sort((one, other) => one - other);
      start = null;
      select(this.svg).selectAll("rect.brush").remove();
      // A shorter one is a click.
      if (ends && this.#scale && ends[1] - ends[0] > 4)
        this.onrange(this.#scale.invert(ends[0]), this.#scale.invert(ends[1]));
    });
  }
}
