// A canvas with axes, cross-hair and a box for zooming; what is painted on it comes from the caller.

import { axisBottom, axisLeft, select } from "./vendor/plotting.js";
import { element, svgElement } from "./element.js";

const MARGIN = { top: 10, right: 16, bottom: 46 };
const LETTER = 7; // pixels that a digit of a tick label takes

/** Canvas, axes, cross-hair and zoom box of one field. */
export class Picture {
  /** @param actions {zoom(box cells), pick(cell), hover(cell or null), reset(), step(direction)} */
  constructor(label, actions) {
    this.actions = actions;
    this.canvas = element("canvas", { class: "raster", "aria-hidden": "true" });
    this.axes = svgElement("svg", { class: "axes", "aria-hidden": "true" });
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
      this.marker,
      this.crosshair,
      this.box,
    );
    this.element = element("div", { class: "picture" }, this.axes, this.surface);
    this.#listen();
  }

  /** Draw between two scales; `render(canvas)` paints a canvas of the right size. */
  draw({ y, x, yDown, equalAspect, render, width, maximumHeight }) {
    Object.assign(this, { y, x });
    const inner = (this.size = this.#layout(y, x, equalAspect, width, maximumHeight));
    x.place(0, inner.width);
    if (yDown) y.place(0, inner.height);
    else y.place(inner.height, 0);
    const density = Math.min(2, devicePixelRatio || 1);
    Object.assign(this.canvas, {
      width: Math.max(1, Math.round(inner.width * density)),
      height: Math.max(1, Math.round(inner.height * density)),
    });
    render(this.canvas);
    this.#drawAxes(inner);
  }

  #layout(y, x, equalAspect, width, maximumHeight) {
    this.left = 36 + LETTER * Math.max(3, y.labelLength);
    const wide = Math.max(120, width - this.left - MARGIN.right);
    let [innerWidth, innerHeight] = [wide, maximumHeight];
    if (equalAspect) {
      const ratio = y.extent / x.extent;
      innerHeight = wide * ratio;
      if (innerHeight > maximumHeight) [innerWidth, innerHeight] = [maximumHeight / ratio, maximumHeight];
      // Very long strips are stretched rather than drawn as a line.
      innerHeight = Math.max(innerHeight, Math.min(maximumHeight, 140));
      innerWidth = Math.max(innerWidth, Math.min(wide, 220));
    }
    const inner = { width: Math.round(innerWidth), height: Math.round(innerHeight) };
    for (const [name, value] of [
      ["left", this.left],
      ["top", MARGIN.top],
      ["width", inner.width],
      ["height", inner.height],
    ]) {
      this.surface.style[name] = `${value}px`;
    }
    this.element.style.height = `${inner.height + MARGIN.top + MARGIN.bottom}px`;
    this.element.style.width = `${inner.width + this.left + MARGIN.right}px`;
    return inner;
  }

  #drawAxes(inner) {
    const [width, height] = [inner.width + this.left + MARGIN.right, inner.height + MARGIN.top + MARGIN.bottom];
    const root = select(this.axes)
      .attr("viewBox", `0 0 ${width} ${height}`)
      .attr("width", width)
      .attr("height", height);
    root.selectAll("*").remove();
    root
      .append("rect")
      .attr("class", "frame")
      .attr("x", this.left - 0.5)
      .attr("y", MARGIN.top - 0.5)
      .attr("width", inner.width + 1)
      .attr("height", inner.height + 1);
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(${this.left},${MARGIN.top + inner.height})`)
      .call(this.x.decorate(axisBottom(this.x.scale), 80));
    root
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(${this.left},${MARGIN.top})`)
      .call(this.y.decorate(axisLeft(this.y.scale), 46));
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("x", this.left + inner.width / 2)
      .attr("y", height - 6)
      .text(this.x.title);
    root
      .append("text")
      .attr("class", "axis-title")
      .attr("text-anchor", "middle")
      .attr("transform", `translate(13,${MARGIN.top + inner.height / 2}) rotate(-90)`)
      .text(this.y.title);
  }

  /** Return the cell `{row, column}` at a place within the picture. */
  cellAt(left, top) {
    const inside = (value, size) => Math.min(size - 1e-6, Math.max(0, value));
    return {
      row: this.y.cellAt(inside(top, this.size.height)),
      column: this.x.cellAt(inside(left, this.size.width)),
    };
  }

  /** Show the mark of the chosen point; null hides it. */
  mark(cell) {
    this.#place(this.marker, cell);
  }

  /** Show the cross-hair at a cell; null hides it. */
  point(cell) {
    this.cursor = cell;
    this.#place(this.crosshair, cell);
  }

  #place(mark, cell) {
    mark.hidden = !cell || cell.row < 0 || cell.column < 0;
    if (mark.hidden) return;
    mark.style.left = `${this.x.pixelOfCell(cell.column)}px`;
    mark.style.top = `${this.y.pixelOfCell(cell.row)}px`;
  }

  #listen() {
    const { surface } = this;
    let start = null;
    const place = (event) => {
      const frame = surface.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.size) return;
      start = place(event);
      surface.setPointerCapture(event.pointerId);
    });
    surface.addEventListener("pointermove", (event) => {
      if (!this.size) return;
      const at = place(event);
      this.actions.hover(this.cellAt(...at));
      if (start) this.#showBox(start, at);
    });
    surface.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [from, to] = [start, place(event)];
      start = null;
      this.box.hidden = true;
      if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 6) this.actions.pick(this.cellAt(...to));
      else this.#zoom(from, to);
    });
    surface.addEventListener("pointercancel", () => {
      start = null;
      this.box.hidden = true;
    });
    surface.addEventListener("pointerleave", () => {
      if (!start && document.activeElement !== surface) this.actions.hover(null);
    });
    surface.addEventListener("dblclick", () => this.actions.reset());
    surface.addEventListener("keydown", (event) => this.#press(event));
  }

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

  #zoom(from, to) {
    const [one, other] = [this.cellAt(...from), this.cellAt(...to)];
    this.actions.zoom({
      rows: [Math.min(one.row, other.row), Math.max(one.row, other.row)],
      columns: [Math.min(one.column, other.column), Math.max(one.column, other.column)],
    });
  }

  #press(event) {
    if (!this.size || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const cursor = this.cursor ?? this.cellAt(this.size.width / 2, this.size.height / 2);
    if (moves[event.key]) this.actions.hover(this.#moved(cursor, moves[event.key], event.shiftKey ? 10 : 1), true);
    else if (event.key === "Enter") this.actions.pick(cursor);
    else if (event.key === "+" || event.key === "=") this.#zoomAround(cursor);
    else if (event.key === "-" || event.key === "0" || event.key === "Escape") this.actions.reset();
    else if (event.key === "[" || event.key === "]") this.actions.step(event.key === "]" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  #moved(cursor, [down, right], by) {
    const onScreen = (scale, sign) => (scale.pixelOfCell(scale.count - 1) >= scale.pixelOfCell(0) ? sign : -sign);
    const clip = (value, count) => Math.min(count - 1, Math.max(0, value));
    return {
      row: clip(cursor.row + by * onScreen(this.y, down), this.y.count),
      column: clip(cursor.column + by * onScreen(this.x, right), this.x.count),
    };
  }

  #zoomAround(cursor) {
    const around = (at, count) => [
      Math.max(0, at - Math.ceil(count / 4)),
      Math.min(count - 1, at + Math.ceil(count / 4)),
    ];
    this.actions.zoom({ rows: around(cursor.row, this.y.count), columns: around(cursor.column, this.x.count) });
  }
}
