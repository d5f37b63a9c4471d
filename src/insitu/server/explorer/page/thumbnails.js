// Small pictures of variables, made while nobody does anything: one at a time, of what is on the screen, of little data.

import { ApiError, askArrays } from "./api.js";
import { isPicture } from "./archive.js";
import { rowsRunDown } from "./dimension_scale.js";
import { element } from "./element.js";
import { fieldParameters, planeOf } from "./plane.js";
import { contextOf } from "./raster.js";
import { FlagColours, flagsOf } from "./flag_colours.js";
import { ValueColours } from "./value_colours.js";

/** @import { Variable } from "./archive.js" */
/** @import { FieldHeader } from "./field_view.js" */

/** @typedef {{ url: string, format: string | null, variable: Variable }} Subject */

/**
 * A place for a picture that is to be made.
 *
 * @typedef {object} Frame
 * @property {string} key of the picture in memory
 * @property {HTMLElement} box where it appears
 * @property {(signal: AbortSignal) => Promise<Subject | null>} find returns what is shown; null: nothing
 */

const SIZE = { rows: 48, columns: 72 };
const MOST_BYTES = 4_000_000; // that the chunks of one picture decode to
const QUIET = 700; // ms without a key or a pointer before one is made
const KEPT = 400;

/** @type {Map<string, HTMLCanvasElement | null>} Pictures by key, for as long as the page is open; null: there is none. */
const kept = new Map();

const ACTIVITIES = ["pointerdown", "keydown", "wheel", "touchmove", "hashchange"];

/**
 * Return whether a small picture of a variable is worth a request.
 *
 * @param {Variable} variable
 */
export const hasThumbnail = (variable) =>
  isPicture(variable) &&
  variable.dims.length >= 2 &&
  variable.kind !== "time" &&
  !variable.unreadable &&
  new Set(variable.dims).size === variable.dims.length;

/** Makes the pictures of one page, in the order in which their places come to be seen. */
export class Thumbnails {
  /** @type {Frame[]} */
  #waiting = [];
  /** @type {Map<Element, Frame>} */
  #unseen = new Map();
  /** @type {AbortController | null} */
  #making = null;
  #isClosed = false;
  #isPlanned = false;
  #quietSince = 0;
  #observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const frame = this.#unseen.get(target);
      if (!isIntersecting || !frame) continue;
      this.#unseen.delete(target);
      this.#observer.unobserve(target);
      this.#waiting.push(frame);
    }
    this.#plan();
  });
  #pause = () => {
    this.#quietSince = performance.now();
    this.#making?.abort();
  };

  constructor() {
    for (const name of ACTIVITIES) addEventListener(name, this.#pause, { passive: true, capture: true });
  }

  /**
   * Return a place in which a picture appears some time; empty if there is none.
   *
   * @param {string} key
   * @param {Frame["find"]} find
   */
  frame(key, find) {
    const box = element("span", { class: "thumbnail", "aria-hidden": "true" });
    if (kept.has(key)) box.append(copyOf(kept.get(key)));
    else {
      this.#unseen.set(box, { key, box, find });
      this.#observer.observe(box);
    }
    return box;
  }

  // One at a time, when the browser has nothing else to do and nobody did anything for a while.
  #plan() {
    if (this.#isPlanned || this.#isClosed || !this.#waiting.length) return;
    this.#isPlanned = true;
    const begin = () => {
      const wait = this.#quietSince + QUIET - performance.now();
      if (wait > 0 || document.hidden) setTimeout(begin, Math.max(wait, document.hidden ? 2000 : 0));
      else whenIdle(() => this.#makeNext());
    };
    begin();
  }

  async #makeNext() {
    const frame = this.#isClosed ? undefined : this.#waiting.shift();
    if (frame) {
      const { key, box, find } = frame;
      const controller = (this.#making = new AbortController());
      try {
        const subject = await find(controller.signal);
        const picture = subject ? await drawThumbnail(subject, controller.signal) : null;
        keep(key, picture);
        box.replaceChildren(copyOf(picture));
      } catch (problem) {
        if (controller.signal.aborted) this.#waiting.unshift(frame);
        // A server that is busy, gone, or asks for a token has other things to do.
        else if (problem instanceof ApiError && [0, 401, 429, 503].includes(problem.status)) this.close();
        else keep(key, null); // too large, damaged: there is none
      }
      this.#making = null;
    }
    this.#isPlanned = false;
    this.#plan();
  }

  /** Stop what is under way. */
  close() {
    this.#isClosed = true;
    this.#observer.disconnect();
    this.#making?.abort();
    for (const name of ACTIVITIES) removeEventListener(name, this.#pause, { capture: true });
  }
}

/** @param {() => void} work */
function whenIdle(work) {
  // Safari has no requestIdleCallback.
  if ("requestIdleCallback" in globalThis) requestIdleCallback(work);
  else setTimeout(work, 50);
}

/**
 * @param {string} key
 * @param {HTMLCanvasElement | null} picture
 */
function keep(key, picture) {
  if (kept.size >= KEPT) kept.delete(kept.keys().next().value ?? "");
  kept.set(key, picture);
}

/** @param {HTMLCanvasElement | null | undefined} picture */
function copyOf(picture) {
  if (!picture) return "";
  const copy = element("canvas", { width: picture.width, height: picture.height });
  contextOf(copy).drawImage(picture, 0, 0);
  return copy;
}

/**
 * @param {Subject} subject
 * @param {AbortSignal} signal
 */
async function drawThumbnail({ url, format, variable }, signal) {
  const parameters = { ...fieldParameters(url, planeOf(variable, {})), ...SIZE, most_bytes: MOST_BYTES };
  const answer = await askArrays("field", parameters, signal);
  const header = /** @type {FieldHeader} */ (/** @type {unknown} */ (answer.header));
  const { values, y, x } = answer.arrays;
  const [height, width] = header.shape;
  if (header.range.min === null || header.y === null) return null; // all missing, or cells that do not lie in rows
  const flags = flagsOf(variable);
  const paint = (flags ? new FlagColours(flags) : new ValueColours({}, header.range, variable)).painter();
  const picture = element("canvas", { width, height });
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const rising = y[y.length - 1] > y[0];
  const isUpward =
    header.y !== null &&
    rising !== rowsRunDown({ byIndex: header.y.kind === "index", rising, side: header.y }, /tiff/i.test(format ?? ""), []);
  const isLeftward = x[x.length - 1] < x[0];
  for (let row = 0; row < height; row += 1)
    for (let column = 0; column < width; column += 1) {
      const to = (isUpward ? height - 1 - row : row) * width + (isLeftward ? width - 1 - column : column);
      pixels[to] = paint(values[row * width + column]);
    }
  contextOf(picture).putImageData(image, 0, 0);
  return picture;
}
