// The state of the page, kept in the address after `#`: a link shows the same picture. No token is ever part of it.

/**
 * Rows and columns that are shown, ends exclusive: `[y0, y1, x0, x1]`.
 *
 * @typedef {[number, number, number, number]} Box
 */

/**
 * A box of elements, a polygon in the coordinates of the axes (`axes: "index"`: in positions, `axes: "map"`: in longitudes
 * and latitudes), or an element.
 *
 * @typedef {{ box?: Box, polygon?: [number, number][], axes?: string, point?: [number, number] }} Region
 */

/**
 * Positions of the bands that are drawn as red, green and blue.
 *
 * @typedef {[number, number, number]} Bands
 */

/**
 * What the page shows. Every entry is left out where it is as usual.
 *
 * @typedef {object} State
 * @property {string} [folder] folder that is listed
 * @property {string} [sort] column that a listing is ordered by; after a minus, the other way round
 * @property {string} [search] part of the names that are listed
 * @property {string} [url] archive that is open
 * @property {string} [group] path of the group that is shown
 * @property {string} [variable] path of the variable that is shown
 * @property {string} [view] tab of the variable's page: `chunks`, `attributes`
 * @property {Record<string, number>} [index] position along each dimension that is not drawn
 * @property {string} [y] dimension of the vertical axis
 * @property {string} [x] dimension of the horizontal axis
 * @property {Box} [box]
 * @property {string} [statistic]
 * @property {string[]} [over] dimensions that the statistic reduces
 * @property {[number, number]} [point] chosen element: row and column of the variable
 * @property {string} [line] dimension of the line plot
 * @property {Region[]} [regions] that are compared
 * @property {string} [region_line] dimension of their lines
 * @property {string} [contours] variable, or formula after `=`, of the contour lines
 * @property {string} [arrows] the two components of the arrows, with a bar between
 * @property {Bands} [rgb] bands of a composite
 * @property {string} [map] colour map
 * @property {string} [reversed]
 * @property {number} [steps] number of colours, of a map in steps
 * @property {string} [below] colours of values below and above the range and of missing ones, as `#rrggbb`
 * @property {string} [above]
 * @property {string} [missing]
 * @property {string} [log]
 * @property {number} [low] limits of the colours
 * @property {number} [high]
 * @property {string} [range] dimension whose pictures have one range of colours, `picture`: each has its own
 * @property {string} [limits] `extremes`: the range of colours is that of all values
 * @property {string} [axes] `index` for element indices
 * @property {number} [speed] pictures a second of an animation
 * @property {string} [once] `1`: an animation ends at the last position
 * @property {string} [sampling]
 * @property {string} [projection] of a map; `none`: by axes
 * @property {[number, number]} [centre] longitude and latitude in the middle of a map
 * @property {number} [zoom] of a map; 1: all is in view
 * @property {string} [lines] lines on a map, with commas between
 * @property {string} [mask] `land` or `ocean`: what a map hides
 * @property {string} [flip] `down` or `up`: where the rows run
 * @property {number} [start] first row of a table
 * @property {string} [colour] what chunks are coloured by
 * @property {string} [chunk_y] sides and box of the picture of chunks
 * @property {string} [chunk_x]
 * @property {Box} [chunk_box]
 * @property {Record<string, number>} [cell] position of the chosen chunk
 */

/**
 * Entries of a state to set; null removes one.
 *
 * @typedef {{ [Key in keyof State]?: State[Key] | null }} Changes
 */

const JSON_KEYS = new Set(["regions", "rgb", "index", "box", "point", "over", "chunk_box", "cell", "centre"]);
const NUMBER_KEYS = new Set(["low", "high", "start", "steps", "speed", "zoom"]);

/** Listeners, and the part after `#` that they know; null before the first. */
const address = {
  listeners: /** @type {((state: State) => void)[]} */ ([]),
  lastHash: /** @type {string | null} */ (null),
  /** What the address will hold as soon as it may be written again; null: it holds it. */
  pending: /** @type {string | null} */ (null),
  timer: /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined),
  written: -Infinity,
};

// Browsers refuse more than about 100 changes of an address in half a minute: an animation makes 300.
const WRITE_PAUSE = 500; // ms
const LARGEST = 1e15; // coordinate of a vertex: beyond, SVG has no place for it

/** Return the state of the page, which the address holds, or will in a moment. */
export function readState() {
  /** @type {Record<string, any>} */
  const state = {};
  for (const part of (address.pending ?? location.hash).slice(1).split("&")) {
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

/** @param {string} text */
function finite(text) {
  const number = Number(text);
  if (!Number.isFinite(number)) throw new RangeError(text);
  return number;
}

/**
 * Return a state without entries of a wrong shape, which people may have typed.
 *
 * @param {Record<string, any>} state
 * @returns {State}
 */
function checkShapes(state) {
  /** @type {(list: unknown, count: number) => boolean} */
  const integers = (list, count) => Array.isArray(list) && list.length === count && list.every(Number.isInteger);
  for (const key of ["box", "chunk_box"]) if (state[key] && !integers(state[key], 4)) delete state[key];
  if (state.rgb && !integers(state.rgb, 3)) delete state.rgb;
  if (state.point && !integers(state.point, 2)) delete state.point;
  const isPlace = Array.isArray(state.centre) && state.centre.length === 2 && state.centre.every(Number.isFinite);
  if (state.centre && !isPlace) delete state.centre;
  if (state.zoom !== undefined && !(state.zoom > 0)) delete state.zoom;
  if (state.over && !(Array.isArray(state.over) && state.over.every((name) => typeof name === "string")))
    delete state.over;
  for (const key of ["below", "above", "missing"]) if (!/^#[0-9a-f]{6}$/i.test(state[key] ?? "")) delete state[key];
  if (state.regions) {
    const isPair = (/** @type {unknown} */ pair) => Array.isArray(pair) && pair.length === 2 && pair.every((number) => Math.abs(number) <= LARGEST);
    const isRegion = (/** @type {any} */ region) =>
      integers(region?.box, 4) || integers(region?.point, 2) || (Array.isArray(region?.polygon) && region.polygon.length > 2 && region.polygon.every(isPair));
    state.regions = Array.isArray(state.regions) ? state.regions.filter(isRegion) : [];
  }
  for (const key of ["index", "cell"]) {
    const map = state[key];
    if (map !== undefined && (map === null || typeof map !== "object" || Array.isArray(map))) delete state[key];
    for (const [name, at] of Object.entries(state[key] ?? {})) if (!Number.isInteger(at)) delete state[key][name];
  }
  return state;
}

/**
 * Return the part after `#` of a link to a state.
 *
 * @param {Changes} state
 */
export function formatState(state) {
  const parts = Object.entries(state)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => {
      const text = JSON_KEYS.has(key) ? JSON.stringify(value) : String(value);
      return `${key}=${encodeURIComponent(text).replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",")}`;
    });
  return `#${parts.join("&")}`;
}

/**
 * Put changes into the address and tell the listeners.
 *
 * @param {Changes} changes
 * @param {object} [options]
 * @param {boolean} [options.replace] no new step for the back button
 * @param {boolean} [options.fresh] forget the state before
 */
export function changeState(changes, { replace = false, fresh = false } = {}) {
  const hash = formatState(fresh ? changes : { ...readState(), ...changes });
  if (replace) replaceAddress(hash);
  else {
    if (address.pending !== null) history.replaceState(null, "", address.pending); // what one goes back to
    forgetPending();
    history.pushState(null, "", hash);
  }
  notify();
}

/**
 * Write the address now, or soon if it was written just now.
 *
 * @param {string} hash
 */
function replaceAddress(hash) {
  forgetPending();
  const wait = address.written + WRITE_PAUSE - performance.now();
  if (wait > 0) {
    address.pending = hash;
    address.timer = setTimeout(() => replaceAddress(hash), wait);
    return;
  }
  address.written = performance.now();
  history.replaceState(null, "", hash);
}

function forgetPending() {
  address.pending = null;
  clearTimeout(address.timer);
}

/**
 * Call a function with the state whenever it changes.
 *
 * @param {(state: State) => void} listener
 */
export function followState(listener) {
  address.listeners.push(listener);
}

// The browser reports one step back by two events: what is known already is not shown again.
function notify() {
  const hash = address.pending ?? location.hash;
  if (hash === address.lastHash) return;
  address.lastHash = hash;
  const state = readState();
  for (const listener of address.listeners) listener(state);
}

/** Start to follow the address: links, back button, typing. */
export function startAddress() {
  const follow = () => {
    forgetPending();
    notify();
  };
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  address.lastHash = null;
  notify();
}
