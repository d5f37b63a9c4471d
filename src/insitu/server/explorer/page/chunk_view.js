// The mosaic of chunks of a variable: drawn to scale, coloured by file, codec, packing, size or ratio; click for details.

import { askArrays, askJson, Latest } from "./api.js";
import { changeState } from "./address.js";
import { paintChunks } from "./chunk_raster.js";
import { categoryColour } from "./colour.js";
import { BAR_WIDTH, ColourBar, colourScale } from "./colour_bar.js";
import { IndexScale } from "./dimension_scale.js";
import { choice, element, setOptions } from "./element.js";
import { viewOf } from "./field_view.js";
import { formatBytes, formatCount, formatNumber, plural } from "./format.js";
import { errorBox, LoadingBar } from "./messages.js";
import { Picture } from "./picture.js";
import { Sliders } from "./sliders.js";

const COLOURS = [
  ["file", "file"],
  ["codec", "codecs"],
  ["packing", "packing"],
  ["bytes", "compressed size"],
  ["ratio", "compression ratio"],
];
const STATES = {
  stored: "stored",
  inline: "in the table",
  unwritten: "never written",
  absent: "no file",
  computed: "by name",
};

/** Return what is seen of the chunks: as a picture of values, but any number of dimensions will do. The sides and the box
 * are others than those of the values: files often follow each other along a dimension that pictures do not show. */
function chunkViewOf(variable, state) {
  const { dims, shape } = variable;
  const box = state.chunk_box;
  if (dims.length >= 2) {
    const [y, x] = dims.length === 2 ? dims : [dims.find((dim, at) => at > 0 && shape[at] > 1) ?? dims[1], dims[0]];
    return viewOf(variable, { y: state.chunk_y ?? y, x: state.chunk_x ?? x, index: state.index, box });
  }
  const count = shape[0] ?? 1;
  const fits = box && box[2] >= 0 && box[3] <= count && box[2] < box[3];
  const whole = [0, 1, 0, count];
  return {
    variable,
    y: null,
    x: dims[0] ?? null,
    rest: [],
    over: [],
    index: {},
    box: fits ? [0, 1, box[2], box[3]] : whole,
    whole,
    size: () => count,
  };
}

/** Picture of chunks, legend and details of one. */
export class ChunkView {
  #latest = new Latest();
  #latestChunk = new Latest();
  #asked = null;
  #data = null;
  #state = {};

  constructor(archive, variable) {
    Object.assign(this, { archive, variable, url: archive.url });
    this.picture = new Picture(`Chunks of ${variable.name}`, {
      zoom: ({ rows, columns }) =>
        changeState({ chunk_box: [...this.y.rangeOfCells(...rows), ...this.x.rangeOfCells(...columns)] }),
      pick: (cell) => this.#pick(cell),
      hover: (cell, spoken) => this.#hover(cell, spoken),
      reset: () => changeState({ chunk_box: null }),
      step: (by) => this.sliders.step(by),
    });
    this.picture.surface.classList.add("chunks");
    this.outline = element("div", { class: "outline", hidden: true });
    this.picture.surface.append(this.outline);
    this.bar = new ColourBar();
    this.sliders = new Sliders(this.url, variable, {
      onmove: (index) => changeState({ index: { ...this.#state.index, ...index } }, { replace: true }),
    });
    this.y = this.x = null;
    this.#build();
    this.resize = new ResizeObserver(() => this.#data && this.stage.clientWidth !== this.drawnWidth && this.#redraw());
    this.resize.observe(this.stage);
  }

  #build() {
    this.controls = {
      y: choice("Vertical axis", [], "", (dim) => this.#setSide("y", dim)),
      x: choice("Horizontal axis", [], "", (dim) => this.#setSide("x", dim)),
      colour: choice("Colour by", COLOURS, "file", (colour) => changeState({ colour })),
    };
    const named = (text, control) =>
      element("div", { class: "control" }, element("span", { class: "muted" }, text), control);
    this.whole = element("button", { type: "button", onclick: () => changeState({ chunk_box: null }) }, "Show all");
    const hasSides = this.variable.dims.length >= 2;
    this.toolbar = element(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is shown, and how" },
      hasSides ? named("Vertical", this.controls.y) : null,
      hasSides ? named("Horizontal", this.controls.x) : null,
      named("Colour by", this.controls.colour),
      this.whole,
    );
    this.loading = new LoadingBar();
    this.problem = element("div", {});
    this.stage = element("div", { class: "stage" }, this.picture.element, this.bar.element);
    this.readout = element("div", { class: "readout", "aria-live": "off" });
    this.spoken = element("div", { class: "visually-hidden", "aria-live": "polite" });
    this.caption = element("p", { class: "caption muted small-text" });
    this.legend = element("section", { class: "card", "aria-label": "Legend" });
    this.details = element("section", { class: "card", "aria-label": "Chunk", "aria-live": "polite" });
    this.element = element(
      "div",
      { class: "chunk-view" },
      this.toolbar,
      this.sliders.element,
      this.loading.element,
      this.problem,
      this.stage,
      this.readout,
      this.spoken,
      this.caption,
      element(
        "p",
        { id: "picture-keys", class: "visually-hidden" },
        "Arrow keys move the cross-hair, Enter shows the chunk under it, plus zooms in, minus shows all.",
      ),
      element("div", { class: "cards" }, this.details, this.legend),
    );
  }

  /** Show a state. */
  async update(state) {
    this.#state = state;
    const view = (this.view = chunkViewOf(this.variable, state));
    if (view.y) {
      const options = this.variable.dims.map((dim) => [dim, dim]);
      setOptions(this.controls.y, options, view.y);
      setOptions(this.controls.x, options, view.x);
    }
    this.colour = COLOURS.some(([name]) => name === state.colour) ? state.colour : "file";
    this.controls.colour.value = this.colour;
    const isWhole = view.box.every((at, side) => at === view.whole[side]);
    this.whole.disabled = isWhole;
    this.sliders.show(
      view.rest.map((dim) => ({ dim, size: view.size(dim) })),
      view.index,
      "",
      [],
      false,
    );
    const parameters = {
      url: this.url,
      variable: this.variable.path,
      y: view.y,
      x: view.x,
      index: view.index,
      box: isWhole ? null : view.box,
      rows: Math.round(this.#height()),
      columns: Math.round(this.#width()),
      colour: this.colour,
    };
    const key = JSON.stringify(parameters);
    if (key !== this.#asked || !this.#data) {
      this.#asked = key;
      if (!(await this.#load(parameters))) return;
    }
    this.#showChunk();
  }

  async #load(parameters) {
    this.loading.show(`Loading the chunks of ${this.variable.name}`);
    this.element.setAttribute("aria-busy", "true");
    let answer;
    try {
      answer = await this.#latest.run((signal) => askArrays("chunks", parameters, signal));
      if (!answer) return false;
      this.#data = answer;
      this.problem.replaceChildren();
      this.stage.hidden = false;
      this.#redraw();
      this.sliders.pictureShown();
    } catch (problem) {
      this.#asked = null;
      this.stage.hidden = !this.#data;
      this.problem.replaceChildren(errorBox(problem, () => this.update(this.#state)));
    }
    this.loading.hide();
    this.element.setAttribute("aria-busy", "false");
    return Boolean(answer);
  }

  #width() {
    return Math.max(200, (this.stage.clientWidth || innerWidth) - BAR_WIDTH - 8);
  }

  #height() {
    return this.variable.dims.length < 2 ? 90 : Math.max(220, Math.min(560, innerHeight * 0.5));
  }

  #redraw() {
    const { header } = this.#data;
    const [y0, y1, x0, x1] = header.box;
    this.y = new IndexScale(header.y.dim, y0, y1);
    this.x = new IndexScale(header.x.dim, x0, x1);
    this.drawnWidth = this.stage.clientWidth;
    const ratio = (y1 - y0) / (x1 - x0);
    const isNumber = header.legend.kind === "number" && header.legend.min !== null;
    const [low, high] = isNumber ? limitsOf(header.legend) : [0, 1];
    const scale = colourScale(low, high, false);
    this.picture.draw({
      y: this.y,
      x: this.x,
      yDown: true,
      equalAspect: ratio > 0.25 && ratio < 4 && header.y.dim !== null,
      width: this.#width(),
      maximumHeight: this.#height(),
      render: (canvas) => paintChunks(canvas, this.#data, this.y, this.x, scale),
    });
    this.bar.element.toggleAttribute("hidden", !isNumber);
    if (isNumber) {
      const title = this.colour === "bytes" ? "size of a chunk" : "compression ratio";
      this.bar.draw({
        low,
        high,
        isLog: false,
        map: "viridis",
        reversed: false,
        range: header.legend,
        title,
        height: this.picture.size.height + 30,
        formatTick: this.colour === "bytes" ? formatBytes : undefined,
      });
    }
    this.#drawTexts(header);
    this.picture.point(null);
    this.#showOutline();
  }

  #drawTexts(header) {
    const counts = Object.entries(header.counts)
      .filter(([, count]) => count > 0)
      .map(([state, count]) => `${formatCount(count)} ${STATES[state] ?? state}`);
    const form =
      header.form === "raster"
        ? " Too many to draw one by one: each pixel shows the shares of its cells. Zoom in for single ones."
        : "";
    const share = header.share < 1 ? ` ${formatNumber(100 * header.share, 2)} % of the cells were looked at.` : "";
    this.caption.textContent = `${plural(header.cells, "cell")} in ${plural(header.tiles, "grid")}: ${counts.join(", ")}.${form}${share} Click a cell for its bytes, draw a box to zoom in.`;
    this.picture.surface.setAttribute("aria-label", header.text);
    this.readout.replaceChildren(element("span", {}, "Move over the picture to read cells."));
    const states = [
      ["unwritten", "never written (fill value)"],
      ["absent", "no file covers it"],
    ]
      .filter(([state]) => header.counts[state] > 0)
      .map(([state, text]) => element("li", {}, element("span", { class: `swatch ${state}` }), text));
    if (header.legend.kind === "category") {
      const entries = header.legend.entries.map(({ number, name, cells }) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = categoryColour(number);
        return element(
          "li",
          {},
          swatch,
          element("span", { class: "break" }, name),
          element("span", { class: "muted" }, cells === undefined ? "" : plural(cells, "cell")),
        );
      });
      const more = header.legend.left_out
        ? element("li", { class: "muted" }, `and ${formatCount(header.legend.left_out)} more`)
        : null;
      this.legend.replaceChildren(
        element("h3", {}, `By ${COLOURS.find(([name]) => name === this.colour)[1]}`),
        element("ul", { class: "legend" }, entries, more, states),
      );
    } else {
      this.legend.replaceChildren(
        element("h3", {}, "Legend"),
        element(
          "ul",
          { class: "legend" },
          states.length ? states : element("li", { class: "muted" }, "Colours as in the bar."),
        ),
      );
    }
  }

  #pick({ row, column }) {
    const cell = { ...this.view.index };
    if (this.view.y) cell[this.view.y] = this.y.indexOfCell(row);
    if (this.view.x) cell[this.view.x] = this.x.indexOfCell(column);
    changeState({ cell });
  }

  #hover(cell, spoken) {
    this.picture.point(cell);
    if (!cell) return;
    const [row, column] = [this.y.indexOfCell(cell.row), this.x.indexOfCell(cell.column)];
    const text = [this.view.y && `${this.view.y} ${row}`, this.view.x && `${this.view.x} ${column}`]
      .filter(Boolean)
      .join(", ");
    const what = this.#describe(row, column);
    this.readout.replaceChildren(element("strong", { class: "value" }, what), element("span", {}, text));
    if (spoken) this.spoken.textContent = `${what} at ${text}`;
  }

  #describe(row, column) {
    const { header, arrays } = this.#data;
    if (header.form !== "cells") return "";
    for (let at = 0; at < arrays.x0.length; at += 1) {
      if (row < arrays.y0[at] || row >= arrays.y1[at] || column < arrays.x0[at] || column >= arrays.x1[at]) continue;
      const state = header.states[arrays.state[at]];
      if (state === "unwritten" || state === "absent") return STATES[state];
      if (arrays.value)
        return this.colour === "bytes" ? formatBytes(arrays.value[at]) : formatNumber(arrays.value[at], 3);
      return header.legend.entries.find(({ number }) => number === arrays.category[at])?.name ?? STATES[state];
    }
    return STATES.absent;
  }

  #setSide(side, dim) {
    const other = side === "y" ? "x" : "y";
    changeState({
      chunk_box: null,
      [`chunk_${side}`]: dim,
      [`chunk_${other}`]: this.view[other] === dim ? this.view[side] : this.view[other],
    });
  }

  /** Ask for the chunk at the chosen point. */
  async #showChunk() {
    const index = this.#state.cell;
    if (!index) {
      this.cell = null;
      this.#showOutline();
      this.details.replaceChildren(
        element("h3", {}, "Chunk"),
        element("p", { class: "muted" }, "Click a cell to see its file, offset, length, codecs and packing."),
      );
      return;
    }
    try {
      const answer = await this.#latestChunk.run((signal) =>
        askJson("chunk", { url: this.url, variable: this.variable.path, index }, signal),
      );
      if (!answer) return;
      this.cell = answer.cell;
      this.#showOutline();
      this.details.replaceChildren(element("h3", {}, "Chunk"), element("p", {}, answer.text), chunkFacts(answer));
    } catch (problem) {
      this.details.replaceChildren(errorBox(problem, () => this.#showChunk()));
    }
  }

  #showOutline() {
    const side = (dim) => (dim ? this.cell?.[dim] : [0, 1]);
    const [y, x] = [side(this.view.y), side(this.view.x)];
    const isElsewhere = this.view.rest.some(
      (dim) =>
        this.cell?.[dim] && (this.view.index[dim] < this.cell[dim][0] || this.view.index[dim] >= this.cell[dim][1]),
    );
    this.outline.hidden = !this.cell || !y || !x || !this.y || isElsewhere;
    if (this.outline.hidden) return;
    const clip = (value, scale) => scale.scale(Math.max(scale.first, Math.min(scale.end, value)));
    const [top, bottom] = y.map((at) => clip(at, this.y)).sort((one, other) => one - other);
    const [left, right] = x.map((at) => clip(at, this.x));
    Object.assign(this.outline.style, {
      left: `${left}px`,
      top: `${top}px`,
      width: `${Math.max(3, right - left)}px`,
      height: `${Math.max(3, bottom - top)}px`,
    });
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    if (this.#data) this.#redraw();
  }

  /** Ask again. */
  reload() {
    this.#asked = null;
    return this.update(this.#state);
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
    this.#latestChunk.stop();
    this.sliders.stop();
    this.resize.disconnect();
  }
}

function limitsOf({ min, max, low, high }) {
  const [begin, end] = [low ?? min, high ?? max];
  return begin < end ? [begin, end] : min < max ? [min, max] : [begin - 0.5, begin + 0.5];
}

function chunkFacts(chunk) {
  const range = (pair) => `${pair[0]} to ${pair[1] - 1}`;
  const codecs = (chunk.codecs ?? []).map(
    ({ name, configuration, skipped }) =>
      `${name}${Object.keys(configuration ?? {}).length ? ` ${JSON.stringify(configuration)}` : ""}${skipped ? " (skipped by the filter mask)" : ""}`,
  );
  const rows = [
    ["State", STATES[chunk.state] ?? chunk.state],
    ["File", chunk.file],
    ["Offset", chunk.offset === null || chunk.offset === undefined ? null : formatCount(chunk.offset)],
    ["Length", chunk.length === null || chunk.length === undefined ? null : `${formatCount(chunk.length)} bytes`],
    ["Range", chunk.range],
    ["Stored as", chunk.dtype],
    ["Codecs", codecs.join(" → ") || null],
    ["Filter mask", chunk.filter_mask ? String(chunk.filter_mask) : chunk.state === "stored" ? "0" : null],
    ["Packing", chunk.packing?.text],
    ["Fill value", chunk.fill],
    ["Chunk shape", chunk.chunk_shape?.join(" × ")],
    [
      "Decoded",
      chunk.decoded_bytes
        ? `${formatBytes(chunk.decoded_bytes)}${chunk.ratio ? `, ratio ${formatNumber(chunk.ratio, 3)}` : ""}`
        : null,
    ],
    [
      "Shows",
      chunk.cell
        ? Object.entries(chunk.cell)
            .map(([dim, pair]) => `${dim} ${range(pair)}`)
            .join(", ")
        : null,
    ],
    [
      "Grid",
      chunk.tile === undefined || chunk.tile === null ? null : `${chunk.tile}, cell ${(chunk.grid ?? []).join(", ")}`,
    ],
  ];
  return element(
    "dl",
    { class: "facts" },
    rows
      .filter(([, text]) => text !== null && text !== undefined && text !== "")
      .map(([name, text]) => [element("dt", {}, name), element("dd", { class: "break", "data-fact": name }, text)]),
  );
}
