// Table from the pixels of a map to the cells of a field: made once for a projection, looked up for every frame.

/** @import { Numbers } from "./binary.js" */
/** @import { MapProjection } from "./projections.js" */

/** Entries of a table: outside of the map, no cell, and the first cell. */
export const [OUTSIDE, EMPTY, FIRST] = [0, 1, 2];

/**
 * What a pixel shows, for `width` × `height` of them.
 *
 * @typedef {{ cells: Int32Array, width: number, height: number }} CellTable
 */

/** Cells of one side by coordinate; they need not have one size, and may run downwards. */
class EdgeSearch {
  /** @param {Numbers} edges */
  constructor(edges) {
    this.count = edges.length - 1;
    this.falling = edges[this.count] < edges[0];
    this.edges = this.falling ? Float64Array.from(edges).reverse() : Float64Array.from(edges);
    this.low = this.edges[0];
    this.high = this.edges[this.count];
    // Where to begin: bins of one size, each with the first cell that reaches into it.
    const bins = Math.max(64, 4 * this.count);
    this.factor = bins / (this.high - this.low || 1);
    this.starts = new Int32Array(bins + 1);
    let cell = 0;
    for (let bin = 0; bin <= bins; bin += 1) {
      while (cell < this.count - 1 && this.edges[cell + 1] <= this.low + bin / this.factor) cell += 1;
      this.starts[bin] = cell;
    }
  }

  /**
   * Return the cell of a coordinate, or -1 outside of all.
   *
   * @param {number} position
   */
  find(position) {
    if (!(position >= this.low && position <= this.high)) return -1;
    let cell = this.starts[Math.floor((position - this.low) * this.factor)];
    while (cell < this.count - 1 && position >= this.edges[cell + 1]) cell += 1;
    return this.falling ? this.count - 1 - cell : cell;
  }
}

/**
 * Return the pixels of a canvas, in those of the screen.
 *
 * @param {MapProjection} projection
 * @param {number} density canvas pixels for each of the screen
 */
function pixelGrid({ size }, density) {
  /** @type {(length: number) => Float64Array} */
  const middles = (length) => Float64Array.from({ length: Math.max(1, Math.round(length * density)) }, (_, at) => (at + 0.5) / density);
  return { lefts: middles(size.width), tops: middles(size.height) };
}

/**
 * Return the table of a field whose cells lie between meridians and parallels.
 *
 * @param {MapProjection} projection
 * @param {number} density canvas pixels for each of the screen
 * @param {Numbers} lonEdges borders of the columns, one after the other
 * @param {Numbers} latEdges borders of the rows
 * @returns {CellTable}
 */
export function tableOfAxes(projection, density, lonEdges, latEdges) {
  const { lefts, tops } = pixelGrid(projection, density);
  const cells = new Int32Array(lefts.length * tops.length);
  const [columns, rows] = [new EdgeSearch(lonEdges), new EdgeSearch(latEdges)];
  const { low, high, count } = columns;
  // Borders of all longitudes are a little off where they are stored in 32 bits: no pixel lies between the ends.
  const isRound = high - low > 360 - (0.01 * (high - low)) / count;
  const last = columns.falling ? 0 : count - 1;
  let [knownLat, row] = [NaN, -1];
  projection.eachPlace(lefts, tops, (pixel, lon, lat) => {
    if (lat !== knownLat) [knownLat, row] = [lat, rows.find(lat)];
    const position = lon - 360 * Math.floor((lon - low) / 360);
    const found = columns.find(position);
    const column = found < 0 && isRound ? last : found;
    cells[pixel] = row < 0 || column < 0 ? EMPTY : FIRST + row * count + column;
  });
  return { cells, width: lefts.length, height: tops.length };
}

/**
 * Corners of cells: those of cell `n` are the entries `start(n)` and so on of `lon` and `lat`, by their numbers.
 *
 * @typedef {object} Corners
 * @property {number} count of cells
 * @property {Numbers} lon
 * @property {Numbers} lat
 * @property {(cell: number, into: number[]) => number} find writes the numbers of the corners of a cell; returns how many
 * @property {number} growth factor by which cells are drawn larger, as every one stands for others that were left out
 */

const POINT = 3.5; // pixels around a cell that is a point

/**
 * Return the table of a field whose cells have corners of their own, or are points. A cell is projected and filled, those
 * across the date line of the map on both sides of it; at the edge of a globe it ends there.
 *
 * @param {MapProjection} projection
 * @param {number} density canvas pixels for each of the screen
 * @param {Corners} corners
 * @returns {CellTable}
 */
export function tableOfCorners(projection, density, corners) {
  const { lefts, tops } = pixelGrid(projection, density);
  const [width, height] = [lefts.length, tops.length];
  const cells = new Int32Array(width * height);
  projection.eachPlace(lefts, tops, (pixel) => {
    cells[pixel] = EMPTY;
  });
  const table = { cells, width, height };
  const { x, y, wrap } = projectCorners(projection, density, corners.lon, corners.lat);
  /** @type {number[]} */
  const numbers = [];
  const [xs, ys] = [new Float64Array(MOST_CORNERS), new Float64Array(MOST_CORNERS)];
  const discs = corners.count > 0 && corners.find(0, numbers) === 1 ? new Float32Array(width * height).fill(Infinity) : null;
  for (let cell = 0; cell < corners.count; cell += 1) {
    const found = Math.min(corners.find(cell, numbers), MOST_CORNERS - 3);
    let isWhole = found > 0;
    for (let at = 0; at < found && isWhole; at += 1) {
      [xs[at], ys[at]] = [x[numbers[at]], y[numbers[at]]];
      isWhole = Number.isFinite(xs[at]) && Number.isFinite(ys[at]);
    }
    if (!isWhole) continue;
    if (discs && found === 1) fillDisc(table, discs, xs[0], ys[0], POINT * density, FIRST + cell);
    else if (wrap) fillAround(table, wrap, corners.lat, numbers, xs, ys, found, corners.growth, FIRST + cell);
    else {
      grow(xs, ys, found, corners.growth);
      fillPolygon(table, xs, ys, found, FIRST + cell);
    }
  }
  return table;
}

const MOST_CORNERS = 64; // of a cell; further ones are left out

/**
 * How a map repeats itself sideways: its middle, pixels of a whole turn at each corner and at the poles, and where these lie.
 *
 * @typedef {{ middle: number, turn: Float64Array, poleTurn: number, top: number, bottom: number }} Wrap
 */

/**
 * Return the pixels of corners; NaN where they are not on the map.
 *
 * @param {MapProjection} projection
 * @param {number} density
 * @param {Numbers} lon
 * @param {Numbers} lat
 */
function projectCorners(projection, density, lon, lat) {
  const { raw, limit = 90 } = projection.kind;
  const [x, y] = [new Float64Array(lon.length), new Float64Array(lon.length)];
  const [x0, y0] = [projection.middle[0] * density, projection.middle[1] * density];
  const scale = projection.scale * density;
  const [lon0, radians] = [projection.centre[0], Math.PI / 180];
  if (raw) {
    const turn = new Float64Array(lon.length);
    for (let at = 0; at < lon.length; at += 1) {
      const [factor, up] = raw(1, Math.max(-limit, Math.min(limit, lat[at])) * radians);
      const away = lon[at] - lon0;
      turn[at] = 2 * Math.PI * factor * scale;
      x[at] = x0 + (away / 360 - Math.floor(away / 360 + 0.5)) * turn[at];
      y[at] = y0 - up * scale;
    }
    const highest = raw(0, limit * radians)[1] * scale;
    const poleTurn = raw(1, limit * radians)[0] * 2 * Math.PI * scale;
    return { x, y, /** @type {Wrap} */ wrap: { turn, top: y0 - highest, bottom: y0 + highest, poleTurn, middle: x0 } };
  }
  const [sine, cosine] = [Math.sin(projection.axis * radians), Math.cos(projection.axis * radians)];
  const isStereographic = projection.kind.pole !== undefined;
  for (let at = 0; at < lon.length; at += 1) {
    const [lambda, phi] = [(lon[at] - lon0) * radians, lat[at] * radians];
    const ahead = Math.cos(phi) * Math.cos(lambda);
    const right = Math.cos(phi) * Math.sin(lambda);
    const towards = Math.sin(phi) * sine + ahead * cosine;
    const up = Math.sin(phi) * cosine - ahead * sine;
    // Corners behind the edge of a globe are put on it, so that cells end there; those far behind have no place.
    const isFar = towards < (isStereographic ? -0.7 : -0.3);
    const length = isStereographic ? 1 + towards : towards < 0 ? Math.hypot(right, up) : 1;
    x[at] = isFar ? NaN : x0 + (scale * right) / length;
    y[at] = isFar ? NaN : y0 - (scale * up) / length;
  }
  return { x, y, wrap: null };
}

/**
 * Fill a cell of a map that repeats itself sideways.
 *
 * @param {CellTable} table
 * @param {Wrap} wrap
 * @param {Numbers} lat
 * @param {number[]} numbers of the corners
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {number} count
 * @param {number} growth
 * @param {number} entry
 */
function fillAround(table, wrap, lat, numbers, xs, ys, count, growth, entry) {
  // Turns of the corners: each is next to the one before it, which may lie beyond the date line of the map.
  /** @type {{ share: number, turn: number, y: number }[]} */
  let ring = [];
  let through = -1; // the corner before which an edge leads over a pole
  for (let at = 0; at <= count; at += 1) {
    const number = numbers[at % count];
    const turn = wrap.turn[number];
    let share = turn > 0 ? (xs[at % count] - wrap.middle) / turn : 0;
    if (at) {
      share -= Math.round(share - ring[at - 1].share);
      if (Math.abs(share - ring[at - 1].share) > 0.4999) through = at;
    }
    ring.push({ share, turn, y: ys[at % count] });
  }
  const around = Math.round(ring[count].share - ring[0].share);
  const pole = { turn: wrap.poleTurn, y: lat[numbers[0]] > 0 ? wrap.top : wrap.bottom };
  if (through > 0) {
    // It leads half around, one way or the other: the way on which the ring closes.
    for (let at = through; at <= count; at += 1) ring[at].share -= around;
    const [before, behind] = [ring[through - 1], ring[through]];
    ring.splice(through, 0, { share: before.share, ...pole }, { share: behind.share, ...pole });
    ring.pop();
  } else if (around) {
    // The ring goes around a pole: it is closed along the edge of the map.
    ring.push({ share: ring[count].share, ...pole }, { share: ring[0].share, ...pole });
  } else ring.pop();
  const shares = ring.map(({ share }) => share);
  const copies = [0, ...(Math.max(...shares) > 0.5 ? [-1] : []), ...(Math.min(...shares) < -0.5 ? [1] : [])];
  for (const by of copies) {
    ring.forEach(({ share, turn, y }, at) => {
      xs[at] = wrap.middle + (share + by) * turn;
      ys[at] = y;
    });
    if (!around && through < 0) grow(xs, ys, ring.length, growth);
    fillPolygon(table, xs, ys, ring.length, entry);
  }
}

/**
 * Draw a cell larger, around its middle.
 *
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {number} count
 * @param {number} factor
 */
function grow(xs, ys, count, factor) {
  if (factor <= 1) return;
  let [x, y] = [0, 0];
  for (let at = 0; at < count; at += 1) [x, y] = [x + xs[at] / count, y + ys[at] / count];
  for (let at = 0; at < count; at += 1) [xs[at], ys[at]] = [x + (xs[at] - x) * factor, y + (ys[at] - y) * factor];
}

/**
 * Fill the pixels whose middles lie in a polygon: neighbours that share corners leave no gap and do not overlap.
 *
 * @param {CellTable} table
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {number} count
 * @param {number} entry
 */
function fillPolygon({ cells, width, height }, xs, ys, count, entry) {
  let [low, high] = [Infinity, -Infinity];
  for (let at = 0; at < count; at += 1) {
    if (ys[at] < low) low = ys[at];
    if (ys[at] > high) high = ys[at];
  }
  const [first, last] = [Math.max(0, Math.ceil(low - 0.5)), Math.min(height - 1, Math.ceil(high - 0.5) - 1)];
  for (let row = first; row <= last; row += 1) {
    const middle = row + 0.5;
    let crossings = 0;
    for (let at = 0; at < count; at += 1) {
      const next = at + 1 === count ? 0 : at + 1;
      const [y0, y1] = [ys[at], ys[next]];
      if (y0 <= middle === y1 <= middle) continue;
      let place = xs[at] + ((middle - y0) / (y1 - y0)) * (xs[next] - xs[at]);
      let slot = crossings;
      // Few crossings: they are sorted while they are found.
      while (slot > 0 && CROSSINGS[slot - 1] > place) {
        CROSSINGS[slot] = CROSSINGS[slot - 1];
        slot -= 1;
      }
      CROSSINGS[slot] = place;
      crossings += 1;
    }
    for (let pair = 0; pair + 1 < crossings; pair += 2) {
      const begin = row * width + Math.max(0, Math.ceil(CROSSINGS[pair] - 0.5));
      const end = row * width + Math.min(width, Math.ceil(CROSSINGS[pair + 1] - 0.5));
      for (let pixel = begin; pixel < end; pixel += 1) if (cells[pixel] !== OUTSIDE) cells[pixel] = entry;
    }
  }
}

const CROSSINGS = new Float64Array(MOST_CORNERS);

/**
 * Fill the pixels around a point that are not nearer to another one.
 *
 * @param {CellTable} table
 * @param {Float32Array} distances of the pixels to the points of their cells
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {number} entry
 */
function fillDisc({ cells, width, height }, distances, x, y, radius, entry) {
  /** @type {(at: number, length: number) => [number, number]} */
  const range = (at, length) => [Math.max(0, Math.floor(at - radius)), Math.min(length - 1, Math.ceil(at + radius))];
  const [[left, right], [top, bottom]] = [range(x, width), range(y, height)];
  for (let row = top; row <= bottom; row += 1) {
    for (let column = left; column <= right; column += 1) {
      const away = Math.hypot(column + 0.5 - x, row + 0.5 - y);
      const pixel = row * width + column;
      if (away > radius || away >= distances[pixel] || cells[pixel] === OUTSIDE) continue;
      distances[pixel] = away;
      cells[pixel] = entry;
    }
  }
}

/**
 * Paint the values of fields, the later ones over those before. Every value is coloured once, and a pixel is a look-up:
 * 10 frames a second and more of a picture of a million pixels.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {{ table: CellTable, values: Numbers, paint: (value: number) => number }[]} layers whose tables have one size;
 *   `paint` gives a 32-bit pixel, 0 for missing (the hatching behind shows)
 * @param {{ outside: number, empty: number }} ground pixels where there is no cell
 */
export function paintTables(context, layers, { outside, empty }) {
  const { width, height } = layers[0].table;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  layers.forEach(({ table: { cells }, values, paint }, at) => {
    const coloured = new Uint32Array(values.length + FIRST);
    [coloured[OUTSIDE], coloured[EMPTY]] = [outside, empty];
    for (let cell = 0; cell < values.length; cell += 1) coloured[FIRST + cell] = paint(values[cell]);
    if (at === 0) for (let pixel = 0; pixel < pixels.length; pixel += 1) pixels[pixel] = coloured[cells[pixel]];
    else
      for (let pixel = 0; pixel < pixels.length; pixel += 1)
        if (cells[pixel] >= FIRST) pixels[pixel] = coloured[cells[pixel]];
  });
  context.putImageData(image, 0, 0);
}
