// A canvas with axes, cross-hair and a box for zooming; what is painted on it comes from the caller.

import { axisBottom, axisLeft, select } from "./vendor/plotting.js";
import { element, svgElement } from "./element.js";

/** @import { CellScale } from "./dimension_scale.js" */

/**
 * A cell of a picture. Columns and rows count what is drawn, not elements of the variable.
 *
 * @typedef {{ row: number, column: number }} Cell
 */

/**
 * What is called when a user does something.
 *
 * @typedef {object} Actions
 * @property {(cells: { rows: [number, number], columns: [number, number] }) => void} zoom to these cells, inclusive
 * @property {(cell: Cell) => void} pick
 * @property {(cell: Cell | null, isSpoken: boolean) => void} hover null: the pointer has left; spoken: moved by keys
 * @property {() => void} reset
 * @property {(by: number) => void} step
 */

/** @typedef {[number, number]} Point left and top in pixels */

/**
 * Where the field lies, once it is drawn.
 *
 * @typedef {{ y: CellScale, x: CellScale, left: number, width: number, height: number }} Layout
 */

const MARGIN = { top: 10, right: 16, bottom: 46 };
const LETTER = 7; // pixels that a digit of a tick label takes

/** @type {Record<string, [number, number] | undefined>} Rows and columns that a key moves the cross-hair. */
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** Canvas, axes, cross-hair and zoom box of one field. */
export class Picture {
  /** @type {Layout | null} */
  #layout = null;
  /** @type {Cell | null} */
  #cursor = null;

  /**
   * @param {string} label
   * @param {Actions} actions
   */
  constructor(label, actions) {
    this.actions = actions;
    this.canvas = element("canvas", { class: "raster", "aria-hidden": "true" });
    this.axes = svgElement("svg", { class: "axes", "aria-hidden": "true" });
    this.overlay = svgElement("svg", { class: "overlay", "aria-hidden": "true" });
    this.marker = element("div", { class: "marker", hidden: true });
    this.crosshair = element("div", { class: "crosshair", hidden: true });
    this.box = element("div", { class: "zoom-box", hidden: true });
    this.surface = element(
      "div",
      {
        class: "surface",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "picture",
        "aria-label": label,
        "aria-describedby": "picture-keys",
      },
      this.canvas,
      this.overlay,
      this.marker,
      this.crosshair,
      this.box,
    );
    this.element = element("div", { class: "picture" }, this.axes, this.surface);
    this.#listen();
  }

  /** Width and height of the field in pixels. */
  get size() {
    return { width: this.#layout?.width ?? 0, height: this.#layout?.height ?? 0 };
  }

  /**
   * Draw between two scales.
   *
   * @param {object} options
   * @param {CellScale} options.y
   * @param {CellScale} options.x
   * @param {boolean} options.yDown whether rows run downwards
   * @param {boolean} options.equalAspect whether both sides have one scale
   * @param {number} options.width pixels that there are, with the axes
   * @param {number} options.maximumHeight
   * @param {(canvas: HTMLCanvasElement) => void} options.render paints a canvas of the right size
   */
  draw({ y, x, yDown, equalAspect, render, width, maximumHeight }) {
    const layout = this.#place(y, x, equalAspect, width, maximumHeight);
    this.#layout = layout;
    x.place(0, layout.width);
    if (yDown) y.place(0, layout.height);
    else y.place(layout.height, 0);
    // Screens of a higher density are painted at twice the pixels at most: more cost time and are not seen.
    const density = Math.min(2, devicePixelRatio || 1);
    Object.assign(this.canvas, {
      width: Math.max(1, Math.round(layout.width * density)),
      height: Math.max(1, Math.round(layout.height * density)),
    });
    render(this.canvas);
    this.#drawAxes(layout);
  }

  /**
   * Set the size of the elements.
   *
   * @param {CellScale} y
   * @param {CellScale} x
   * @param {boolean} equalAspect
   * @param {number} width
   * @param {number} maximumHeight
   * @returns {Layout}
   */
  #place(y, x, equalAspect, width, maximumHeight) {
    const left = 36 + LETTER * Math.max(3, y.labelLength);
    const wide = Math.max(120, width - left - MARGIN.right);
    let [innerWidth, innerHeight] = [wide, maximumHeight];
    if (equalAspect) {
      const ratio = y.extent / x.extent;
      innerHeight = wide * ratio;
      if (innerHeight > maximumHeight) [innerWidth, innerHeight] = [maximumHeight / ratio, maximumHeight];
      // Very long strips are stretched rather than drawn as a line.
      innerHeight = Math.max(innerHeight, Math.min(maximumHeight, 140));
      innerWidth = Math.max(innerWidth, Math.min(wide, 220));
    }
    const layout = { y, x, left, width: Math.round(innerWidth), height: Math.round(innerHeight) };
    Object.assign(this.surface.style, {
      left: `${left}px`,
      top: `${MARGIN.top}px`,
      width: `${layout.width}px`,
      height: `${layout.height}px`,
    });
    this.element.style.height = `${layout.height + MARGIN.top + MARGIN.bottom}px`;
    this.element.style.width = `${layout.width + left + MARGIN.right}px`;
    return layout;
  }

  /** @param {Layout} layout */
  #drawAxes({ y, x, left, ...inner }) {
    const [width, height] = [inner.width + left + MARGIN.right, inner.height + MARGIN.top + MARGIN.bottom];
    const root = select(this.axes)
      .attr("viewBox", `0 0 ${width} ${height}`)
      .attr("width", width)
      .attr("height", height);
    root.selectAll("*").remove();
    root
      .append("rect")
      .attr("class", "frame")
      .attr("x", left - 0.5)
      .attr("y", MARGIN.top - 0.5)
      .attr("width", inner.width + 1)
      .attr("height", inner.height + 1);
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(${left},${MARGIN.top + inner.height})`)
      .call(x.decorate(axisBottom(x.scale), 80));
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(${left},${MARGIN.top})`)
      .call(y.decorate(axisLeft(y.scale), 46));
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("x", left + inner.width / 2)
      .attr("y", height - 6)
      .text(x.title);
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("transform", `translate(13,${MARGIN.top + inner.height / 2}) rotate(-90)`)
      .text(y.title);
  }

  /**
   * @param {Layout} layout
   * @param {Point} point
   * @returns {Cell}
   */
  #cellAt({ y, x, width, height }, [left, top]) {
    /** @type {(value: number, size: number) => number} */
    const inside = (value, size) => Math.min(size - 1e-6, Math.max(0, value));
    return { row: y.cellAt(inside(top, height)), column: x.cellAt(inside(left, width)) };
  }

  /**
   * Show the mark of the chosen point; null hides it.
   *
   * @param {Cell | null} cell
   */
  mark(cell) {
    this.#move(this.marker, cell);
  }

  /**
   * Show the cross-hair at a cell; null hides it.
   *
   * @param {Cell | null} cell
   */
  point(cell) {
    this.#cursor = cell;
    this.#move(this.crosshair, cell);
  }

  /**
   * @param {HTMLElement} mark
   * @param {Cell | null} cell
   */
  #move(mark, cell) {
    mark.hidden = true;
    if (!cell || cell.row < 0 || cell.column < 0 || !this.#layout) return;
    mark.hidden = false;
    mark.style.left = `${this.#layout.x.pixelOfCell(cell.column)}px`;
    mark.style.top = `${this.#layout.y.pixelOfCell(cell.row)}px`;
  }

  #listen() {
    const { surface } = this;
    /** @type {Point | null} */
    let start = null;
    /** @type {(event: PointerEvent) => Point} */
    const place = (event) => {
      const frame = surface.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.#layout) return;
      start = place(event);
      surface.setPointerCapture(event.pointerId);
    });
    surface.addEventListener("pointermove", (event) => {
      if (!this.#layout) return;
      const at = place(event);
      this.actions.hover(this.#cellAt(this.#layout, at), false);
      if (start) this.#showBox(this.#layout, start, at);
    });
    surface.addEventListener("pointerup", (event) => {
      if (!start || !this.#layout) return;
      const [from, to] = [start, place(event)];
      start = null;
      this.box.hidden = true;
      // A hand shakes: what moves less than this is a click.
      if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 6) this.actions.pick(this.#cellAt(this.#layout, to));
      else this.#zoom(this.#layout, from, to);
    });
    surface.addEventListener("pointercancel", () => {
      start = null;
      this.box.hidden = true;
    });
    surface.addEventListener("pointerleave", () => {
      if (!start && document.activeElement !== surface) this.actions.hover(null, false);
    });
    surface.addEventListener("dblclick", () => this.actions.reset());
    surface.addEventListener("keydown", (event) => this.#press(event));
  }

  /**
   * @param {Layout} layout
   * @param {Point} from
   * @param {Point} to
   */
  #showBox({ width, height }, from, to) {
    this.box.hidden = false;
    const limit = [width, height];
    const low = from.map((value, side) => Math.max(0, Math.min(value, to[side])));
    const high = from.map((value, side) => Math.min(limit[side], Math.max(value, to[side])));
    this.box.style.left = `${low[0]}px`;
    this.box.style.top = `${low[1]}px`;
    this.box.style.width = `${high[0] - low[0]}px`;
    this.box.style.height = `${high[1] - low[1]}px`;
  }

  /**
   * @param {Layout} layout
   * @param {Point} from
   * @param {Point} to
   */
  #zoom(layout, from, to) {
    const [one, other] = [this.#cellAt(layout, from), this.#cellAt(layout, to)];
    this.actions.zoom({
      rows: [Math.min(one.row, other.row), Math.max(one.row, other.row)],
      columns: [Math.min(one.column, other.column), Math.max(one.column, other.column)],
    });
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const layout = this.#layout;
    if (!layout || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = MOVES[event.key];
    const cursor = this.#cursor ?? this.#cellAt(layout, [layout.width / 2, layout.height / 2]);
    if (move) this.actions.hover(this.#neighbour(layout, cursor, move, event.shiftKey ? 10 : 1), true);
    else if (event.key === "Enter") this.actions.pick(cursor);
    else if (event.key === "+" || event.key === "=") this.#zoomAround(layout, cursor);
    else if (event.key === "-" || event.key === "0" || event.key === "Escape") this.actions.reset();
    else if (event.key === "[" || event.key === "]") this.actions.step(event.key === "]" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  /**
   * Return the cell that lies so many cells away on the screen, where rows and columns may run either way.
   *
   * @param {Layout} layout
   * @param {Cell} cursor
   * @param {[number, number]} direction down and to the right
   * @param {number} by
   * @returns {Cell}
   */
  #neighbour({ y, x }, cursor, [down, right], by) {
    /** @type {(scale: CellScale, sign: number) => number} */
    const onScreen = (scale, sign) => (scale.pixelOfCell(scale.count - 1) >= scale.pixelOfCell(0) ? sign : -sign);
    /** @type {(value: number, count: number) => number} */
    const clip = (value, count) => Math.min(count - 1, Math.max(0, value));
    return {
      row: clip(cursor.row + by * onScreen(y, down), y.count),
      column: clip(cursor.column + by * onScreen(x, right), x.count),
    };
  }

  /**
   * @param {Layout} layout
   * @param {Cell} cursor
   */
  #zoomAround({ y, x }, cursor) {
    /** @type {(at: number, count: number) => [number, number]} */
    const around = (at, count) => [
      Math.max(0, at - Math.ceil(count / 4)),
      Math.min(count - 1, at + Math.ceil(count / 4)),
    ];
    this.actions.zoom({ rows: around(cursor.row, y.count), columns: around(cursor.column, x.count) });
  }
}
