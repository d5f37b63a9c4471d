// A picture of a variable with controls, sliders and cards: what the views of its values and of its chunks share.

import { Latest } from "./api.js";
import { changeState } from "./address.js";
import { BAR_WIDTH, ColourBar } from "./colour_bar.js";
import { choice, element, setOptions } from "./element.js";
import { Frames } from "./frames.js";
import { errorBox, LoadingBar } from "./messages.js";
import { AxesFrame, Picture } from "./picture.js";
import { isWhole, sizeOf } from "./plane.js";
import { Sliders } from "./sliders.js";

/** @import { Changes, State } from "./address.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Archive, Variable } from "./archive.js" */
/** @import { CellScale } from "./dimension_scale.js" */
/** @import { Child } from "./element.js" */
/** @import { Cell, Cells, Frame, Point } from "./picture.js" */
/** @import { Plane } from "./plane.js" */

const NARROW = 480; // pixels

/**
 * How the picture of one kind is asked for and described.
 *
 * @typedef {object} PictureKind
 * @property {"field" | "chunks"} route of the server's API
 * @property {"box" | "chunk_box"} boxKey entry of the state that holds the box
 * @property {string} className
 * @property {string} label of the picture
 * @property {string} loadingText
 * @property {string} keysText what the keys do
 * @property {(dim: string, statistic: string) => void} [onstatistic] called when a statistic is chosen
 * @property {(dim: string) => void} [onplay] called when a dimension begins to be played
 */

/**
 * Controls, sliders, picture, colour bar, read-out and caption of one variable. It loads what a state shows, and draws
 * again when the window changes; a subclass says what is asked for (`update`), how it is drawn (`redraw`), and what a
 * click and the pointer do (`pick`, `hover`).
 *
 * @template {object} Answer
 * @template {CellScale} Scale
 * @template {Plane} Shown
 */
export class PictureView {
  #latest = new Latest();
  #drawnWidth = 0;
  /** As it was measured last: asking for it while a picture is being drawn makes the browser lay out all of the page. */
  #stageWidth = 0;
  /** @type {string | null} */
  #requestKey = null;

  /**
   * @param {Archive} archive
   * @param {Variable} variable
   * @param {Shown} plane that is drawn first
   * @param {PictureKind} kind
   */
  constructor(archive, variable, plane, kind) {
    this.archive = archive;
    this.variable = variable;
    this.url = archive.url;
    this.plane = plane;
    this.kind = kind;
    this.frames = new Frames(kind.route);
    /** @type {State} */
    this.state = {};
    /** @type {Answer | null} The answer that is drawn; null before the first. */
    this.answer = null;
    /** @type {{ y: Scale, x: Scale } | null} The sides of the picture that is drawn. */
    this.scales = null;
    this.picture = new Picture(kind.label, {
      zoom: (cells, from, to) => this.drag(cells, from, to),
      pick: (cell, point) => this.pick(cell, point),
      hover: (cell, isSpoken) => this.hover(cell, isSpoken),
      reset: () => this.reset(),
      step: (by) => this.sliders.step(by),
    });
    this.bar = new ColourBar();
    this.sliders = new Sliders(this.url, variable, {
      onmove: (index) => changeState({ index: { ...this.state.index, ...index } }, { replace: true }),
      onstatistic: kind.onstatistic,
      onplay: kind.onplay,
      onpace: (pace) => changeState(pace),
    });
    this.sideChoices = {
      y: choice("Vertical axis", [], "", (dim) => this.#setSide("y", dim)),
      x: choice("Horizontal axis", [], "", (dim) => this.#setSide("x", dim)),
    };
    this.wholeButton = element("button", { type: "button", onclick: () => this.#showWhole() }, "Show all");
    this.loading = new LoadingBar();
    this.problem = element("div", {});
    this.stage = element("div", { class: "stage" }, this.picture.element, this.bar.element);
    this.readout = element("div", { class: "readout", "aria-live": "off" });
    this.spoken = element("div", { class: "visually-hidden", "aria-live": "polite" });
    this.caption = element("p", { class: "caption muted small-text" });
    this.element = element("div", { class: kind.className });
    this.resizeObserver = new ResizeObserver(() => {
      this.#stageWidth = this.stage.clientWidth;
      this.#redrawIfResized();
    });
    this.resizeObserver.observe(this.stage);
  }

  /**
   * Put the parts of the view below each other.
   *
   * @param {Child[]} controls of the tool bar
   * @param {Child[]} cards below the picture
   * @param {Child} [more] controls that are rarely used
   */
  assemble(controls, cards, more) {
    const toolbar = { class: "toolbar", role: "group", "aria-label": "What is shown, and how" };
    this.element.append(
      element("div", toolbar, ...controls, this.wholeButton, more),
      this.sliders.element,
      this.loading.element,
      this.problem,
      this.stage,
      this.readout,
      this.spoken,
      this.caption,
      element("p", { id: "picture-keys", class: "visually-hidden" }, this.kind.keysText),
      element("div", { class: "cards" }, cards),
    );
  }

  /** Done once everything is drawn that belongs to the picture. */
  get drawn() {
    return Promise.resolve();
  }

  /** Draw the answer. */
  redraw() {}

  /**
   * Choose what lies at a point.
   *
   * @param {Cell | null} _cell null: there is none
   * @param {Point} _point
   */
  pick(_cell, _point) {}

  /**
   * Read a cell; null: the pointer has left.
   *
   * @param {Cell | null} _cell
   * @param {boolean} _isSpoken whether a screen reader shall say it
   */
  hover(_cell, _isSpoken) {}

  /**
   * Draw other dimensions.
   *
   * @param {string} _y
   * @param {string} _x
   */
  setSides(_y, _x) {}

  /**
   * Show a state.
   *
   * @param {State} _state
   * @returns {Promise<void>}
   */
  async update(_state) {}

  /**
   * Show in the controls which plane is drawn.
   *
   * @param {Shown} plane
   * @param {boolean} allowStatistics
   */
  showPlane(plane, allowStatistics) {
    this.plane = plane;
    const options = this.variable.dims.map((dim) => /** @type {[string, string]} */ ([dim, dim]));
    if (plane.y) setOptions(this.sideChoices.y, options, plane.y);
    this.sideChoices.y.closest(".control")?.toggleAttribute("hidden", !plane.y); // cells of a mesh have no rows
    if (plane.x) setOptions(this.sideChoices.x, options, plane.x);
    this.wholeButton.disabled = isWhole(plane);
    const rest = plane.rest.map((dim) => ({ dim, size: sizeOf(this.variable, dim) }));
    this.sliders.show(rest, plane.index, plane.statistic, plane.over, allowStatistics);
  }

  /**
   * Return whether the answer to these parameters is drawn, or under way.
   *
   * @param {Parameters} parameters
   */
  isRequested(parameters) {
    return this.answer !== null && this.#requestKey === JSON.stringify(parameters);
  }

  /**
   * Return the server's answer.
   *
   * @param {Parameters} parameters
   * @param {AbortSignal} signal
   * @returns {Promise<unknown>}
   */
  ask(parameters, signal) {
    return this.frames.get(parameters, signal);
  }

  /**
   * Draw an answer that came before.
   *
   * @param {Answer} answer
   * @param {Parameters} parameters that it answers
   */
  showAnswer(answer, parameters) {
    this.#latest.stop();
    this.#requestKey = JSON.stringify(parameters);
    this.answer = answer;
    this.redraw();
    this.loading.hide();
    this.element.setAttribute("aria-busy", "false");
    this.drawn.then(() => this.sliders.pictureShown());
  }

  /**
   * Ask the server and draw its answer; return whether it came, and nothing newer was asked for meanwhile.
   *
   * @param {Parameters} parameters
   */
  async load(parameters) {
    this.#requestKey = JSON.stringify(parameters);
    this.element.setAttribute("aria-busy", "true");
    this.loading.show(this.kind.loadingText);
    let isDrawn = false;
    try {
      const answer = await this.#latest.run((signal) => this.ask(parameters, signal));
      if (!answer) return false;
      this.answer = /** @type {Answer} */ (/** @type {unknown} */ (answer));
      this.problem.replaceChildren();
      this.stage.hidden = false;
      this.redraw();
      this.drawn.then(() => this.sliders.pictureShown());
      isDrawn = true;
    } catch (problem) {
      this.#requestKey = null;
      this.sliders.stop();
      // The picture before stays, so that a short failure does not move the page under the pointer.
      this.stage.hidden = !this.answer;
      this.problem.replaceChildren(errorBox(problem, () => this.update(this.state)));
    }
    this.loading.hide();
    this.element.setAttribute("aria-busy", "false");
    return isDrawn;
  }

  /**
   * Draw the picture between two scales.
   *
   * @param {Scale} y
   * @param {Scale} x
   * @param {object} options
   * @param {boolean} options.yDown whether rows run downwards
   * @param {boolean} options.equalAspect whether both sides have one scale
   * @param {(canvas: HTMLCanvasElement) => void} options.render paints a canvas
   */
  drawPicture(y, x, { render, ...options }) {
    this.scales = { y, x };
    this.drawFrame(new AxesFrame(y, x, options), render);
  }

  /**
   * Draw the picture in a frame.
   *
   * @param {Frame} frame
   * @param {(canvas: HTMLCanvasElement) => void} render paints a canvas
   */
  drawFrame(frame, render) {
    this.#drawnWidth = this.stageWidth;
    this.stage.classList.toggle("narrow", this.isNarrow);
    this.picture.draw({ frame, render, room: { width: this.width, height: this.height } });
  }

  /** Whether the colour bar lies below the picture: beside it, there would be little left of a phone. */
  get isNarrow() {
    return this.stageWidth < NARROW;
  }

  /** Width of the colour bar. */
  get barWidth() {
    return this.isNarrow ? Math.max(120, this.stageWidth - 12) : BAR_WIDTH;
  }

  /** Height of the colour bar, whose triangles reach beyond the picture. */
  get barHeight() {
    return this.picture.size.height + 30;
  }

  /** Width of what holds picture and colour bar. */
  get stageWidth() {
    return this.#stageWidth || this.stage.clientWidth || this.element.clientWidth || innerWidth;
  }

  /** Pixels that there are for the picture with its axes. */
  get width() {
    return Math.max(200, this.stageWidth - (this.isNarrow ? 0 : this.barWidth) - 8);
  }

  /** Pixels that the picture may be high. */
  get height() {
    return Math.max(220, Math.min(640, innerHeight * 0.56));
  }

  #redrawIfResized() {
    if (this.answer && this.#stageWidth && this.#stageWidth !== this.#drawnWidth) this.redraw();
  }

  /**
   * Do what drawing a box over the picture does: zoom.
   *
   * @param {Cells | null} cells in the box; null: there are none
   * @param {Point} _from
   * @param {Point} _to
   */
  drag(cells, _from, _to) {
    if (!this.scales || !cells) return;
    const { y, x } = this.scales;
    changeState({ [this.kind.boxKey]: [...y.rangeOfCells(...cells.rows), ...x.rangeOfCells(...cells.columns)] });
  }

  /** Do what a double click does: show all. */
  reset() {
    this.#showWhole();
  }

  #showWhole() {
    changeState({ [this.kind.boxKey]: null, ...this.wholeChanges() });
  }

  /**
   * Return what else of the state shows a part only.
   *
   * @returns {Changes}
   */
  wholeChanges() {
    return {};
  }

  /**
   * Draw another dimension along a side; if it is that of the other side, they change places.
   *
   * @param {"y" | "x"} side
   * @param {string} dim
   */
  #setSide(side, dim) {
    const { y, x } = this.plane;
    if (!y || !x) return;
    if (side === "y") this.setSides(dim, x === dim ? y : x);
    else this.setSides(y === dim ? x : y, dim);
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    if (this.answer) this.redraw();
  }

  /** Ask again, also if nothing changed: after the server was gone. */
  reload() {
    this.#requestKey = null;
    this.frames.clear();
    return this.update(this.state);
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
    this.frames.clear();
    this.sliders.stop();
    this.resizeObserver.disconnect();
  }
}
