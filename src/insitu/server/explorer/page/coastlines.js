// Coastlines, borders, land and graticule on a map: Natural Earth, which ships with the page, and finer where it is zoomed.

import { feature, geoGraticule, geoPath, mesh } from "./vendor/plotting.js";

/** @import { GeoPermissibleObjects } from "d3-geo" */
/** @import { MapProjection } from "./projections.js" */

/**
 * Lines and areas of one resolution.
 *
 * @typedef {{ resolution: Resolution, land: GeoPermissibleObjects, coasts: GeoPermissibleObjects, borders: GeoPermissibleObjects }} Atlas
 */

/** @typedef {"110m" | "50m"} Resolution one to 110 or 50 million */

const FINE = 700; // pixels for each radian from which the finer lines are drawn

/** @type {Map<Resolution, Promise<Atlas | null>>} */
const requested = new Map();
/** @type {Map<Resolution, Atlas>} */
const loaded = new Map();

/**
 * Return lines and areas of a resolution; null if they cannot be had.
 *
 * @param {Resolution} resolution
 */
function loadAtlas(resolution) {
  const known = requested.get(resolution);
  if (known) return known;
  const work = fetchAtlas(resolution).then(
    (atlas) => {
      loaded.set(resolution, atlas);
      return atlas;
    },
    () => {
      requested.delete(resolution); // asked for again with the next picture
      return null;
    },
  );
  requested.set(resolution, work);
  return work;
}

/**
 * @param {Resolution} resolution
 * @returns {Promise<Atlas>}
 */
async function fetchAtlas(resolution) {
  const answer = await fetch(new URL(`./vendor/countries-${resolution}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`There are no coastlines: status ${answer.status}.`);
  const topology = await answer.json();
  const { land, countries } = topology.objects;
  return {
    resolution,
    land: feature(topology, land),
    coasts: mesh(topology, land),
    borders: mesh(topology, countries, (one, other) => one !== other),
  };
}

/**
 * Return lines for a projection, the finest of those that are there; what is missing is fetched.
 *
 * @param {MapProjection} projection
 * @param {boolean} isDraft whether the map is moving: coarse lines are enough
 * @param {() => void} onload called when better lines are there
 */
export function findAtlas({ scale }, isDraft, onload) {
  /** @type {Resolution} */
  const wanted = scale > FINE ? "50m" : "110m";
  if (!loaded.has("110m")) loadAtlas("110m").then((atlas) => atlas && onload());
  if (!isDraft && !loaded.has(wanted) && loaded.has("110m")) loadAtlas(wanted).then((atlas) => atlas && onload());
  return (isDraft ? loaded.get("110m") : loaded.get(wanted)) ?? loaded.get("110m") ?? null;
}

/** Wait until lines are there, or cannot be had. */
export async function coastlinesLoaded() {
  await Promise.all(requested.values());
}

/**
 * Return degrees between the lines of a graticule.
 *
 * @param {number} scale pixels for each radian
 */
export function graticuleStep(scale) {
  const steps = [30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];
  return steps.find((step) => (step * Math.PI * scale) / 180 < 130) ?? 0.01;
}

/**
 * Return the graticule around the middle of a map. Of a map of a city it is not that of the whole earth, which would be
 * millions of lines.
 *
 * @param {MapProjection} projection
 */
export function graticuleLines({ scale, centre, size }) {
  const step = graticuleStep(scale);
  const graticule = geoGraticule().step([step, step]).precision(Math.min(2.5, step / 2));
  const reach = Math.min(180, ((size.width + size.height) / scale) * (180 / Math.PI));
  if (reach >= 90) return graticule.extent([[-180, -90 + 1e-6], [180, 90 - 1e-6]])();
  /** @type {(at: number) => number} */
  const down = (at) => Math.floor(at / step) * step;
  const [south, north] = [Math.max(-90, down(centre[1] - reach)), Math.min(90, down(centre[1] + reach) + step)];
  const isPolar = Math.max(-south, north) >= 80;
  const [west, east] = isPolar ? [-180, 180] : [down(centre[0] - reach), down(centre[0] + reach) + step];
  return graticule.extent([[west, Math.max(south, -90 + 1e-6)], [east, Math.min(north, 90 - 1e-6)]])();
}

/**
 * Return a path on a canvas of an object on the earth.
 *
 * @param {MapProjection} projection
 * @param {GeoPermissibleObjects} object
 */
export function pathOf({ path }, object) {
  const made = new Path2D();
  const sink = {
    beginPath() {},
    /** @type {(x: number, y: number) => void} */
    moveTo: (x, y) => made.moveTo(x, y),
    /** @type {(x: number, y: number) => void} */
    lineTo: (x, y) => made.lineTo(x, y),
    /** @type {(x: number, y: number, radius: number, begin: number, end: number) => void} */
    arc: (x, y, radius, begin, end) => made.arc(x, y, radius, begin, end),
    closePath: () => made.closePath(),
  };
  geoPath(path, sink)(object);
  return made;
}
