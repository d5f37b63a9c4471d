// What an error of the server means for the person at the page: a title, what to do, and whether asking again helps.

/**
 * What is known of an error answer.
 *
 * @typedef {object} Failure
 * @property {number} status HTTP status; 0: no answer
 * @property {string | null} kind of the error, as the server names it; null: the answer is not insitu's
 * @property {number | null} retryAfter seconds after which to ask again
 */

/**
 * @typedef {object} Advice
 * @property {string} title what happened
 * @property {string} text what to do; empty: the message says it
 * @property {"again" | "reload" | "reset" | "list" | null} way out: ask again, open the archive anew, show the variable as
 *   at first, list all archives
 */

/** @type {Record<string, Advice>} */
const BY_KIND = {
  "too-large": {
    title: "Too large for this server",
    text: "Draw a smaller box, reduce fewer positions at a time, or run the code below the picture: Python has no such limit.",
    way: "reset",
  },
  "selection-size": {
    title: "Too large for this server",
    text: "Draw a smaller box, or run the code below the picture: Python has no such limit.",
    way: "reset",
  },
  late: {
    title: "This takes longer than the server allows",
    text: "Draw a smaller box or choose another dimension, so that fewer chunks are read. Chunks that were read already are kept for a while: asking again may be faster.",
    way: "again",
  },
  timeout: {
    title: "The storage does not answer in time",
    text: "It is slow or not reachable just now. Ask again in a moment; if that does not help, ask those who run the storage.",
    way: "again",
  },
  source: {
    title: "The storage cannot be read",
    text: "The server reached it, but got no data. Ask again in a moment; if that does not help, see whether the file is still there.",
    way: "again",
  },
  stale: {
    title: "The archive changes while it is read",
    text: "Open it anew to see what it holds now.",
    way: "reload",
  },
  "not-found": {
    title: "There is nothing at this place",
    text: "It was moved or deleted, or its name is mistyped. The list shows what this server has.",
    way: "list",
  },
  refused: {
    title: "This server may not show it",
    text: "It shows what lies under the folders that it was started for. The list shows them.",
    way: "list",
  },
  access: {
    title: "The storage refuses access",
    text: "The server needs credentials for it: start it with --option key=… --option secret=…, or ask its operator.",
    way: "again",
  },
  variable: {
    title: "The archive has no such variable",
    text: "Choose one of its variables. If the archive was written anew, open it anew.",
    way: "reload",
  },
  group: {
    title: "The archive has no such group",
    text: "Choose one of its groups. If the archive was written anew, open it anew.",
    way: "reload",
  },
  selection: {
    title: "The link does not fit the data",
    text: "It asks for positions that the variable does not have, perhaps as the archive has changed.",
    way: "reset",
  },
  request: {
    title: "The page asks for something that cannot be shown",
    text: "The link may be mistyped, or the archive may have changed since it was made.",
    way: "reset",
  },
  model: { title: "This cannot be computed", text: "Change the formula, or choose other variables.", way: null },
  combine: {
    title: "These files do not make one dataset",
    text: "Open them one by one, or name those that belong together by a narrower pattern. How files are joined can be said in Python: insitu.open_mfdataset.",
    way: "list",
  },
  codec: {
    title: "The data cannot be decoded",
    text: "A chunk is damaged, or written in a way that is not supported. Other chunks and variables may be readable; insitu check URL says what is damaged.",
    way: "again",
  },
  "unknown-codec": {
    title: "The data cannot be decoded",
    text: "The server lacks the codec. Its operator can install it; the Chunks tab still shows how the data are stored.",
    way: "again",
  },
  checksum: {
    title: "The data are damaged",
    text: "A checksum does not fit. Copy the file again from where it came; insitu check URL names all damaged chunks.",
    way: "again",
  },
  truncated: {
    title: "The file is cut off",
    text: "It may still be being written, or its copy was interrupted: wait, or copy it again.",
    way: "again",
  },
  format: {
    title: "This is no archive that can be read",
    text: "Its first bytes are those of no known format. The list shows what this server has.",
    way: "list",
  },
  unsupported: { title: "This is not supported", text: "", way: null },
  quota: {
    title: "You have asked for as much as this server grants at a time",
    text: "It has a limit for each client, which is free again soon.",
    way: "again",
  },
  slow: { title: "The network is slow", text: "The request took too long to reach the server.", way: "again" },
  busy: { title: "The server is busy", text: "It works for others just now.", way: "again" },
  stopping: { title: "The server restarts", text: "It comes back soon, or another one takes over.", way: "again" },
  unavailable: { title: "The server restarts", text: "It comes back soon.", way: "again" },
};

/** @type {Record<number, Advice>} */
const BY_STATUS = {
  0: {
    title: "The server does not answer",
    text: "The page goes on by itself when it is back. If you started insitu explore, see whether it still runs in its terminal; else see whether this machine has a network.",
    way: "again",
  },
  401: { title: "The server asks for a token", text: "Enter the one that its operator gave you.", way: "again" },
  404: { title: "The server has no such page", text: "It may be of another version than this page: load the page anew.", way: "reload" },
  413: BY_KIND["too-large"],
  429: BY_KIND.busy,
  500: {
    title: "The server made a mistake",
    text: "This is a fault of insitu. Its log says where: please report it with the link of this page.",
    way: "again",
  },
};

/** @type {Advice} */
const OF_PROXY = {
  title: "The server cannot be reached through the network",
  text: "Something between this page and the server, a proxy for instance, answered in its place. Ask again in a moment.",
  way: "again",
};

/** @type {Advice} */
const OF_OTHERS = { title: "This cannot be shown", text: "", way: "again" };

/**
 * Return what an error means and what to do about it.
 *
 * @param {Failure} failure
 * @returns {Advice}
 */
export function adviseOn({ status, kind }) {
  const known = kind === null ? undefined : BY_KIND[kind];
  return known ?? BY_STATUS[status] ?? (kind === null && status >= 500 ? OF_PROXY : OF_OTHERS);
}

const LEAST_WAIT = 1;
const LONGEST_WAIT = 120;

/**
 * Return the seconds after which the page asks again by itself; null: only if it is told to.
 *
 * @param {Failure} failure
 */
export function secondsToWait({ status, retryAfter }) {
  if (status !== 429 && status !== 503) return null;
  return retryAfter === null || !Number.isFinite(retryAfter)
    ? null
    : Math.min(LONGEST_WAIT, Math.max(LEAST_WAIT, Math.ceil(retryAfter)));
}
