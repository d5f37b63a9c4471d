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
 * @property {(cells: Cells | null, from: Point, to: Point) => void} zoom to these cells, those of a box that was drawn
 * @property {(cell: Cell | null, point: Point) => void} pick
 * @property {(cell: Cell | null, isSpoken: boolean) => void} hover null: the pointer has left; spoken: moved by keys
 * @property {() => void} reset
 * @property {(by: number) => void} step
 */

/** @typedef {[number, number]} Point left and top in pixels */

/**
 * How a picture places its cells: between two axes, or on a map.
 *
 * @typedef {object} Frame
 * @property {(room: { width: number, height: number }) => { left: number, width: number, height: number }} place sets the
 *   size of the field within the room that there is, with what lies around it
 * @property {(svg: SVGSVGElement) => void} drawAround draws axes, or a graticule's labels
 * @property {(point: Point) => Cell | null} cellAt null: there is none
 * @property {(cell: Cell) => Point | null} pixelOfCell null: it is not on the picture
 * @property {(cursor: Cell, direction: [number, number], by: number) => Cell} neighbour the cell so many cells down and to
 *   the right of the cursor on the screen
 * @property {(from: Point, to: Point) => Cells | null} cellsWithin cells of a box on the screen
 * @property {Handle} [handle] moves the picture itself
 */

/**
 * Rows and columns of a box, inclusive.
 *
 * @typedef {{ rows: [number, number], columns: [number, number], isCut?: boolean }} Cells `isCut`: it lies on both sides of
 *   the seam, where the last column meets the first: there are others between, which it does not show
 */

/**
 * What moves a map.
 *
 * @typedef {object} Handle
 * @property {() => boolean} isOn whether dragging moves it, instead of drawing a box
 * @property {(point: Point) => void} grasp
 * @property {(point: Point) => void} drag
 * @property {(point: Point, factor: number) => boolean} zoom whether it could
 * @property {() => void} release
 */

/** Pixels around a field, but for the left. */
export const MARGIN = { top: 10, right: 16, bottom: 46 };
const LETTER = 7; // pixels that a digit of a tick label takes
const ZOOM = 1.6; // by a key

/** @type {Record<string, [number, number] | undefined>} Rows and columns that a key moves the cross-hair. */
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** @type {Record<string, [number, number] | undefined>} Down and to the right: where a key moves the view of a map. */
const TURNS = { a: [0, -1], d: [0, 1], w: [-1, 0], s: [1, 0] };

/**
 * Return the canvas pixels for each pixel of the screen. Screens of a higher density are painted at twice the pixels at
 * most: more cost time and are not seen.
 */
export const canvasDensity = () => Math.min(2, devicePixelRatio || 1);

/**
 * A picture between two axes.
 *
 * @implements {Frame}
 */
export class AxesFrame {
  left = 0;
  width = 0;
  height = 0;

  /**
   * @param {CellScale} y
   * @param {CellScale} x
   * @param {{ yDown: boolean, equalAspect: boolean }} options whether rows run downwards, and whether both sides have one scale
   */
  constructor(y, x, { yDown, equalAspect }) {
    this.y = y;
    this.x = x;
    this.yDown = yDown;
    this.equalAspect = equalAspect;
  }

  /** @param {{ width: number, height: number }} room */
  place(room) {
    const { y, x } = this;
    this.left = 36 + LETTER * Math.max(3, y.labelLength);
    const wide = Math.max(120, room.width - this.left - MARGIN.right);
    let [width, height] = [wide, room.height];
    if (this.equalAspect) {
      const ratio = y.extent / x.extent;
      height = wide * ratio;
      if (height > room.height) [width, height] = [room.height / ratio, room.height];
      // Very long strips are stretched rather than drawn as a line.
      height = Math.max(height, Math.min(room.height, 140));
      width = Math.max(width, Math.min(wide, 220));
    }
    [this.width, this.height] = [Math.round(width), Math.round(height)];
    x.place(0, this.width);
    if (this.yDown) y.place(0, this.height);
    else y.place(this.height, 0);
    return { left: this.left, width: this.width, height: this.height };
  }

  /** @param {SVGSVGElement} svg */
  drawAround(svg) {
    const { y, x, left } = this;
    const root = select(svg);
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(${left},${MARGIN.top + this.height})`)
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
      .attr("x", left + this.width / 2)
      .attr("y", this.height + MARGIN.top + MARGIN.bottom - 6)
      .text(x.title);
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("transform", `translate(13,${MARGIN.top + this.height / 2}) rotate(-90)`)
      .text(y.title);
  }

  /**
   * @param {Point} point
   * @returns {Cell}
   */
  cellAt([left, top]) {
    /** @type {(value: number, size: number) => number} */
    const inside = (value, size) => Math.min(size - 1e-6, Math.max(0, value));
    return { row: this.y.cellAt(inside(top, this.height)), column: this.x.cellAt(inside(left, this.width)) };
  }

  /**
   * @param {Cell} cell
   * @returns {Point | null}
   */
  pixelOfCell({ row, column }) {
    return row < 0 || column < 0 ? null : [this.x.pixelOfCell(column), this.y.pixelOfCell(row)];
  }

  /**
   * @param {Point} from
   * @param {Point} to
   * @returns {Cells}
   */
  cellsWithin(from, to) {
    const [one, other] = [this.cellAt(from), this.cellAt(to)];
    return {
      rows: [Math.min(one.row, other.row), Math.max(one.row, other.row)],
      columns: [Math.min(one.column, other.column), Math.max(one.column, other.column)],
    };
  }

  /**
   * Rows and columns may run either way on the screen.
   *
   * @param {Cell} cursor
   * @param {[number, number]} direction
   * @param {number} by
   * @returns {Cell}
   */
  neighbour(cursor, [down, right], by) {
    /** @type {(scale: CellScale, sign: number) => number} */
    const onScreen = (scale, sign) => (scale.pixelOfCell(scale.count - 1) >= scale.pixelOfCell(0) ? sign : -sign);
    /** @type {(value: number, count: number) => number} */
    const clip = (value, count) => Math.min(count - 1, Math.max(0, value));
    const { y, x } = this;
    return {
      row: clip(cursor.row + by * onScreen(y, down), y.count),
      column: clip(cursor.column + by * onScreen(x, right), x.count),
    };
  }
}

/** Canvas, axes, cross-hair and zoom box of one field. */
export class Picture {
  /** @type {Frame | null} */
  #frame = null;
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

  #axesKey = "";

  /** Width and height of the field in pixels; 0 before it is drawn. */
  size = { width: 0, height: 0 };

  /**
   * Draw in a frame.
   *
   * @param {object} options
   * @param {Frame} options.frame
   * @param {{ width: number, height: number }} options.room pixels that there are, of the width with the axes
   * @param {(canvas: HTMLCanvasElement) => void} options.render paints a canvas of the right size
   */
  draw({ frame, room, render }) {
    const { left, width, height } = frame.place(room);
    this.#frame = frame;
    this.size = { width, height };
    Object.assign(this.surface.style, {
      left: `${left}px`,
      top: `${MARGIN.top}px`,
      width: `${width}px`,
      height: `${height}px`,
    });
    const [outerWidth, outerHeight] = [width + left + MARGIN.right, height + MARGIN.top + MARGIN.bottom];
    this.element.style.height = `${outerHeight}px`;
    this.element.style.width = `${outerWidth}px`;
    this.surface.classList.toggle("map", frame.handle !== undefined);
    const density = canvasDensity();
    Object.assign(this.canvas, {
      width: Math.max(1, Math.round(width * density)),
      height: Math.max(1, Math.round(height * density)),
    });
    render(this.canvas);
    const drawn = svgElement("svg", { viewBox: `0 0 ${outerWidth} ${outerHeight}`, width: outerWidth, height: outerHeight });
    select(drawn)
      .append("rect")
      .attr("class", "frame")
      .attr("x", left - 0.5)
      .attr("y", MARGIN.top - 0.5)
      .attr("width", width + 1)
      .attr("height", height + 1);
    frame.drawAround(drawn);
    // Pictures of an animation have the same axes: the browser need not lay them out anew.
    const key = new XMLSerializer().serializeToString(drawn);
    if (key === this.#axesKey) return;
    this.#axesKey = key;
    for (const name of ["viewBox", "width", "height"]) this.axes.setAttribute(name, drawn.getAttribute(name) ?? "");
    this.axes.replaceChildren(...drawn.childNodes);
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
    const place = cell && this.#frame?.pixelOfCell(cell);
    mark.hidden = !place;
    if (!place) return;
    mark.style.left = `${place[0]}px`;
    mark.style.top = `${place[1]}px`;
  }

  /** Put the cross-hair where its cell lies now. */
  pointAgain() {
    this.#move(this.crosshair, this.#cursor);
  }

  #listen() {
    const { surface } = this;
    /** @type {Map<number, Point>} Pointers that are down. */
    const pointers = new Map();
    /** @type {{ at: Point, does: "box" | "move" | "pinch" } | null} */
    let gesture = null;
    /** @type {(event: MouseEvent) => Point} */
    const place = (event) => {
      const frame = surface.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    /** @type {() => { middle: Point, apart: number }} */
    const pinched = () => {
      const [one, other] = [...pointers.values()];
      return {
        middle: [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2],
        apart: Math.max(1, Math.hypot(one[0] - other[0], one[1] - other[1])),
      };
    };
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.#frame) return;
      const { handle } = this.#frame;
      surface.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      if (pointers.size === 2 && handle) {
        this.box.hidden = true;
        gesture = { at: place(event), does: "pinch" };
        handle.grasp(pinched().middle);
        return;
      }
      gesture = { at: place(event), does: handle?.isOn() && !event.shiftKey ? "move" : "box" };
      if (gesture.does === "move") handle?.grasp(gesture.at);
    });
    surface.addEventListener("pointermove", (event) => {
      const frame = this.#frame;
      if (!frame) return;
      const at = place(event);
      if (gesture?.does === "pinch" && pointers.has(event.pointerId)) {
        const before = pinched();
        pointers.set(event.pointerId, at);
        if (pointers.size < 2) return;
        const now = pinched();
        frame.handle?.drag(now.middle);
        frame.handle?.zoom(now.middle, now.apart / before.apart);
        return;
      }
      if (gesture?.does === "move") {
        // A hand shakes: what moves less than this is a click.
        if (surface.classList.contains("moving") || isFar(gesture.at, at)) {
          surface.classList.add("moving");
          frame.handle?.drag(at);
        }
        return;
      }
      this.actions.hover(frame.cellAt(at), false);
      if (gesture) this.#showBox(gesture.at, at);
    });
    surface.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      const frame = this.#frame;
      if (!gesture || !frame) return;
      const [{ at: from, does }, to] = [gesture, place(event)];
      if (does === "pinch" && pointers.size > 0) return; // one finger is still down: it does nothing more
      gesture = null;
      this.box.hidden = true;
      const wasMoving = surface.classList.contains("moving");
      surface.classList.remove("moving");
      if (does === "pinch" || wasMoving) frame.handle?.release();
      else if (!isFar(from, to)) this.actions.pick(frame.cellAt(to), to);
      else if (does === "box") this.#zoom(frame, from, to);
    });
    surface.addEventListener("pointercancel", (event) => {
      pointers.delete(event.pointerId);
      if (gesture && gesture.does !== "box") this.#frame?.handle?.release();
      gesture = null;
      surface.classList.remove("moving");
      this.box.hidden = true;
    });
    surface.addEventListener("pointerleave", () => {
      if (!gesture && document.activeElement !== surface) this.actions.hover(null, false);
    });
    surface.addEventListener("dblclick", () => this.actions.reset());
    surface.addEventListener("keydown", (event) => this.#press(event));
    surface.addEventListener(
      "wheel",
      (event) => {
        // A wheel turns by about 100 pixels at a time, a touch pad by few; a browser that is busy adds them up. What cannot
        // be zoomed further scrolls the page.
        const factor = Math.exp(-(event.deltaMode ? 33 * event.deltaY : event.deltaY) / 400);
        if (this.#frame?.handle?.zoom(place(event), factor)) event.preventDefault();
      },
      { passive: false },
    );
  }

  /**
   * @param {Point} from
   * @param {Point} to
   */
  #showBox(from, to) {
    this.box.hidden = false;
    const limit = [this.size.width, this.size.height];
    const low = from.map((value, side) => Math.max(0, Math.min(value, to[side])));
    const high = from.map((value, side) => Math.min(limit[side], Math.max(value, to[side])));
    this.box.style.left = `${low[0]}px`;
    this.box.style.top = `${low[1]}px`;
    this.box.style.width = `${high[0] - low[0]}px`;
    this.box.style.height = `${high[1] - low[1]}px`;
  }

  /**
   * @param {Frame} frame
   * @param {Point} from
   * @param {Point} to
   */
  #zoom(frame, from, to) {
    this.actions.zoom(frame.cellsWithin(from, to), from, to);
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const frame = this.#frame;
    if (!frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const { width, height } = this.size;
    const move = MOVES[event.key];
    const turn = TURNS[event.key.toLowerCase()];
    const cursor = this.#cursor ?? frame.cellAt([width / 2, height / 2]);
    const at = cursor && frame.pixelOfCell(cursor);
    if (turn && frame.handle) this.#turn(frame.handle, turn);
    else if (move && cursor) this.actions.hover(frame.neighbour(cursor, move, event.shiftKey ? 10 : 1), true);
    else if (event.key === "Enter" && at) this.actions.pick(cursor, at);
    else if (event.key === "+" || event.key === "=") this.#zoomByKey(frame, cursor, ZOOM);
    else if (event.key === "-" && frame.handle) this.#zoomByKey(frame, cursor, 1 / ZOOM);
    else if (event.key === "-" || event.key === "0" || event.key === "Escape") this.actions.reset();
    else if (event.key === "[" || event.key === "]") this.actions.step(event.key === "]" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  /**
   * Move a map by an eighth of the picture.
   *
   * @param {Handle} handle
   * @param {[number, number]} direction down and to the right, where the view goes
   */
  #turn(handle, [down, right]) {
    const [x, y] = [this.size.width / 2, this.size.height / 2];
    handle.grasp([x, y]);
    handle.drag([x - (right * this.size.width) / 8, y - (down * this.size.height) / 8]);
    handle.release();
  }

  /**
   * @param {Frame} frame
   * @param {Cell | null} cursor
   * @param {number} factor
   */
  #zoomByKey(frame, cursor, factor) {
    const { width, height } = this.size;
    const middle = /** @type {Point} */ ([width / 2, height / 2]);
    const at = cursor && frame.pixelOfCell(cursor);
    if (frame.handle) frame.handle.zoom(at ?? middle, factor);
    else if (at) this.#zoom(frame, [at[0] - width / 4, at[1] - height / 4], [at[0] + width / 4, at[1] + height / 4]);
  }
}

/**
 * @param {Point} one
 * @param {Point} other
 */
const isFar = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]) >= 6;
