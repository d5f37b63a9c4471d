// The state of the page, kept in the address after `#`: a link shows the same picture. No token is ever part of it.

const JSON_KEYS = new Set(["index", "box", "point", "over", "chunk_box", "cell"]);
const NUMBER_KEYS = new Set(["low", "high", "start"]);
const listeners = [];
let shown = "";

/** Return the state that the address holds. */
export function readState() {
  const state = {};
  for (const part of location.hash.slice(1).split("&")) {
    try {
      // Not URLSearchParams: there "+" is a space, and paths that people type contain it.
      const [key, text] = part.split(/=(.*)/s).map(decodeURIComponent);
      if (!key || text === undefined) continue;
      state[key] = JSON_KEYS.has(key) ? JSON.parse(text) : NUMBER_KEYS.has(key) ? finite(text) : text;
    } catch {
      // A mistyped link: that part of it is left out.
    }
  }
  return checkShapes(state);
}

function finite(text) {
  const number = Number(text);
  if (!Number.isFinite(number)) throw new RangeError(text);
  return number;
}

function checkShapes(state) {
  const integers = (list, count) => Array.isArray(list) && list.length === count && list.every(Number.isInteger);
  for (const key of ["box", "chunk_box"]) if (state[key] && !integers(state[key], 4)) delete state[key];
  if (state.point && !integers(state.point, 2)) delete state.point;
  if (state.over && !(Array.isArray(state.over) && state.over.every((name) => typeof name === "string")))
    delete state.over;
  for (const key of ["index", "cell"]) {
    const map = state[key];
    if (map !== undefined && (map === null || typeof map !== "object" || Array.isArray(map))) delete state[key];
    for (const [name, at] of Object.entries(state[key] ?? {})) if (!Number.isInteger(at)) delete state[key][name];
  }
  return state;
}

/** Return the part after `#` of a link to a state. */
export function formatState(state) {
  const parts = Object.entries(state)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => {
      const text = JSON_KEYS.has(key) ? JSON.stringify(value) : String(value);
      return `${key}=${encodeURIComponent(text).replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",")}`;
    });
  return `#${parts.join("&")}`;
}

/** Put changes into the address and tell the listeners. `replace`: no new step for the back button. */
export function changeState(changes, { replace = false, fresh = false } = {}) {
  const hash = formatState(fresh ? changes : { ...readState(), ...changes });
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  tell();
}

/** Call a function with the state now, and whenever it changes. */
export function followState(listener) {
  listeners.push(listener);
}

function tell() {
  if (location.hash === shown) return;
  shown = location.hash;
  const state = readState();
  for (const listener of listeners) listener(state);
}

/** Start to follow the address: links, back button, typing. */
export function startAddress() {
  addEventListener("popstate", tell);
  addEventListener("hashchange", tell);
  shown = null;
  tell();
}
