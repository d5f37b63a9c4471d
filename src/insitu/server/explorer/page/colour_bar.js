// The colour bar beside a picture, with a real axis; arrow ends where values lie beyond the range, and what is missing.

import { axisBottom, axisRight, scaleLinear, scaleLog, select } from "./vendor/plotting.js";
import { svgElement } from "./element.js";
import { drawFlagLegend } from "./flag_colours.js";
import { formatNumber, tickFormat } from "./format.js";

/** @import { Axis } from "d3-axis" */
/** @import { NumberValue } from "d3-scale" */

const [BAR, TOP, SHADES, FOOT] = [16, 22, 128, 26];
const [TITLE, TICKS] = [20, 22]; // pixels above and below a bar that lies

/** Pixels that a colour bar takes beside a picture. */
export const BAR_WIDTH = 94;

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

/** Colour bar: it stands beside a picture, or lies below it. */
export class ColourBar {
  element = svgElement("svg", { class: "colour-bar", role: "img" });
  #drawnKey = "";

  /**
   * Draw it between two values.
   *
   * @param {object} bar
   * @param {number} bar.low
   * @param {number} bar.high
   * @param {boolean} bar.isLog
   * @param {(share: number) => string} bar.colourAt colour of a share from 0 to 1
   * @param {string} [bar.below] colours of values beyond the range; those of the ends if not given
   * @param {string} [bar.above]
   * @param {number[]} [bar.borders] those between steps, with both ends; none: colours without steps
   * @param {{ min: number | null, max: number | null }} bar.range extremes of what is shown
   * @param {string | null} [bar.missing] colour of missing values: null is hatched; undefined if none are missing
   * @param {string} bar.title
   * @param {number} bar.height of one that stands
   * @param {number} [bar.width] of one that lies
   * @param {(value: number) => string} [bar.formatTick]
   */
  draw({ low, high, isLog, colourAt, below, above, borders = [], range, missing, title, height, width, formatTick }) {
    const beyond = [range.min !== null && range.min < low, range.max !== null && range.max > high];
    const ends = [0, 0.3, 0.5, 1].map(colourAt);
    const key = JSON.stringify([low, high, isLog, ends, below, above, borders, beyond, missing ?? `${missing}`, title, height, width]);
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const lies = width !== undefined;
    const foot = missing === undefined ? 0 : FOOT;
    const inner = lies ? width - 2 * TOP : Math.max(80, height - 2 * TOP - foot);
    const size = lies ? [width, TITLE + BAR + TICKS + foot] : [BAR_WIDTH, inner + 2 * TOP + foot];
    const root = select(this.element)
      .attr("width", size[0])
      .attr("height", size[1])
      .attr("viewBox", `0 0 ${size.join(" ")}`);
    this.element.setAttribute("aria-label", `Colour bar from ${low} to ${high}, ${title}`);
    root.selectAll("*").remove();
    const body = root.append("g").attr("transform", lies ? `translate(${TOP},${TITLE})` : `translate(18,${TOP})`);
    const shades = borders.length > 1 ? borders.length - 1 : SHADES;
    const step = inner / shades;
    for (let shade = 0; shade < shades; shade += 1) {
      body
        .append("rect")
        .attr("x", lies ? shade * step : 0)
        .attr("width", lies ? step + 0.6 : BAR)
        .attr("y", lies ? 0 : inner - (shade + 1) * step)
        .attr("height", lies ? BAR : step + 0.6)
        .attr("fill", colourAt((shade + 0.5) / shades));
    }
    /** @type {(from: number, by: number, colour: string) => void} */
    const drawArrow = (from, by, colour) => {
      const path = lies ? `M${from},0v${BAR}l${by},-${BAR / 2}z` : `M0,${inner - from}h${BAR}l-${BAR / 2},${-by}z`;
      body.append("path").attr("class", "beyond").attr("d", path).attr("fill", colour);
    };
    if (beyond[1]) drawArrow(inner + 2, 10, above ?? colourAt(1));
    if (beyond[0]) drawArrow(-2, -10, below ?? colourAt(0));
    const scale = (isLog && low > 0 ? scaleLog() : scaleLinear()).domain([low, high]).range(lies ? [0, inner] : [inner, 0]);
    /** @type {Axis<NumberValue>} */
    const axis = (lies ? axisBottom(scale) : axisRight(scale))
      .ticks(Math.max(2, Math.floor(inner / (lies ? 64 : 48))))
      .tickSizeOuter(0);
    const format = formatTick ?? (borders.length ? stepFormat(borders) : tickFormat(low, high));
    // On a logarithmic scale d3 leaves out the texts of ticks that would overlap.
    if (borders.length || !(isLog && low > 0)) axis.tickFormat((value) => format(Number(value)));
    if (borders.length) {
      const every = Math.ceil((borders.length * (lies ? 44 : 18)) / inner);
      axis.tickValues(borders.filter((_, at) => at % every === 0));
    }
    body.append("g").attr("class", "axis").attr("transform", lies ? `translate(0,${BAR})` : `translate(${BAR},0)`).call(axis);
    if (missing !== undefined) this.#drawMissing(size[1] - (lies ? 20 : TOP + 4), missing);
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("transform", lies ? `translate(${width / 2},${TITLE - 6})` : `translate(11,${TOP + inner / 2}) rotate(-90)`)
      .text(title);
  }

  /**
   * Draw a legend of words in place of the bar.
   *
   * @param {import("./flag_colours.js").Legend} legend
   */
  drawWords(legend) {
    this.#drawnKey = "";
    drawFlagLegend(this.element, legend);
  }

  /**
   * Show below the bar what missing values look like.
   *
   * @param {number} top
   * @param {string | null} colour null: hatched
   */
  #drawMissing(top, colour) {
    const root = select(this.element);
    const box = root.append("rect").attr("x", 18).attr("y", top).attr("width", BAR).attr("height", 12);
    if (colour) box.attr("fill", colour);
    else {
      box.attr("class", "missing-box");
      for (const shift of [0, 6, 12])
        root
          .append("path")
          .attr("class", "missing-line")
          .attr("d", `M${18 + Math.max(0, shift - 12)},${top + Math.min(12, shift)}L${18 + Math.min(BAR, shift)},${top + Math.max(0, shift - BAR)}`);
    }
    root.append("text").attr("class", "axis-title").attr("x", 18 + BAR + 6).attr("y", top + 10).text("missing");
  }
}

/**
 * Return the format of the borders of steps: with the digits that tell them apart.
 *
 * @param {number[]} borders
 * @returns {(value: number) => string}
 */
function stepFormat(borders) {
  const step = Math.min(...borders.slice(1).map((border, at) => Math.abs(border - borders[at])));
  const size = Math.max(...borders.map(Math.abs));
  const digits = step > 0 ? Math.min(9, Math.max(3, Math.ceil(Math.log10(size / step)) + 2)) : 4;
  return (value) => formatNumber(Math.abs(value) < step * 1e-9 ? 0 : value, digits);
}
