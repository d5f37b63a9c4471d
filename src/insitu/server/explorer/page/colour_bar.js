// The colour bar beside a picture, with a real axis; triangles where values lie beyond the range.

import { axisRight, scaleLinear, scaleLog, select } from "./vendor/plotting.js";
import { svgElement } from "./element.js";
import { cssColour } from "./colour.js";
import { tickFormat } from "./format.js";

/** @import { Axis } from "d3-axis" */
/** @import { NumberValue } from "d3-scale" */

const [BAR, TOP, STEPS] = [16, 22, 128];

/** Pixels that a colour bar takes beside a picture. */
export const BAR_WIDTH = 88;

/**
 * Return the scale from values to shares of the colour map.
 *
 * @param {number} low
 * @param {number} high
 * @param {boolean} isLog
 */
export function colourScale(low, high, isLog) {
  return (isLog && low > 0 ? scaleLog() : scaleLinear()).domain([low, high]).range([0, 1]).clamp(true);
}

/** Vertical colour bar. */
export class ColourBar {
  element = svgElement("svg", { class: "colour-bar", role: "img" });

  /**
   * Draw it between two values.
   *
   * @param {object} bar
   * @param {number} bar.low
   * @param {number} bar.high
   * @param {boolean} bar.isLog
   * @param {string} bar.map name of the colour map
   * @param {boolean} bar.reversed
   * @param {{ min: number | null, max: number | null }} bar.range extremes of what is shown
   * @param {string} bar.title
   * @param {number} bar.height
   * @param {(value: number) => string} [bar.formatTick]
   */
  draw({ low, high, isLog, map, reversed, range, title, height, formatTick }) {
    const inner = Math.max(80, height - 2 * TOP);
    const root = select(this.element)
      .attr("width", BAR_WIDTH)
      .attr("height", inner + 2 * TOP)
      .attr("viewBox", `0 0 ${BAR_WIDTH} ${inner + 2 * TOP}`);
    this.element.setAttribute("aria-label", `Colour bar from ${low} to ${high}, ${title}`);
    root.selectAll("*").remove();
    const body = root.append("g").attr("transform", `translate(18,${TOP})`);
    for (let step = 0; step < STEPS; step += 1) {
      body
        .append("rect")
        .attr("x", 0)
        .attr("width", BAR)
        .attr("y", inner - ((step + 1) * inner) / STEPS)
        .attr("height", inner / STEPS + 0.6)
        .attr("fill", cssColour(map, reversed, step / (STEPS - 1)));
    }
    if (range.max !== null && range.max > high)
      body
        .append("path")
        .attr("d", `M0,-2h${BAR}l-${BAR / 2},-10z`)
        .attr("fill", cssColour(map, reversed, 1));
    if (range.min !== null && range.min < low)
      body
        .append("path")
        .attr("d", `M0,${inner + 2}h${BAR}l-${BAR / 2},10z`)
        .attr("fill", cssColour(map, reversed, 0));
    const scale = (isLog && low > 0 ? scaleLog() : scaleLinear()).domain([low, high]).range([inner, 0]);
    /** @type {Axis<NumberValue>} */
    const axis = axisRight(scale)
      .ticks(Math.max(2, Math.floor(inner / 48)))
      .tickSizeOuter(0);
    const format = formatTick ?? tickFormat(low, high);
    // On a logarithmic scale d3 leaves out the texts of ticks that would overlap.
    if (!(isLog && low > 0)) axis.tickFormat((value) => format(Number(value)));
    body.append("g").attr("class", "axis").attr("transform", `translate(${BAR},0)`).call(axis);
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("transform", `translate(11,${TOP + inner / 2}) rotate(-90)`)
      .text(title);
  }
}
