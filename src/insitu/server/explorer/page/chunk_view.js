// The mosaic of chunks of a variable: drawn to scale, coloured by file, codec, packing, size or ratio; click for details.

import { askJson, Latest } from "./api.js";
import { changeState } from "./address.js";
import { chunkFacts, STATES } from "./chunk_facts.js";
import { paintChunks } from "./chunk_raster.js";
import { categoryColour, cssColour } from "./colour.js";
import { colourScale } from "./colour_bar.js";
import { IndexScale } from "./dimension_scale.js";
import { choice, element, labelled } from "./element.js";
import { formatBytes, formatCount, formatNumber, plural } from "./format.js";
import { errorBox } from "./messages.js";
import { PictureView } from "./picture_view.js";
import { chunkPlaneOf, isWhole } from "./plane.js";

/** @import { Box, State } from "./address.js" */
/** @import { Archive, Variable } from "./archive.js" */
/** @import { Numbers } from "./binary.js" */
/** @import { Chunk } from "./chunk_facts.js" */
/** @import { Range } from "./colour.js" */
/** @import { Cell } from "./picture.js" */
/** @import { Plane } from "./plane.js" */

/**
 * What the colours mean: a range of numbers, or categories such as files.
 *
 * @typedef {{ kind: "number" } & Range} NumberLegend
 * @typedef {{ kind: "category", entries: { number: number, name: string }[], left_out: number }} CategoryLegend
 */

/**
 * Header of the answer of `api/chunks`.
 *
 * @typedef {object} ChunkHeader
 * @property {"cells" | "raster"} form rectangles, or shares of pixels where there are too many
 * @property {[number, number]} shape rows and columns of a raster
 * @property {{ dim: string | null }} y
 * @property {{ dim: string | null }} x
 * @property {Box} box
 * @property {number} cells
 * @property {number} tiles
 * @property {number} share of the cells that were looked at
 * @property {Record<string, number>} counts cells by state
 * @property {string[]} states names of the numbers in the array `state`
 * @property {NumberLegend | CategoryLegend} legend
 * @property {string} text
 */

/** @typedef {{ header: ChunkHeader, arrays: Record<string, Numbers> }} ChunkAnswer */

/** @type {[string, string][]} */
const COLOURS = [
  ["file", "file"],
  ["codec", "codecs"],
  ["packing", "packing"],
  ["bytes", "compressed size"],
  ["ratio", "compression ratio"],
];
const KEYS = "Arrow keys move the cross-hair, Enter shows the chunk under it, plus zooms in, minus shows all.";

/**
 * Picture of chunks, legend and details of one.
 *
 * @extends {PictureView<ChunkAnswer, IndexScale, Plane>}
 */
export class ChunkView extends PictureView {
  #latestChunk = new Latest();
  /** @type {Chunk["cell"]} Elements that the chosen chunk shows. */
  #chosen = null;

  /**
   * @param {Archive} archive
   * @param {Variable} variable
   */
  constructor(archive, variable) {
    super(archive, variable, chunkPlaneOf(variable, {}), {
      route: "chunks",
      boxKey: "chunk_box",
      className: "chunk-view",
      label: `Chunks of ${variable.name}`,
      loadingText: `Loading the chunks of ${variable.name}`,
      keysText: KEYS,
    });
    this.picture.surface.classList.add("chunks");
    this.outline = element("div", { class: "outline", hidden: true });
    this.picture.surface.append(this.outline);
    this.colour = "file";
    this.colourChoice = choice("Colour by", COLOURS, this.colour, (colour) => changeState({ colour }));
    this.legend = element("section", { class: "card", "aria-label": "Legend" });
    this.details = element("section", { class: "card", "aria-label": "Chunk", "aria-live": "polite" });
    const hasSides = variable.dims.length >= 2;
    this.assemble(
      [
        hasSides ? labelled("Vertical", this.sideChoices.y) : null,
        hasSides ? labelled("Horizontal", this.sideChoices.x) : null,
        labelled("Colour by", this.colourChoice),
      ],
      [this.details, this.legend],
    );
  }

  get height() {
    return this.variable.dims.length < 2 ? 90 : Math.max(220, Math.min(560, innerHeight * 0.5));
  }

  /**
   * Show a state.
   *
   * @param {State} state
   */
  async update(state) {
    this.state = state;
    const plane = chunkPlaneOf(this.variable, state);
    this.showPlane(plane, false);
    [this.colour] = COLOURS.find(([name]) => name === state.colour) ?? COLOURS[0];
    this.colourChoice.value = this.colour;
    const parameters = {
      url: this.url,
      variable: this.variable.path,
      y: plane.y,
      x: plane.x,
      index: plane.index,
      box: isWhole(plane) ? null : plane.box,
      rows: Math.round(this.height),
      columns: Math.round(this.width),
      colour: this.colour,
    };
    if (this.isRequested(parameters) || (await this.load(parameters))) await this.#showChunk();
  }

  redraw() {
    if (!this.answer) return;
    const { header, arrays } = this.answer;
    const [y0, y1, x0, x1] = header.box;
    const y = new IndexScale(header.y.dim, y0, y1);
    const x = new IndexScale(header.x.dim, x0, x1);
    const limits = limitsOf(header.legend);
    const [low, high] = limits ?? [0, 1];
    const scale = colourScale(low, high, false);
    const ratio = y.count / x.count;
    this.drawPicture(y, x, {
      yDown: true,
      // Along very different lengths, cells drawn to one scale would be lines.
      equalAspect: ratio > 0.25 && ratio < 4 && header.y.dim !== null,
      render: (canvas) => paintChunks(canvas, { header, arrays }, y, x, scale),
    });
    this.bar.element.toggleAttribute("hidden", limits === null);
    if (header.legend.kind === "number" && limits)
      this.bar.draw({
        low,
        high,
        isLog: false,
        colourAt: (share) => cssColour("viridis", false, share),
        range: header.legend,
        title: this.colour === "bytes" ? "size of a chunk" : "compression ratio",
        height: this.barHeight,
        width: this.isNarrow ? this.barWidth : undefined,
        formatTick: this.colour === "bytes" ? formatBytes : undefined,
      });
    this.#drawTexts(header);
    this.#drawLegend(header);
    this.picture.point(null);
    this.#showOutline();
  }

  /** @param {ChunkHeader} header */
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
  }

  /** @param {ChunkHeader} header */
  #drawLegend({ legend, counts }) {
    const states = [
      ["unwritten", "never written (fill value)"],
      ["absent", "no file covers it"],
    ]
      .filter(([state]) => counts[state] > 0)
      .map(([state, text]) => element("li", {}, element("span", { class: `swatch ${state}` }), text));
    if (legend.kind === "number") {
      const items = states.length ? states : element("li", { class: "muted" }, "Colours as in the bar.");
      this.legend.replaceChildren(element("h3", {}, "Legend"), element("ul", { class: "legend" }, items));
      return;
    }
    const entries = legend.entries.map(({ number, name }) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = categoryColour(number);
      return element("li", {}, swatch, element("span", { class: "break" }, name));
    });
    const more = legend.left_out ? element("li", { class: "muted" }, `and ${formatCount(legend.left_out)} more`) : null;
    const label = COLOURS.find(([name]) => name === this.colour)?.[1] ?? this.colour;
    this.legend.replaceChildren(
      element("h3", {}, `By ${label}`),
      element("ul", { class: "legend" }, entries, more, states),
    );
  }

  /** @param {Cell | null} picked */
  pick(picked) {
    if (!this.scales || !picked) return;
    const cell = { ...this.plane.index };
    if (this.plane.y) cell[this.plane.y] = this.scales.y.indexOfCell(picked.row);
    if (this.plane.x) cell[this.plane.x] = this.scales.x.indexOfCell(picked.column);
    changeState({ cell });
  }

  /**
   * Show what is known of a cell.
   *
   * @param {Cell | null} cell
   * @param {boolean} isSpoken
   */
  hover(cell, isSpoken) {
    this.picture.point(cell);
    if (!cell || !this.answer || !this.scales) return;
    const [row, column] = [this.scales.y.indexOfCell(cell.row), this.scales.x.indexOfCell(cell.column)];
    const { y, x } = this.plane;
    const place = [y && `${y} ${row}`, x && `${x} ${column}`].filter(Boolean).join(", ");
    const what = this.#describe(this.answer, row, column);
    this.readout.replaceChildren(element("strong", { class: "value" }, what), element("span", {}, place));
    if (isSpoken) this.spoken.textContent = `${what} at ${place}`;
  }

  /**
   * Return what lies at an element; nothing where pixels show shares of many cells.
   *
   * @param {ChunkAnswer} answer
   * @param {number} row
   * @param {number} column
   */
  #describe({ header, arrays }, row, column) {
    if (header.form !== "cells") return "";
    const { legend, states } = header;
    // Cells of several tiles follow no order that could be searched; there are no more than a picture has room for.
    const at = arrays.x0.findIndex(
      (left, cell) => column >= left && column < arrays.x1[cell] && row >= arrays.y0[cell] && row < arrays.y1[cell],
    );
    if (at < 0) return STATES.absent;
    const state = states[arrays.state[at]];
    if (state === "unwritten" || state === "absent") return STATES[state];
    if (legend.kind === "number")
      return this.colour === "bytes" ? formatBytes(arrays.value[at]) : formatNumber(arrays.value[at], 3);
    return legend.entries.find(({ number }) => number === arrays.category[at])?.name ?? STATES[state];
  }

  /**
   * @param {string} y
   * @param {string} x
   */
  setSides(y, x) {
    changeState({ chunk_box: null, chunk_y: y, chunk_x: x });
  }

  /** Ask for the chunk at the chosen point. */
  async #showChunk() {
    const index = this.state.cell;
    if (!index) {
      this.#chosen = null;
      this.#showOutline();
      this.details.replaceChildren(
        element("h3", {}, "Chunk"),
        element("p", { class: "muted" }, "Click a cell to see its file, offset, length, codecs and packing."),
      );
      return;
    }
    try {
      /** @type {Chunk | undefined} */
      const chunk = await this.#latestChunk.run((signal) =>
        askJson("chunk", { url: this.url, variable: this.variable.path, index }, signal),
      );
      if (!chunk) return;
      this.#chosen = chunk.cell;
      this.#showOutline();
      this.details.replaceChildren(element("h3", {}, "Chunk"), element("p", {}, chunk.text), chunkFacts(chunk));
    } catch (problem) {
      this.details.replaceChildren(errorBox(problem, () => this.#showChunk()));
    }
  }

  /** Draw a frame around the chosen chunk; none if it lies at other positions of the sliders. */
  #showOutline() {
    this.outline.hidden = true;
    const [chosen, scales] = [this.#chosen, this.scales];
    if (!chosen || !scales) return;
    const { index, rest } = this.plane;
    /** @type {(dim: string | null) => [number, number]} */
    const rangeAlong = (dim) => (dim === null ? [0, 1] : chosen[dim]);
    const [y, x] = [rangeAlong(this.plane.y), rangeAlong(this.plane.x)];
    const isElsewhere = rest.some((dim) => index[dim] < chosen[dim][0] || index[dim] >= chosen[dim][1]);
    if (isElsewhere) return;
    this.outline.hidden = false;
    /** @type {(value: number, scale: IndexScale) => number} */
    const clip = (value, scale) => scale.scale(Math.max(scale.first, Math.min(scale.end, value)));
    const [top, bottom] = y.map((at) => clip(at, scales.y)).sort((one, other) => one - other);
    const [left, right] = x.map((at) => clip(at, scales.x));
    Object.assign(this.outline.style, {
      left: `${left}px`,
      top: `${top}px`,
      width: `${Math.max(3, right - left)}px`,
      height: `${Math.max(3, bottom - top)}px`,
    });
  }

  /** Stop what is under way. */
  close() {
    super.close();
    this.#latestChunk.stop();
  }
}

/**
 * Return the range of the colours: that of the bulk of the numbers, if they differ; null for categories, and where there
 * are no numbers.
 *
 * @param {ChunkHeader["legend"]} legend
 * @returns {[number, number] | null}
 */
function limitsOf(legend) {
  if (legend.kind === "category") return null;
  const { min, max, low, high } = legend;
  if (min === null || max === null || low === null || high === null) return null;
  if (low < high) return [low, high];
  return min < max ? [min, max] : [low - 0.5, high + 0.5];
}
