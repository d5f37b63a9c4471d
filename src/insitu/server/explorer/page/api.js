// Requests to the server: JSON and binary answers, the token, errors, cancellation, a server that is gone.

import { parseArrays } from "./binary.js";

const ROOT = new URL("../api/", import.meta.url);
const TOKEN = "insitu-token";

/** An error answer of the server, or no answer (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {unknown[]} causes
   * @param {object} [about]
   * @param {string | null} [about.kind] of the error, as the server names it
   * @param {number | null} [about.retryAfter] seconds after which to ask again
   */
  constructor(status, message, causes = [], { kind = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.causes = causes;
    this.kind = kind;
    this.retryAfter = retryAfter;
  }
}

// Browsers may deny storage to a page in a frame of another site: then the token is kept for as long as the page is.
const memory = { token: /** @type {string | null} */ (null) };

/** Return the token of this browser tab, or null. */
export function token() {
  try {
    return sessionStorage.getItem(TOKEN) ?? memory.token;
  } catch {
    return memory.token;
  }
}

/** Take the token out of the address, where a notebook puts it for its own frame: no link shall hold it. */
export function takeTokenFromAddress() {
  const parts = location.hash.slice(1).split("&");
  const given = parts.find((part) => part.startsWith("token="));
  if (!given) return;
  keepToken(decodeURIComponent(given.slice("token=".length)));
  history.replaceState(null, "", `#${parts.filter((part) => part !== given).join("&")}`);
}

/**
 * Keep a token for as long as the tab is open; null forgets it.
 *
 * @param {string | null} text
 */
export function keepToken(text) {
  memory.token = text;
  try {
    if (text) sessionStorage.setItem(TOKEN, text);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // It stays in memory.
  }
}

/**
 * Fields of a query; null, undefined and empty texts are left out, objects are sent as JSON.
 *
 * @typedef {Record<string, unknown>} Parameters
 */

/**
 * Return the address of a route, with what is given of its parameters.
 *
 * @param {string} route
 * @param {Parameters} parameters
 */
export function address(route, parameters = {}) {
  const url = new URL(route, ROOT);
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") continue;
    url.searchParams.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  return url;
}

/** @type {((problem: ApiError) => void)[]} */
const followers = [];

/**
 * Call a function with every error that concerns the whole page: no answer (status 0), a wrong token (401).
 *
 * @param {(problem: ApiError) => void} follower
 */
export function followProblems(follower) {
  followers.push(follower);
}

/** @param {ApiError} problem */
function report(problem) {
  if (problem.status === 0 || problem.status === 401) for (const follower of followers) follower(problem);
  return problem;
}

/** @param {unknown} problem */
const isAbort = (problem) => problem instanceof DOMException && problem.name === "AbortError";

/**
 * @param {string} route
 * @param {Parameters} [parameters]
 * @param {AbortSignal} [signal]
 */
async function ask(route, parameters, signal) {
  /** @type {Record<string, string>} */
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let answer;
  try {
    answer = await fetch(address(route, parameters), { headers, signal });
  } catch (problem) {
    if (isAbort(problem)) throw problem;
    throw report(new ApiError(0, "The server does not answer. It was stopped, or the network is down."));
  }
  if (answer.ok) return answer;
  throw report(await toError(answer));
}

/** @param {Response} answer */
async function toError(answer) {
  const seconds = answer.headers.get("Retry-After");
  const about = { kind: answer.headers.get("X-Insitu-Error"), retryAfter: seconds === null ? null : Number(seconds) };
  try {
    const { error } = await answer.json();
    return new ApiError(answer.status, error.message, error.caused_by ?? [], about);
  } catch {
    return new ApiError(answer.status, `The answer has the status ${answer.status}.`, [], about);
  }
}

/**
 * Return the body of an answer, whose head came: the connection may still break while it is read.
 *
 * @template Body
 * @param {Promise<Body>} reading
 */
async function readBody(reading) {
  try {
    return await reading;
  } catch (problem) {
    if (isAbort(problem)) throw problem;
    throw report(new ApiError(0, "The server's answer breaks off. It was stopped, or the network is down."));
  }
}

/**
 * Return the JSON answer of a route.
 *
 * @param {string} route
 * @param {Parameters} [parameters]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function askJson(route, parameters, signal) {
  return readBody((await ask(route, parameters, signal)).json());
}

/**
 * Return the header and the arrays (by name) of a binary answer.
 *
 * @param {string} route
 * @param {Parameters} [parameters]
 * @param {AbortSignal} [signal]
 */
export async function askArrays(route, parameters, signal) {
  return parseArrays(await readBody((await ask(route, parameters, signal)).arrayBuffer()));
}

/**
 * Return a file that the server makes.
 *
 * @param {string} route
 * @param {Parameters} [parameters]
 * @param {AbortSignal} [signal]
 */
export async function askFile(route, parameters, signal) {
  return readBody((await ask(route, parameters, signal)).blob());
}

/** Requests of which only the newest counts: asking again aborts the one before. */
export class Latest {
  /** @type {AbortController | null} */
  #controller = null;

  /**
   * Run `work(signal)`; undefined if something newer was asked meanwhile.
   *
   * @template Result
   * @param {(signal: AbortSignal) => Promise<Result>} work
   * @returns {Promise<Result | undefined>}
   */
  async run(work) {
    this.stop();
    const controller = (this.#controller = new AbortController());
    try {
      const result = await work(controller.signal);
      return controller.signal.aborted ? undefined : result;
    } catch (problem) {
      if (controller.signal.aborted) return undefined;
      throw problem;
    }
  }

  /** Abort what is under way. */
  stop() {
    this.#controller?.abort();
    this.#controller = null;
  }
}
