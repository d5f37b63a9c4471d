// Paint the cells of a mosaic of chunks: rectangles to scale, or shares of pixels where there are too many.

import { cssColour, categoryColour, parseColour } from "./colour.js";
import { themeColour } from "./theme.js";

const UNWRITTEN = 2;
const ABSENT = 3;

/** Return a pattern of diagonal lines, for cells that were never written. */
function hatching(context, density) {
  const size = Math.round(7 * density);
  const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const lines = tile.getContext("2d");
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
  return context.createPattern(tile, "repeat");
}

/** Return a function from the number of a cell or pixel to its colour, by category or value. */
function colouring(header, arrays, shareOf) {
  if (arrays.category)
    return (at) => (arrays.category[at] < 0 ? themeColour("ink-faint") : categoryColour(arrays.category[at]));
  return (at) =>
    Number.isNaN(arrays.value[at]) ? themeColour("ink-faint") : cssColour("viridis", false, shareOf(arrays.value[at]));
}

/** Paint what `chunks` answered; `shareOf(value)` places a value in the colour map. */
export function paintChunks(canvas, { header, arrays }, y, x, shareOf) {
  const context = canvas.getContext("2d");
  context.fillStyle = themeColour("absent");
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (header.form === "cells") paintCells(context, header, arrays, y, x, shareOf);
  else paintPixels(context, header, arrays, y, shareOf);
}

function paintCells(context, header, arrays, y, x, shareOf) {
  const density = context.canvas.width / x.span;
  const colourOf = colouring(header, arrays, shareOf);
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
    if (right - left > 4 && bottom - top > 4) {
      context.strokeStyle = line;
      context.lineWidth = density * (right - left > 20 && bottom - top > 20 ? 1.2 : 0.6);
      context.strokeRect(left, top, right - left, bottom - top);
    }
  }
}

function paintPixels(context, header, arrays, y, shareOf) {
  const [rows, columns] = header.shape;
  const colourOf = colouring(header, arrays, shareOf);
  const known = new Map();
  const rgb = (at) => {
    const text = colourOf(at);
    if (!known.has(text)) known.set(text, parseColour(text));
    return known.get(text);
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
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, context.canvas.width, context.canvas.height);
}
