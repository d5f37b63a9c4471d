// Line plot of a variable along one dimension, drawn by uPlot.

import { uPlot } from "./vendor/plotting.js";
import { askArrays, Latest } from "./api.js";
import { element } from "./element.js";
import { errorBox } from "./messages.js";
import { formatLabel, formatNumber, formatTime, joinUnits } from "./format.js";
import { themeColour } from "./theme.js";

const HEIGHT = 250;

/** Card with a line plot; `ondim(dim)` is called when another dimension is chosen. */
export class LinePlot {
  #latest = new Latest();
  #plot = null;
  #shown = null;

  constructor(url, variable, ondim) {
    Object.assign(this, { url, variable, ondim });
    this.title = element("h3", {}, "Line plot");
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Dimension of the line plot" });
    this.body = element("div", { class: "plot" });
    this.text = element("p", { class: "muted small-text", "aria-live": "polite" });
    this.element = element(
      "section",
      { class: "card wide", "aria-label": "Line plot" },
      element("div", { class: "card-head" }, this.title, this.chips),
      this.body,
      this.text,
    );
    new ResizeObserver(() => this.#plot?.setSize({ width: this.#width(), height: HEIGHT })).observe(this.body);
  }

  /** Show the line along `dim` through `index` (all dimensions); `where` describes the point. */
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
    if (key === this.#shown) return;
    this.element.setAttribute("aria-busy", "true");
    try {
      const answer = await this.#latest.run((signal) => askArrays("line", parameters, signal));
      if (!answer) return;
      this.#shown = key;
      this.#draw(answer, dim, where, index[dim]);
    } catch (problem) {
      this.#shown = null;
      this.#clear();
      this.body.replaceChildren(errorBox(problem, () => this.show(dim, index, where)));
    }
    this.element.setAttribute("aria-busy", "false");
  }

  /** Draw again in the colours of the theme. */
  recolour() {
    if (this.#last) this.#draw(...this.#last);
  }

  #last = null;

  #width() {
    return Math.max(220, this.body.clientWidth);
  }

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

  #formatValue(value) {
    return this.variable.kind === "time" ? formatTime(value) : joinUnits(formatNumber(value), this.variable.units);
  }

  #clear() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  #draw(answer, dim, where, at) {
    this.#last = [answer, dim, where, at];
    this.#clear();
    const { header, arrays } = answer;
    const side = header.position ?? header.x ?? {};
    const isTime = side.kind === "time";
    const divide = isTime ? 1000 : 1;
    const position = Array.from(arrays.position, (value) => value / divide);
    const reversed = position.length > 1 && position[0] > position[position.length - 1];
    const column = (values) => {
      const list = Array.from(values, (value) => (Number.isFinite(value) ? value : null));
      return reversed ? list.reverse() : list;
    };
    if (reversed) position.reverse();
    const line = themeColour("accent");
    const data = [position, column(arrays.values)];
    const series = [
      { label: dim, value: (_, value) => (value === null ? "–" : formatLabel(value * divide, side.kind, side.units)) },
      {
        label: this.variable.name,
        stroke: line,
        width: 1.6,
        spanGaps: false,
        points: { show: position.length < 60, size: 5 },
        value: (_, value, __, at) => (at === null ? "–" : value === null ? "missing" : this.#formatValue(value)),
      },
    ];
    const bands = [];
    if (arrays.low && arrays.high) {
      data.push(column(arrays.high), column(arrays.low));
      const edge = { stroke: "transparent", points: { show: false } };
      series.push(
        { ...edge, label: "highest", value: series[1].value },
        { ...edge, label: "lowest", value: series[1].value },
      );
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
            label: isTime || !side.units ? dim : `${dim} (${side.units})`,
            labelFont: font,
            labelSize: 20,
          },
          {
            stroke: ink,
            grid,
            ticks: grid,
            font,
            size: 74,
            label: this.variable.units || this.variable.name,
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
      data,
      this.body,
    );
    const thinned = arrays.low
      ? ` ${header.text_sampling ?? "Each point stands for several values; the band shows their extremes."}`
      : "";
    this.text.textContent = `${where}.${thinned} Draw over the plot to enlarge it, double-click for the whole.`;
  }
}
