// The shown field as a file: NetCDF and CSV from the server at full resolution, PNG as it is on the screen.

import { askFile } from "./api.js";
import { themeColour } from "./theme.js";

/** Let the browser keep a blob as a file. */
function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return a file name made of a variable's path. */
export function fileName(variable, suffix) {
  return `${variable.path.replace(/^\/+/, "").replaceAll(/[^\w.-]+/g, "_")}.${suffix}`;
}

/** Download the field that the parameters of a picture describe. */
export async function downloadField(format, parameters, variable) {
  const file = await askFile("download", { ...parameters, format });
  saveBlob(file, fileName(variable, format === "netcdf" ? "nc" : "csv"));
}

/** Download the picture with axes, colour bar and caption as PNG. */
export async function downloadPicture({ picture, bar, title, caption, variable }) {
  const density = Math.min(2, devicePixelRatio || 1) < 2 ? 2 : devicePixelRatio;
  const [main, side] = [picture.axes, bar.element].map((svg) => ({
    width: Number(svg.getAttribute("width")),
    height: Number(svg.getAttribute("height")),
    svg,
  }));
  const head = 44;
  const width = main.width + side.width + 12;
  const height = head + Math.max(main.height, side.height) + 30;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: width * density, height: height * density });
  const context = canvas.getContext("2d");
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
  context.drawImage(await rasterOf(main.svg), 0, head, main.width, main.height);
  context.drawImage(await rasterOf(side.svg), main.width, head, side.width, side.height);
  context.fillStyle = themeColour("ink-soft");
  context.font = "12px system-ui, sans-serif";
  context.fillText(caption, 14, height - 12, width - 28);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  saveBlob(blob, fileName(variable, "png"));
}

/** Return an image of an SVG element; styles of the page are written into the copy. */
async function rasterOf(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const [originals, copies] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  originals.forEach((original, at) => {
    const style = getComputedStyle(original);
    for (const name of ["fill", "stroke", "stroke-width", "font-family", "font-size", "opacity"])
      copies[at].setAttribute(name, style.getPropertyValue(name));
  });
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}
