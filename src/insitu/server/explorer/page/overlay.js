// What is drawn over the colours of a picture: contour lines of a second variable, arrows of two components.

import { scaleLinear } from "./vendor/plotting.js";
import { askArrays, Latest } from "./api.js";
import { changeState } from "./address.js";
import { contourSegments } from "./contours.js";
import { choice, labelled, setOptions, svgElement } from "./element.js";
import { formatNumber, joinUnits } from "./format.js";
import { vectorPairs } from "./vector_pairs.js";

/** @import { State } from "./address.js" */
/** @import { Archive, Variable } from "./archive.js" */
/** @import { BinaryAnswer } from "./binary.js" */
/** @import { Places } from "./picture_places.js" */
/** @import { FieldPlane } from "./plane.js" */

const LEVELS = 9; // contour lines, about
const ARROW_SPACE = 30; // pixels from one arrow to the next

/**
 * A picture that is drawn over.
 *
 * @typedef {object} Ground
 * @property {SVGSVGElement} svg
 * @property {Places} places
 * @property {{ width: number, height: number }} size
 */

/** Contour lines and arrows over a picture, with the controls that choose them. */
export class Overlay {
  #latest = { contours: new Latest(), arrows: new Latest() };
  /** @type {{ contours: string, arrows: string }} */
  #keys = { contours: "", arrows: "" };
  /** @type {{ contours: BinaryAnswer | null, arrows: [BinaryAnswer, BinaryAnswer] | null }} */
  #answers = { contours: null, arrows: null };

  /**
   * @param {Archive} archive
   * @param {Variable} variable of the colours
   * @param {() => void} ondrawn called when an answer came, to draw again
   * @param {(problem: unknown) => void} onproblem
   */
  constructor(archive, variable, ondrawn, onproblem) {
    this.archive = archive;
    this.variable = variable;
    this.ondrawn = ondrawn;
    this.onproblem = onproblem;
    this.text = "";
    /** @type {Promise<unknown>} Done once what was asked for last is drawn. */
    this.pending = Promise.resolve();
    this.contours = choice("Contour lines of", [], "", (path) => changeState({ contours: path }));
    this.arrows = choice("Arrows of", [], "", (pair) => changeState({ arrows: pair }));
    this.elements = [labelled("Contours", this.contours), labelled("Arrows", this.arrows)];
  }

  /**
   * Ask for what a state draws over a plane.
   *
   * @param {State} state
   * @param {FieldPlane} plane
   * @param {{ width: number, height: number }} room pixels
   */
  update(state, plane, room) {
    const { y } = plane;
    // Cells that do not lie in rows have no lines between them.
    for (const part of this.elements) part.hidden = y === null;
    const pairs = y === null ? [] : vectorPairs(this.archive, y, plane.x);
    if (y !== null) this.#showChoices(state, y, plane.x, pairs);
    const contours = y === null ? undefined : state.contours;
    const [u, v] = y !== null && state.arrows ? state.arrows.split("|") : [];
    /** @type {(rows: number, columns: number) => Record<string, unknown>} */
    const parameters = (rows, columns) => ({
      url: this.archive.url,
      y: plane.y,
      x: plane.x,
      box: plane.box,
      index: plane.index,
      rows: Math.max(2, Math.floor(rows)),
      columns: Math.max(2, Math.floor(columns)),
    });
    const lines = contours ? [{ ...parameters(room.height / 4, room.width / 4), variable: contours }] : [];
    const coarse = parameters(room.height / ARROW_SPACE, room.width / ARROW_SPACE);
    const components = u && v ? [u, v].map((path) => ({ ...coarse, variable: path })) : [];
    this.pending = Promise.all([this.#load("contours", lines), this.#load("arrows", components)]);
  }

  /**
   * @param {"contours" | "arrows"} kind
   * @param {Record<string, unknown>[]} requests
   */
  async #load(kind, requests) {
    const known = requests.map((request) => this.#fitting(request));
    const key = JSON.stringify(known);
    if (key === this.#keys[kind]) return;
    this.#keys[kind] = key;
    const latest = this.#latest[kind];
    latest.stop();
    if (!requests.length) {
      this.#answers[kind] = null;
      this.ondrawn();
      return;
    }
    try {
      const answers = await latest.run((signal) =>
        Promise.all(known.map((request) => askArrays("field", request, signal))),
      );
      if (!answers) return;
      if (kind === "contours") this.#answers.contours = answers[0];
      else this.#answers.arrows = [answers[0], answers[1]];
      this.ondrawn();
    } catch (problem) {
      this.#keys[kind] = "";
      this.#answers[kind] = null;
      this.onproblem(problem);
    }
  }

  /**
   * Return a request with positions along the dimensions that its variable has only.
   *
   * @param {Record<string, unknown>} request
   */
  #fitting(request) {
    const dims = this.archive.variable(String(request.variable))?.dims;
    if (!dims) return request;
    const index = /** @type {Record<string, number>} */ (request.index);
    return { ...request, index: Object.fromEntries(Object.entries(index).filter(([dim]) => dims.includes(dim))) };
  }

  /**
   * @param {State} state
   * @param {string} y
   * @param {string} x
   * @param {ReturnType<typeof vectorPairs>} pairs
   */
  #showChoices(state, y, x, pairs) {
    const others = this.archive.groups
      .flatMap((group) => group.variables)
      .filter(({ dims, kind }) => kind === "number" && dims.includes(y) && dims.includes(x))
      .map(({ path }) => /** @type {[string, string]} */ ([path, path]));
    if (state.contours && !others.some(([path]) => path === state.contours))
      others.push([state.contours, state.contours.replace(/^=/, "")]);
    setOptions(this.contours, [["", "none"], ...others], state.contours ?? "");
    const vectors = pairs.map(({ u, v }) => /** @type {[string, string]} */ ([`${u.path}|${v.path}`, `${u.name}, ${v.name}`]));
    if (state.arrows && !vectors.some(([pair]) => pair === state.arrows))
      vectors.push([state.arrows, state.arrows.replace("|", ", ")]);
    setOptions(this.arrows, [["", "none"], ...vectors], state.arrows ?? "");
    this.elements[1].hidden = vectors.length === 0;
  }

  /**
   * Draw over a picture.
   *
   * @param {Ground} ground
   */
  draw(ground) {
    const { svg, size } = ground;
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    svg.setAttribute("width", String(size.width));
    svg.setAttribute("height", String(size.height));
    svg.replaceChildren();
    const { contours, arrows } = this.#answers;
    const texts = [
      contours ? this.#drawContours(contours, ground) : "",
      arrows ? this.#drawArrows(arrows, ground) : "",
    ];
    this.text = texts.filter(Boolean).join("; ");
  }

  /**
   * @param {BinaryAnswer} answer
   * @param {Ground} ground
   */
  #drawContours(answer, ground) {
    const { header, arrays } = answer;
    const { low, high, min, max } = header.range;
    if (min === null || max === null || min === max) return `${header.long_name} is the same everywhere`;
    const places = ground.places.ofAnswer(answer);
    if (!places) return "No contour lines: their values have no grid here";
    const levels = scaleLinear([low, high], [0, 1]).ticks(LEVELS);
    for (const level of levels) {
      const segments = contourSegments(arrays.values, header.shape[0], header.shape[1], level);
      const points = segments.flatMap(([x0, y0, x1, y1]) => {
        const [from, to] = [places.point(y0, x0), places.point(y1, x1)];
        return from && to && Math.hypot(to[0] - from[0], to[1] - from[1]) < places.reach ? [[...from, ...to]] : [];
      });
      if (!points.length) continue;
      const path = points.map((point) => point.map((value) => value.toFixed(1)));
      const d = path.map(([x0, y0, x1, y1]) => `M${x0},${y0}L${x1},${y1}`).join("");
      const middle = points[points.length >> 1];
      ground.svg.append(
        svgElement("path", { class: "contour-halo", d }),
        svgElement("path", { class: "contour", d, "data-level": level }),
        svgElement("text", { class: "contour-label", x: middle[0].toFixed(1), y: (middle[1] + 4).toFixed(1) }, formatNumber(level, 5)),
      );
    }
    const step = levels.length > 1 ? ` every ${joinUnits(formatNumber(levels[1] - levels[0], 5), header.units)}` : "";
    return `Lines: ${header.long_name}${step}`;
  }

  /**
   * @param {[BinaryAnswer, BinaryAnswer]} answers
   * @param {Ground} ground
   */
  #drawArrows([u, v], ground) {
    const places = ground.places.ofAnswer(u);
    if (!places) return "No arrows: their values have no grid here";
    const [rows, columns] = u.header.shape;
    // Components are eastward and northward, unless their standard name says that they follow the grid.
    const name = this.archive.variable(this.arrows.value.split("|")[0])?.standard_name;
    const isOfGrid = /(^|_)[xy]_|^grid_/.test(name ?? "");
    const [right, up] = [u.arrays.values, v.arrays.values];
    const lengths = Array.from(right, (value, at) => Math.hypot(value, up[at])).filter(Number.isFinite);
    const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
    if (longest === 0) return "";
    const factor = (ARROW_SPACE * 1.1) / longest;
    /** @type {string[]} */
    const parts = [];
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const at = row * columns + column;
        const length = Math.hypot(right[at], up[at]) * factor;
        if (!Number.isFinite(length) || length < 0.5) continue;
        const [middle, way] = [places.point(row, column), places.direction(row, column, [right[at], up[at]], isOfGrid)];
        if (!middle || !way) continue;
        const stretch = length / Math.hypot(...way);
        const [dx, dy] = [way[0] * stretch, way[1] * stretch];
        const [px, py] = [middle[0] - dx / 2, middle[1] - dy / 2];
        const [tx, ty] = [px + dx, py + dy];
        const head = Math.min(6, length / 2.2) / length;
        /** @type {(turn: number) => string} */
        const barb = (turn) => `L${(tx - head * (dx + turn * dy * 0.6)).toFixed(1)},${(ty - head * (dy - turn * dx * 0.6)).toFixed(1)}`;
        parts.push(`M${px.toFixed(1)},${py.toFixed(1)}L${tx.toFixed(1)},${ty.toFixed(1)}${barb(1)}M${tx.toFixed(1)},${ty.toFixed(1)}${barb(-1)}`);
      }
    }
    const d = parts.join("");
    ground.svg.append(svgElement("path", { class: "arrow-halo", d }), svgElement("path", { class: "arrow", d, "data-count": parts.length }));
    return `Arrows: ${u.header.long_name}, ${v.header.long_name}; the longest is ${joinUnits(formatNumber(longest, 3), u.header.units)}`;
  }

  /** Stop what is under way. */
  close() {
    this.#latest.contours.stop();
    this.#latest.arrows.stop();
  }
}
