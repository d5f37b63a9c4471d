// Paint the cells of a mosaic of chunks: rectangles to scale, or shares of pixels where there are too many.

import { cssColour, categoryColour, parseColour } from "./colour.js";
import { contextOf } from "./raster.js";
import { themeColour } from "./theme.js";

/** @import { Numbers } from "./binary.js" */
/** @import { ChunkAnswer, ChunkHeader } from "./chunk_view.js" */
/** @import { IndexScale } from "./dimension_scale.js" */

const UNWRITTEN = 2;
const ABSENT = 3;

/**
 * Return a pattern of diagonal lines, for cells that were never written.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} density pixels of the canvas for each of the screen
 */
function hatching(context, density) {
  const size = Math.round(7 * density);
  const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const lines = contextOf(tile);
  lines.fillStyle = themeColour("unwritten");
  lines.fillRect(0, 0, size, size);
  lines.strokeStyle = themeColour("hatch");
  lines.lineWidth = 1.4 * density;
  for (const shift of [-size, 0, size]) {
    lines.beginPath();
    lines.moveTo(shift, size);
    lines.lineTo(shift + size, 0);
    lines.stroke();
  }
  return /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
}

/**
 * Return a function from the number of a cell or pixel to its colour, by category or value.
 *
 * @param {Record<string, Numbers>} arrays
 * @param {(value: number) => number} shareOf
 * @returns {(at: number) => string}
 */
function colouring(arrays, shareOf) {
  if (arrays.category)
    return (at) => (arrays.category[at] < 0 ? themeColour("ink-faint") : categoryColour(arrays.category[at]));
  return (at) =>
    Number.isNaN(arrays.value[at]) ? themeColour("ink-faint") : cssColour("viridis", false, shareOf(arrays.value[at]));
}

/**
 * Paint what `chunks` answered.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {ChunkAnswer} answer
 * @param {IndexScale} y
 * @param {IndexScale} x
 * @param {(value: number) => number} shareOf places a value in the colour map
 */
export function paintChunks(canvas, { header, arrays }, y, x, shareOf) {
  const context = contextOf(canvas);
  context.fillStyle = themeColour("absent");
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (header.form === "cells") paintCells(context, arrays, y, x, shareOf);
  else paintPixels(context, header, arrays, y, shareOf);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Record<string, Numbers>} arrays
 * @param {IndexScale} y
 * @param {IndexScale} x
 * @param {(value: number) => number} shareOf
 */
function paintCells(context, arrays, y, x, shareOf) {
  const density = context.canvas.width / x.span;
  const colourOf = colouring(arrays, shareOf);
  const hatch = hatching(context, density);
  const line = themeColour("paper");
  for (let at = 0; at < arrays.x0.length; at += 1) {
    if (arrays.state[at] === ABSENT) continue;
    const [left, right] = [x.scale(arrays.x0[at]) * density, x.scale(arrays.x1[at]) * density];
    const [top, bottom] = [y.scale(arrays.y0[at]) * density, y.scale(arrays.y1[at]) * density].sort(
      (one, other) => one - other,
    );
    context.fillStyle = arrays.state[at] === UNWRITTEN ? hatch : colourOf(at);
    context.fillRect(left, top, Math.max(right - left, 0.5), Math.max(bottom - top, 0.5));
    // Borders of very small cells would hide their colours.
    if (right - left > 4 && bottom - top > 4) {
      context.strokeStyle = line;
      context.lineWidth = density * (right - left > 20 && bottom - top > 20 ? 1.2 : 0.6);
      context.strokeRect(left, top, right - left, bottom - top);
    }
  }
}

/**
 * Paint shares of pixels: what is stored in the colour of its category or value, mixed with what is not there.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {ChunkHeader} header
 * @param {Record<string, Numbers>} arrays
 * @param {IndexScale} y
 * @param {(value: number) => number} shareOf
 */
function paintPixels(context, header, arrays, y, shareOf) {
  const [rows, columns] = header.shape;
  const colourOf = colouring(arrays, shareOf);
  // Pixels share few colours: a million texts take 0.8 s to parse, and 0.07 s to find here.
  /** @type {Map<string, number[]>} */
  const parsed = new Map();
  /** @param {number} at */
  const rgb = (at) => {
    const text = colourOf(at);
    const colour = parsed.get(text) ?? parseColour(text);
    parsed.set(text, colour);
    return colour;
  };
  const [unwritten, absent] = [parseColour(themeColour("hatch")), parseColour(themeColour("absent"))];
  const image = new ImageData(columns, rows);
  const isDown = y.pixelOfCell(y.count - 1) >= y.pixelOfCell(0);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const at = row * columns + column;
      const colour = rgb(at);
      const to = 4 * ((isDown ? row : rows - 1 - row) * columns + column);
      for (let part = 0; part < 3; part += 1) {
        image.data[to + part] =
          arrays.stored[at] * colour[part] + arrays.unwritten[at] * unwritten[part] + arrays.absent[at] * absent[part];
      }
      image.data[to + 3] = 255;
    }
  }
  const small = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  contextOf(small).putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, context.canvas.width, context.canvas.height);
}
