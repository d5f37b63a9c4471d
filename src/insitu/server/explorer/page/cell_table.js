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
 * Paint the values of fields, the later ones over those before. Every value is coloured once, and a pixel is a look-up:
 * 10 frames a second and more of a picture of a million pixels.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {{ table: CellTable, values: Numbers }[]} layers whose tables have one size
 * @param {(value: number) => number} paint gives a 32-bit pixel, 0 for missing (the hatching behind shows)
 * @param {{ outside: number, empty: number }} ground pixels where there is no cell
 */
export function paintTables(context, layers, paint, { outside, empty }) {
  const { width, height } = layers[0].table;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  layers.forEach(({ table: { cells }, values }, at) => {
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
