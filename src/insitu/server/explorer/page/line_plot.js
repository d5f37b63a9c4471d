// Line plot of a variable along one dimension, drawn by uPlot.

import { uPlot } from "./vendor/plotting.js";
import { askArrays, Latest } from "./api.js";
import { element } from "./element.js";
import { UNPLACED, withPlaces } from "./line_places.js";
import { errorBox } from "./messages.js";
import { formatLabel, formatNumber, formatTime } from "./format.js";
import { positionAxis } from "./position_axis.js";
import { themeColour } from "./theme.js";

/** @import { AlignedData, Options, Series } from "uplot" */
/** @import { Variable } from "./archive.js" */
/** @import { BinaryAnswer, Numbers } from "./binary.js" */
/** @import { Side } from "./dimension_scale.js" */

const HEIGHT = 250;
const AT_ONCE = 64_000_000; // bytes of decoded chunks that a line may need to be shown whole at once

/** Card with a line plot. */
export class LinePlot {
  #latest = new Latest();
  /** @type {uPlot | null} */
  #plot = null;
  /** @type {string | null} */
  #shownKey = null;
  /** @type {(() => void) | null} */
  #drawAgain = null;

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {(dim: string) => void} ondim called when another dimension is chosen
   */
  constructor(url, variable, ondim) {
    this.url = url;
    this.variable = variable;
    this.ondim = ondim;
    this.title = element("h3", {}, "Line plot");
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Dimension of the line plot" });
    this.body = element("div", { class: "plot" });
    this.text = element("p", { class: "muted small-text", "aria-live": "polite" });
    this.element = element(
      "section",
      { class: "card line", "aria-label": "Line plot" },
      element("div", { class: "card-head" }, this.title, this.chips),
      this.body,
      this.text,
    );
    new ResizeObserver(() => this.#plot?.setSize({ width: this.#width(), height: HEIGHT })).observe(this.body);
  }

  /**
   * Show a line.
   *
   * @param {string} dim dimension along which it runs
   * @param {Record<string, number>} index a point that it runs through
   * @param {string} where describes the point
   */
  async show(dim, index, where) {
    this.#drawChips(dim);
    this.title.textContent = `Along ${dim}`;
    const others = Object.fromEntries(Object.entries(index).filter(([name]) => name !== dim));
    const parameters = {
      url: this.url,
      variable: this.variable.path,
      dim,
      index: others,
      points: Math.max(400, this.#width()),
    };
    const key = JSON.stringify(parameters);
    if (key === this.#shownKey) return;
    this.element.setAttribute("aria-busy", "true");
    try {
      const few = await this.#latest.run((signal) => askArrays("line", { ...parameters, most_bytes: AT_ONCE }, signal));
      if (!few) return;
      this.#shownKey = key;
      this.#showAnswer(few, dim, where);
      if (few.header.sampling.share < 1) {
        // Every n-th value is on the screen at once; the others follow.
        this.text.textContent = `Every ${Math.round(1 / few.header.sampling.share)}th value so far: the others are being read.`;
        const all = await this.#latest.run((signal) => askArrays("line", parameters, signal));
        if (!all) return;
        this.#showAnswer(all, dim, where);
      }
    } catch (problem) {
      this.#shownKey = null;
      this.#clear();
      this.body.replaceChildren(errorBox(problem, () => this.show(dim, index, where)));
    }
    this.element.setAttribute("aria-busy", "false");
  }

  /**
   * @param {BinaryAnswer} answer
   * @param {string} dim
   * @param {string} where
   */
  #showAnswer(answer, dim, where) {
    const placed = withPlaces(answer);
    this.#drawAgain = () => this.#draw(placed, dim, placed === answer ? where : `${where}. ${UNPLACED}`);
    this.#drawAgain();
  }

  /** Draw again in the colours of the theme. */
  recolour() {
    this.#drawAgain?.();
  }

  #width() {
    return Math.max(220, this.body.clientWidth);
  }

  /** @param {string} dim */
  #drawChips(dim) {
    this.chips.replaceChildren(
      ...this.variable.dims.map((name) =>
        element(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-pressed": String(name === dim),
            onclick: () => this.ondim(name),
          },
          name,
        ),
      ),
    );
  }

  /** @param {number} value */
  #formatValue(value) {
    return this.variable.kind === "time" ? formatTime(value) : formatLabel(value, "number", this.variable.units);
  }

  #clear() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /**
   * @param {BinaryAnswer} answer
   * @param {string} dim
   * @param {string} where
   */
  #draw(answer, dim, where) {
    this.#clear();
    const { header, arrays } = answer;
    /** @type {Side} */
    const side = header.position;
    const { divide, isTime, axis } = positionAxis(side);
    const position = Array.from(arrays.position, (value) => value / divide);
    // uPlot wants times in seconds, and positions that rise.
    const reversed = position.length > 1 && position[0] > position[position.length - 1];
    /** @param {Numbers} values */
    const column = (values) => {
      const list = Array.from(values, (value) => (Number.isFinite(value) ? value : null));
      return reversed ? list.reverse() : list;
    };
    if (reversed) position.reverse();
    const line = themeColour("accent");
    /** @type {(number | null)[][]} */
    const columns = [position, column(arrays.values)];
    /** @type {Series["value"]} */
    const valueText = (_, value, __, at) => (at === null ? "–" : value === null ? "missing" : this.#formatValue(value));
    /** @type {Series[]} */
    const series = [
      { label: dim, value: (_, value) => (value === null ? "–" : formatLabel(value * divide, side.kind, side.units, side.calendar)) },
      {
        label: this.variable.name,
        stroke: line,
        width: 1.6,
        spanGaps: false,
        points: { show: position.length < 60, size: 5 },
        value: valueText,
      },
    ];
    /** @type {Options["bands"]} */
    const bands = [];
    if (arrays.low && arrays.high) {
      columns.push(column(arrays.high), column(arrays.low));
      const edge = { stroke: "transparent", points: { show: false } };
      series.push({ ...edge, label: "highest", value: valueText }, { ...edge, label: "lowest", value: valueText });
      bands.push({ series: [2, 3], fill: `${line}33` });
    }
    const ink = themeColour("ink-soft");
    const grid = { stroke: themeColour("line"), width: 1 };
    const font = "12px system-ui, sans-serif";
    this.body.replaceChildren();
    this.#plot = new uPlot(
      {
        width: this.#width(),
        height: HEIGHT,
        series,
        bands,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { x: { time: isTime } },
        axes: [
          {
            stroke: ink,
            grid,
            ticks: grid,
            font,
            ...axis,
            labelFont: font,
            labelSize: 20,
          },
          {
            stroke: ink,
            grid,
            ticks: grid,
            font,
            size: 74,
            label: this.variable.units ? `${this.variable.name} (${this.variable.units})` : this.variable.name,
            labelFont: font,
            labelSize: 20,
            values: (_, ticks) =>
              ticks.map((tick) =>
                this.variable.kind === "time" ? formatTime(tick).slice(0, 10) : formatNumber(tick, 5),
              ),
          },
        ],
        cursor: { drag: { x: true, y: false } },
      },
      /** @type {AlignedData} */ (columns),
      this.body,
    );
    const thinned = arrays.low ? " Each point stands for several values; the band shows their extremes." : "";
    this.text.textContent = `${where}.${thinned} Draw over the plot to enlarge it, double-click for the whole.`;
  }
}
