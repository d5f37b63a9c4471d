// Answers of a route that are kept for a while, and asked for ahead: the pictures of an animation.

import { askArrays } from "./api.js";

/** @import { Parameters } from "./api.js" */
/** @import { BinaryAnswer } from "./binary.js" */

const MOST_BYTES = 96 << 20;
const MOST_AGE = 60_000; // ms; files may change
const AT_ONCE = 4; // requests ahead; a browser has six connections to a server

/**
 * A picture that is there, or under way.
 *
 * @typedef {{ answer: Promise<BinaryAnswer>, bytes: number, asked: number, signal: AbortSignal, ahead: AbortController | null }} Frame
 */

/** Answers by their parameters, the least used leave first. */
export class Frames {
  /** @type {Map<string, Frame>} In the order of their use. */
  #frames = new Map();

  /**
   * @param {string} route of the server's API
   * @param {typeof askArrays} ask
   */
  constructor(route, ask = askArrays) {
    this.route = route;
    this.ask = ask;
  }

  /**
   * Return an answer: one that is there, one that was asked for ahead, or a new one, which the signal ends.
   *
   * @param {Parameters} parameters
   * @param {AbortSignal} signal
   */
  get(parameters, signal) {
    const key = JSON.stringify(parameters);
    const known = this.#frames.get(key);
    // One that was ended on the way is here until its promise says so.
    const isThere = known && (known.bytes || !known.signal.aborted);
    if (known && isThere && performance.now() - known.asked < MOST_AGE) {
      this.#frames.delete(key);
      this.#frames.set(key, known);
      known.ahead = null; // it is wanted now: what is asked for next does not end it
      return known.answer;
    }
    return this.#start(key, parameters, signal, null).answer;
  }

  /**
   * Ask for pictures that will be wanted next, and end what was asked for ahead and is not wanted any more.
   *
   * @param {Parameters[]} wanted the nearest first
   */
  fetchAhead(wanted) {
    const keys = wanted.map((parameters) => JSON.stringify(parameters));
    for (const [key, frame] of this.#frames) {
      if (!frame.ahead || frame.bytes || keys.includes(key)) continue;
      this.#frames.delete(key);
      frame.ahead.abort();
    }
    const pending = [...this.#frames.values()].filter((frame) => !frame.bytes).length;
    wanted
      .filter((_, at) => !this.#frames.has(keys[at]))
      .slice(0, Math.max(0, AT_ONCE - pending))
      .forEach((parameters) => {
        const controller = new AbortController();
        // Whoever wants it sees its error.
        this.#start(JSON.stringify(parameters), parameters, controller.signal, controller).answer.catch(() => {});
      });
  }

  /**
   * @param {string} key
   * @param {Parameters} parameters
   * @param {AbortSignal} signal
   * @param {AbortController | null} ahead
   */
  #start(key, parameters, signal, ahead) {
    /** @type {Frame} */
    const frame = { answer: this.ask(this.route, parameters, signal), bytes: 0, asked: performance.now(), signal, ahead };
    this.#frames.set(key, frame);
    frame.answer.then(
      (answer) => {
        frame.bytes = Object.values(answer.arrays).reduce((sum, array) => sum + array.byteLength, 1);
        this.#shrink();
      },
      () => {
        if (this.#frames.get(key) === frame) this.#frames.delete(key);
      },
    );
    return frame;
  }

  #shrink() {
    let bytes = [...this.#frames.values()].reduce((sum, frame) => sum + frame.bytes, 0);
    for (const [key, frame] of this.#frames) {
      if (bytes <= MOST_BYTES) return;
      if (!frame.bytes) continue;
      this.#frames.delete(key);
      bytes -= frame.bytes;
    }
  }

  /** Forget everything, and end what is under way ahead. */
  clear() {
    for (const { ahead, bytes } of this.#frames.values()) if (!bytes) ahead?.abort();
    this.#frames.clear();
  }
}
