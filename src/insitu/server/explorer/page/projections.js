// Map projections of the sphere: longitude and latitude <-> pixels, by d3-geo's formulas.

import {
  geoEqualEarth,
  geoEqualEarthRaw,
  geoEquirectangular,
  geoEquirectangularRaw,
  geoMercator,
  geoMercatorRaw,
  geoOrthographic,
  geoStereographic,
} from "./vendor/plotting.js";

/** @import { GeoProjection, GeoRawProjection } from "d3-geo" */

/** @typedef {[number, number]} Place longitude and latitude in degrees */
/** @typedef {[number, number]} Point left and top in pixels */
/** @typedef {"plate" | "mercator" | "equal-earth" | "north" | "south" | "globe"} ProjectionName */

/**
 * @typedef {object} ProjectionKind
 * @property {string} label
 * @property {() => GeoProjection} make
 * @property {(GeoRawProjection & { invert: (x: number, y: number) => [number, number] }) | null} raw of a projection whose
 *   parallels are straight lines, along which longitudes are evenly spaced; null of those that draw a hemisphere as a disc
 * @property {number} [pole] latitude of the middle of the disc
 * @property {number} [limit] highest latitude that can be drawn
 */

/** @type {Record<ProjectionName, ProjectionKind>} Projections by their names in the address. */
export const PROJECTIONS = {
  plate: { label: "Plate carrée", make: geoEquirectangular, raw: withInverse(geoEquirectangularRaw) },
  mercator: { label: "Mercator", make: geoMercator, raw: withInverse(geoMercatorRaw), limit: 85.0511287798066 },
  "equal-earth": { label: "Equal Earth", make: geoEqualEarth, raw: withInverse(geoEqualEarthRaw) },
  north: { label: "North polar stereographic", make: geoStereographic, raw: null, pole: 90 },
  south: { label: "South polar stereographic", make: geoStereographic, raw: null, pole: -90 },
  globe: { label: "Globe (orthographic)", make: geoOrthographic, raw: null },
};

const RADIANS = Math.PI / 180;

/**
 * Return a formula with its inverse, of which the published types do not know.
 *
 * @param {unknown} raw
 */
function withInverse(raw) {
  return /** @type {GeoRawProjection & { invert: (x: number, y: number) => [number, number] }} */ (raw);
}

/**
 * Return a longitude from -180 up to, but not including, 180.
 *
 * @param {number} lon
 */
export function wrapLongitude(lon) {
  return lon - 360 * Math.floor((lon + 180) / 360);
}

/**
 * Return whether a name is that of a projection.
 *
 * @param {string | undefined} name
 * @returns {name is ProjectionName}
 */
export function isProjection(name) {
  return name !== undefined && Object.hasOwn(PROJECTIONS, name);
}

/**
 * A projection with the place in the middle of the picture. The meridian of that place is a straight, upright line: maps
 * are moved sideways by turning the earth under them, so that no place is cut off for good.
 */
export class MapProjection {
  /**
   * @param {ProjectionName} name
   * @param {Place} centre in the middle of the picture
   * @param {number} scale pixels for each unit of the projection, in which the earth has the radius 1
   * @param {{ width: number, height: number }} size of the picture in pixels
   */
  constructor(name, centre, scale, size) {
    this.name = name;
    this.kind = PROJECTIONS[name];
    const limit = this.kind.limit ?? 90;
    this.centre = /** @type {Place} */ ([wrapLongitude(centre[0]), Math.max(-limit, Math.min(limit, centre[1]))]);
    this.scale = scale;
    this.size = size;
    const [lon, lat] = this.centre;
    /** Latitude of the middle of a disc, or of the others, 0. */
    this.axis = this.kind.raw ? 0 : (this.kind.pole ?? lat);
    /** Where the middle of the projection lies on the screen. */
    this.middle = /** @type {Point} */ ([size.width / 2, size.height / 2 + scale * this.#heightOf(lat)]);
    this.path = this.kind.make().rotate([-lon, -this.axis]).scale(scale).translate(this.middle);
    if (!this.kind.raw) this.path.clipAngle(90 - 1e-6);
    this.path.clipExtent([
      [-2, -2],
      [size.width + 2, size.height + 2],
    ]);
    /** What tells it from other ones. */
    this.key = `${name} ${this.centre} ${scale} ${size.width} ${size.height}`;
  }

  /**
   * Return how high a place on the middle meridian lies above the middle of the projection.
   *
   * @param {number} lat
   */
  #heightOf(lat) {
    const { raw, pole } = this.kind;
    if (raw) return raw(0, lat * RADIANS)[1];
    if (pole === undefined) return 0;
    return pole > 0 ? -Math.tan(((90 - lat) / 2) * RADIANS) : Math.tan(((90 + lat) / 2) * RADIANS);
  }

  /**
   * Return the pixel of a place; null where it is not on the map.
   *
   * @param {number} lon
   * @param {number} lat
   * @returns {Point | null}
   */
  project(lon, lat) {
    if (!this.shows(lon, lat)) return null;
    return this.path([lon, lat]);
  }

  /**
   * Return whether a place is on the map, be it outside of the picture.
   *
   * @param {number} lon
   * @param {number} lat
   */
  shows(lon, lat) {
    if (!(Math.abs(lat) <= (this.kind.limit ?? 90))) return false;
    return Boolean(this.kind.raw) || this.cosine(lon, lat) >= 0;
  }

  /**
   * Return the cosine of the angle between a place and the middle of the projection.
   *
   * @param {number} lon
   * @param {number} lat
   */
  cosine(lon, lat) {
    const [phi, axis, lambda] = [lat * RADIANS, this.axis * RADIANS, (lon - this.centre[0]) * RADIANS];
    return Math.sin(phi) * Math.sin(axis) + Math.cos(phi) * Math.cos(axis) * Math.cos(lambda);
  }

  /**
   * Return the place at a pixel; null outside of the map.
   *
   * @param {Point} point
   * @returns {Place | null}
   */
  invert([left, top]) {
    /** @type {Place | null} */
    let found = null;
    this.eachPlace([left], [top], (_, lon, lat) => {
      found = [lon, lat];
    });
    return found;
  }

  /**
   * Call a function with the places of a grid of pixels, row by row; pixels outside of the map are left out. Longitudes
   * are not wrapped: they lie within 180 degrees of that in the middle.
   *
   * @param {ArrayLike<number>} lefts
   * @param {ArrayLike<number>} tops
   * @param {(pixel: number, lon: number, lat: number) => void} visit
   */
  eachPlace(lefts, tops, visit) {
    const { raw } = this.kind;
    if (raw) this.#eachOnParallels(raw, lefts, tops, visit);
    else this.#eachOnDisc(lefts, tops, visit);
  }

  /**
   * @param {NonNullable<ProjectionKind["raw"]>} raw
   * @param {ArrayLike<number>} lefts
   * @param {ArrayLike<number>} tops
   * @param {(pixel: number, lon: number, lat: number) => void} visit
   */
  #eachOnParallels(raw, lefts, tops, visit) {
    const [x0, y0] = this.middle;
    const highest = raw(0, (this.kind.limit ?? 90) * RADIANS)[1];
    for (let row = 0; row < tops.length; row += 1) {
      const y = (y0 - tops[row]) / this.scale;
      if (Math.abs(y) > highest) continue;
      const [perUnit, phi] = raw.invert(1, y);
      const [factor, lat] = [perUnit / this.scale / RADIANS, phi / RADIANS];
      for (let column = 0; column < lefts.length; column += 1) {
        const away = (lefts[column] - x0) * factor;
        if (away >= -180 && away <= 180) visit(row * lefts.length + column, this.centre[0] + away, lat);
      }
    }
  }

  /**
   * @param {ArrayLike<number>} lefts
   * @param {ArrayLike<number>} tops
   * @param {(pixel: number, lon: number, lat: number) => void} visit
   */
  #eachOnDisc(lefts, tops, visit) {
    const [x0, y0] = this.middle;
    const [sine, cosine] = [Math.sin(this.axis * RADIANS), Math.cos(this.axis * RADIANS)];
    const isStereographic = this.kind.pole !== undefined;
    for (let row = 0; row < tops.length; row += 1) {
      const y = (y0 - tops[row]) / this.scale;
      for (let column = 0; column < lefts.length; column += 1) {
        const x = (lefts[column] - x0) / this.scale;
        const square = x * x + y * y;
        if (square > 1) continue;
        // The point of the unit sphere: forwards to the viewer, to the right, upwards.
        const ahead = isStereographic ? (1 - square) / (1 + square) : Math.sqrt(1 - square);
        const [right, up] = isStereographic ? [(2 * x) / (1 + square), (2 * y) / (1 + square)] : [x, y];
        const lat = Math.asin(Math.max(-1, Math.min(1, ahead * sine + up * cosine))) / RADIANS;
        const lon = this.centre[0] + Math.atan2(right, ahead * cosine - up * sine) / RADIANS;
        visit(row * lefts.length + column, lon, lat);
      }
    }
  }

  /**
   * Return this projection moved so that a place lies at a pixel, as nearly as it can be.
   *
   * @param {Place} place
   * @param {Point} point
   */
  movedTo(place, point) {
    /** @type {MapProjection} */
    let moved = this;
    for (let round = 0; round < 6; round += 1) {
      const there = moved.invert(point);
      if (!there) return moved;
      const [east, north] = [wrapLongitude(place[0] - there[0]), place[1] - there[1]];
      if (Math.abs(east) < 1e-9 && Math.abs(north) < 1e-9) break;
      const centre = /** @type {Place} */ ([moved.centre[0] + east, moved.centre[1] + north]);
      moved = new MapProjection(this.name, centre, this.scale, this.size);
    }
    return moved;
  }
}

/**
 * Return the size of the whole map in units of the projection.
 *
 * @param {ProjectionName} name
 */
export function worldExtent(name) {
  const { raw, limit = 90 } = PROJECTIONS[name];
  if (!raw) return { width: 2, height: 2 };
  return { width: 2 * raw(Math.PI, 0)[0], height: 2 * raw(0, limit * RADIANS)[1] };
}

/**
 * What lies within meridians and parallels.
 *
 * @typedef {{ west: number, east: number, south: number, north: number }} Bounds
 */

/**
 * Return the place in the middle of a region and the size of the region, in units of a projection.
 *
 * @param {ProjectionName} name
 * @param {Bounds} bounds
 * @returns {{ centre: Place, width: number, height: number }}
 */
export function fitBounds(name, { west, east, south, north }) {
  const { pole, raw } = PROJECTIONS[name];
  const world = worldExtent(name);
  const isRound = east - west > 359; // all longitudes
  const lon = (west + east) / 2;
  /** @type {Place} */
  const whole = [isRound && !raw ? 0 : lon, pole ?? (raw ? 0 : (south + north) / 2)];
  if (!raw && isRound && pole !== undefined) {
    const radius = Math.min(1, Math.tan(((90 - (pole > 0 ? south : -north)) / 2) * RADIANS));
    return { centre: whole, width: 2 * radius, height: 2 * radius };
  }
  if (!raw && isRound && north - south > 90) return { centre: [0, 20], ...world };
  const unit = new MapProjection(name, whole, 1, { width: 0, height: 0 });
  const steps = Array.from({ length: 33 }, (_, at) => at / 32);
  const { limit = 90 } = unit.kind;
  const points = steps.flatMap((down) =>
    steps.map((along) => {
      const lat = Math.max(-limit, Math.min(limit, south + (north - south) * down));
      const away = (east - west) * (along - 0.5);
      // At the date line of the map the left and the right edge are one place: beyond them d3 wraps.
      return unit.project(lon + Math.max(-180 + 1e-9, Math.min(180 - 1e-9, away)), lat);
    }),
  );
  const found = points.filter((point) => point !== null);
  if (!found.length) return { centre: whole, ...world };
  const [lefts, tops] = [found.map(([left]) => left), found.map(([, top]) => top)];
  const [left, right, top, bottom] = [Math.min(...lefts), Math.max(...lefts), Math.min(...tops), Math.max(...tops)];
  const middle = unit.invert([raw || pole !== undefined ? 0 : (left + right) / 2, (top + bottom) / 2]) ?? whole;
  return {
    centre: [raw || pole !== undefined ? whole[0] : middle[0], middle[1]],
    width: Math.max(1e-6, right - left),
    height: Math.max(1e-6, bottom - top),
  };
}

/**
 * Return the places of a polygon with longitudes that do not jump; one around a pole is closed along it.
 *
 * @param {Place[]} places
 * @returns {Place[]}
 */
export function closeAroundPole(places) {
  /** @type {Place[]} */
  const ring = [];
  for (const [lon, lat] of [...places, places[0]]) {
    const before = ring.at(-1)?.[0] ?? lon;
    ring.push([before + wrapLongitude(lon - before), lat]);
  }
  const [first, end] = [ring[0], ring[ring.length - 1]];
  if (Math.abs(end[0] - first[0]) < 180) return ring.slice(0, -1);
  const pole = 90 * Math.sign(ring.reduce((sum, [, lat]) => sum + lat, 0) || 1);
  return [...ring, [end[0], pole], [first[0], pole]];
}
