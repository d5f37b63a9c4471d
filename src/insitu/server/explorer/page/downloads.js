// The shown field as a file: NetCDF and CSV from the server at full resolution, PNG as it is on the screen.

import { askFile } from "./api.js";
import { contextOf } from "./raster.js";
import { themeColour } from "./theme.js";

/** @import { Variable } from "./archive.js" */
/** @import { Parameters } from "./api.js" */
/** @import { FieldView } from "./field_view.js" */

/**
 * Let the browser keep a blob as a file.
 *
 * @param {Blob} blob
 * @param {string} name
 */
export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Return a file name made of a variable's path.
 *
 * @param {Variable} variable
 * @param {string} suffix
 */
export function fileName(variable, suffix) {
  return `${variable.path.replace(/^\/+/, "").replaceAll(/[^\w.-]+/g, "_")}.${suffix}`;
}

/**
 * Download the field that the parameters of a picture describe.
 *
 * @param {"netcdf" | "csv"} format
 * @param {Parameters} parameters
 * @param {Variable} variable
 */
export async function downloadField(format, parameters, variable) {
  const file = await askFile("download", { ...parameters, format });
  saveBlob(file, fileName(variable, format === "netcdf" ? "nc" : "csv"));
}

/**
 * Download the picture of a view with axes, colour bar, title, caption and source as PNG.
 *
 * @param {FieldView} view
 */
export async function downloadPicture(view) {
  // At least twice the pixels of the screen, for papers and slides.
  const canvas = await paintPicture(view, Math.max(2, devicePixelRatio || 1));
  /** @type {Blob | null} */
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Error("This browser cannot make a picture of this size.");
  saveBlob(blob, fileName(view.variable, "png"));
}

/**
 * Return a canvas with the picture of a view, its axes, colour bar, title, caption and source.
 *
 * @param {FieldView} view
 * @param {number} density pixels for each of the screen
 */
export async function paintPicture({ picture, bar, variable, archive, answer, caption, isNarrow }, density) {
  const units = answer?.header.units ?? variable.units;
  const title = `${variable.long_name || variable.name}${units && units !== "1" ? ` (${units})` : ""}`;
  const [main, side] = [picture.axes, bar.element].map((svg) => ({
    width: Number(svg.getAttribute("width")),
    height: Number(svg.getAttribute("height")),
    svg,
  }));
  const head = 44;
  const width = isNarrow ? Math.max(main.width, side.width) : main.width + side.width + 12;
  const height = head + (isNarrow ? main.height + side.height : Math.max(main.height, side.height)) + 46;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.round(width * density), height: Math.round(height * density) });
  const context = contextOf(canvas);
  context.scale(density, density);
  context.fillStyle = themeColour("paper");
  context.fillRect(0, 0, width, height);
  context.fillStyle = themeColour("ink");
  context.font = "600 15px system-ui, sans-serif";
  context.fillText(title, 14, 26, width - 28);
  const left = parseFloat(picture.surface.style.left);
  const top = head + parseFloat(picture.surface.style.top);
  context.fillStyle = themeColour("missing");
  context.fillRect(left, top, picture.size.width, picture.size.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture.canvas, left, top, picture.size.width, picture.size.height);
  if (picture.overlay.childElementCount)
    context.drawImage(await rasterOf(picture.overlay), left, top, picture.size.width, picture.size.height);
  context.drawImage(await rasterOf(main.svg), 0, head, main.width, main.height);
  const [sideLeft, sideTop] = isNarrow ? [0, head + main.height] : [main.width, head];
  context.drawImage(await rasterOf(side.svg), sideLeft, sideTop, side.width, side.height);
  context.fillStyle = themeColour("ink-soft");
  context.font = "12px system-ui, sans-serif";
  context.fillText((caption.textContent ?? "").split(". Draw")[0], 14, height - 28, width - 28);
  context.fillText(`Source: ${archive.url}`, 14, height - 11, width - 28);
  return canvas;
}

/**
 * Return an image of an SVG element. Styles of the page are written into the copy: within an image no style sheet of
 * the page holds.
 *
 * @param {SVGSVGElement} svg
 */
async function rasterOf(svg) {
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const [originals, copies] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  originals.forEach((original, at) => {
    const style = getComputedStyle(original);
    for (const name of ["fill", "stroke", "stroke-width", "font-family", "font-size", "opacity", "paint-order", "text-anchor"])
      copies[at].setAttribute(name, style.getPropertyValue(name));
  });
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}
