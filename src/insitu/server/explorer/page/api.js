// Requests to the server: JSON and binary answers, the token, errors, cancellation, a server that is gone.

import { parseArrays } from "./binary.js";

const ROOT = new URL("../api/", import.meta.url);
const TOKEN = "insitu-token";

/** An error answer of the server, or no answer (`status` 0). */
export class ApiError extends Error {
  constructor(status, message, causes = []) {
    super(message);
    this.status = status;
    this.causes = causes;
  }
}

/** Return the token of this browser tab, or null. */
export const token = () => sessionStorage.getItem(TOKEN);

/** Keep a token for as long as the tab is open; null forgets it. */
export function keepToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

/** Return the address of a route, with what is given of its parameters. */
export function address(route, parameters = {}) {
  const found = new URL(route, ROOT);
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") continue;
    found.searchParams.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  return found;
}

const followers = [];

/** Call a function with every error that concerns the whole page: no answer (status 0), a wrong token (401). */
export function followProblems(follower) {
  followers.push(follower);
}

function report(problem) {
  if (problem.status === 0 || problem.status === 401) for (const follower of followers) follower(problem);
  return problem;
}

async function ask(route, parameters, signal) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let answer;
  try {
    answer = await fetch(address(route, parameters), { headers, signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw report(new ApiError(0, "The server does not answer. It was stopped, or the network is down."));
  }
  if (answer.ok) return answer;
  throw report(await toError(answer));
}

async function toError(answer) {
  try {
    const { error } = await answer.json();
    return new ApiError(answer.status, error.message, error.caused_by ?? []);
  } catch {
    return new ApiError(answer.status, `The server answers with status ${answer.status}.`);
  }
}

async function complete(reading) {
  try {
    return await reading;
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw report(new ApiError(0, "The server's answer breaks off. It was stopped, or the network is down."));
  }
}

/** Return the JSON answer of a route. */
export async function askJson(route, parameters, signal) {
  return complete((await ask(route, parameters, signal)).json());
}

/** Return the header and the arrays (by name) of a binary answer. */
export async function askArrays(route, parameters, signal) {
  return parseArrays(await complete((await ask(route, parameters, signal)).arrayBuffer()));
}

/** Return a file that the server makes. */
export async function askFile(route, parameters, signal) {
  return complete((await ask(route, parameters, signal)).blob());
}

/** Requests of which only the newest counts: asking again aborts the one before. */
export class Latest {
  #controller = null;

  /** Run `work(signal)`; undefined if something newer was asked meanwhile. */
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
