// Paint sampled values on a canvas: every screen pixel shows the cell whose coordinates it lies in.

/** Paint rows × columns of values; `paint(value)` gives a 32-bit pixel, 0 for missing (the hatching behind shows). */
export function paintRaster(canvas, values, y, x, paint) {
  const { width, height } = canvas;
  const columns = x.cellsOfPixels(width);
  const rows = y.cellsOfPixels(height);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const coloured = Uint32Array.from(values, paint);
  for (let row = 0; row < height; row += 1) {
    const [from, to] = [rows[row] * x.count, row * width];
    for (let column = 0; column < width; column += 1) pixels[to + column] = coloured[from + columns[column]];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
